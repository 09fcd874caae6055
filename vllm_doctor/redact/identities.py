"""Who and where, in text: addresses, names of hosts and users, numbers of machines and cards. In a bundle each has a
token of its own, so that what belongs together still does. Every expression begins where a run of its characters does
and is bounded, so that no text costs more than its bytes."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from vllm_doctor.knowledge.gpus import UUID
from vllm_doctor.redact.names import word_list
from vllm_doctor.redact.shapes import Place

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_UNITS = "service|socket|target|timer|slice|scope|mount|path"
_GPU = re.compile(rf"\b{UUID}", re.IGNORECASE)
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")
_IP6 = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:]|\.\d)")
# Not a version: those stand after a `v`, `-`, `==`, `+` or `.`, or begin with 0.
_IP4 = re.compile(rf"(?<![\w.+-])(?<!==)(?!127\.|0\.){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\w)")
# Not an instance of a systemd unit, vllm@main.service.
_MAIL = re.compile(
    rf"(?<![\w.+-])[\w.+-]{{1,64}}@(?![\w.:\\-]{{1,255}}\.(?:{_UNITS})(?:\.d)?(?![\w-]|\.\w))"
    r"[\w-]{1,63}+\.[\w.-]{1,190}\b"
)
_FOLDER_OF = re.compile(r"(?<=/)(?:home|nfshome|(?<!home/)[Uu]sers?)/(?P<user>[\w.-]{1,64})")
_USER = re.compile(
    r"(?<![\w-])(?:(?:sudo_)?user(?:name)?|logname|login)[\"']?(?:=|: ?(?=[\"']))[\"']?"
    r"(?P<user>[A-Za-z_][\w.-]{1,63})(?![\w.-])",
    re.IGNORECASE,
)
_URL_HOST = re.compile(r"(?<=://)(?:[^\s/@\"'<>]{1,200}@)?(?P<host>[A-Za-z][\w.-]{0,252})(?=[:/\"'\s,;)\]}?]|\Z)")
_HOST = re.compile(
    r"(?<![\w-])(?:--?(?P<option>)|--?)?(?:(?:vllm_)?host(?:name|_ip)?|master[_-]addr(?:ess)?|server[_-]name|node[_-]?name"
    r"|node[_-]ip[_-]address|head[_-]node[_-]ip|data[_-]parallel[_-]address|instance|node)"
    r"[\"']?(?:=|: ?(?=[\"'])|(?(option) |(?!)))[\"']?(?P<host>[A-Za-z][\w.-]{2,252})(?![\w(])",
    re.IGNORECASE,
)
_PRIVATE = (".internal", ".local", ".lan", ".corp", ".intranet", ".localdomain", ".consul")
_PRIVATE_NAME = re.compile(
    r"(?<![\w.-])[A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,63}){0,6}?"
    rf"(?:{'|'.join(map(re.escape, _PRIVATE))})(?![\w-]|\.\w|\()",
    re.IGNORECASE,
)
_MACHINE = re.compile(r"machine[-_ ]?id[\"']?[ =:\"']{1,4}(?P<id>[0-9a-f]{32})(?!\w)", re.IGNORECASE)
_SERIAL = re.compile(
    r"\b(?:board[_ ]|gpu[_ ])?(?:serial|sn)(?:[ _-]?(?:number|no\.?))?[\"']?[ \t]{0,40}[:=][ \t\"']{0,40}"
    r"(?P<serial>(?=[A-Z-]{0,20}\d)[A-Z0-9-]{6,40})(?![\w-])",
    re.IGNORECASE,
)
_SERVICE_ACCOUNTS = {
    "root", "vllm", "nobody", "ubuntu", "debian", "ec2-user", "admin", "shared", "public", "default", "none", "null",
    "user", "users", "home", "system", "daemon", "app", "runner", "jovyan", "appuser", "name", "agent", "assistant",
    "tool",
}  # fmt: skip
_NO_HOSTS = {"localhost", "none", "null", "auto", "host", "node", "the", "and", "all", "true", "false"}
_DIGITS = re.compile(r"\d+")


@lru_cache(maxsize=2048)
def _address(text: str) -> bool:
    from ipaddress import IPv6Address

    if "::" not in text and text.count(":") != 7:
        return False
    try:
        address = IPv6Address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def public(host: str) -> bool:
    """Is it a host that everybody knows, or this one's own loopback?"""
    name = host.lower().rstrip(".")
    return name in word_list("public_hosts") or name.endswith(tuple(f".{known}" for known in word_list("public_hosts")))


class SiteNames:
    """The names of one site: its own host, hosts that are named like it or stand in addresses, accounts."""

    def __init__(self, own: Iterable[str], accounts: Iterable[str] = (), machines: Iterable[str] = ()) -> None:
        """`own` are names of this host, `accounts` of its users, `machines` machine-ids; None of a name is skipped."""
        self._hosts: set[str] = set()
        self._machines = {text for text in machines if len(text) >= 16}
        self._accounts = {name for name in accounts if len(name) > 2 and name.lower() not in _SERVICE_ACCOUNTS}
        parts: list[str] = []
        for host in dict.fromkeys(own):
            parts += _named_like(host)
        # The longest first: a name with its domain before the name alone.
        self._own = re.compile("|".join(dict.fromkeys(parts)), re.IGNORECASE) if parts else None

    def learn(self, text: str) -> None:
        """Remember the hosts that an address or an option names, to know them where they stand alone."""
        for begin, end in _named_hosts(text, text.lower()):
            host = text[begin:end].rstrip(".-")
            if len(host) > 3 and any(c.isdigit() or c in ".-" for c in host):
                self._hosts.add(host.lower())

    def places(self, text: str) -> Iterator[Place]:
        """Where something of the site stands: begin, end, kind."""
        lower = text.lower()
        if "gpu-" in lower or "mig-" in lower:
            yield from ((found.start(), found.end(), "gpu") for found in _GPU.finditer(text))
        if text.count(":") > 1:
            yield from ((found.start(), found.end(), "mac") for found in _MAC.finditer(text))
            yield from ((found.start(), found.end(), "ip") for found in _IP6.finditer(text) if _address(found[0]))
        if text.count(".") > 2:
            yield from ((found.start(), found.end(), "ip") for found in _IP4.finditer(text))
        if "@" in text:
            yield from ((found.start(), found.end(), "mail") for found in _MAIL.finditer(text))
        yield from self._people(text, lower)
        yield from self._places_of_hosts(text, lower)
        if "machine" in lower:
            yield from ((*found.span("id"), "machine") for found in _MACHINE.finditer(text))
        if "serial" in lower or "sn" in lower:
            yield from ((*found.span("serial"), "serial") for found in _SERIAL.finditer(text))
        for machine in self._machines:
            yield from ((begin, end, "machine") for begin, end in _alone(machine, lower))

    def _people(self, text: str, lower: str) -> Iterator[Place]:
        for hints, form in (("home", "user"), _FOLDER_OF), (("user", "log"), _USER):
            for found in form.finditer(text) if any(hint in lower for hint in hints) else ():
                if found["user"].lower() not in _SERVICE_ACCOUNTS:
                    yield *found.span("user"), "user"
        for name in self._accounts:
            yield from ((begin, end, "user") for begin, end in _alone(name, text))

    def _places_of_hosts(self, text: str, lower: str) -> Iterator[Place]:
        if self._own is not None:
            yield from ((found.start(), found.end(), "host") for found in self._own.finditer(text))
        yield from ((begin, end, "host") for begin, end in _named_hosts(text, lower))
        if any(ending in lower for ending in _PRIVATE):
            for found in _PRIVATE_NAME.finditer(text):
                if "thread" not in found[0].lower():
                    yield found.start(), found.end(), "host"
        for host in self._hosts:
            yield from ((begin, end, "host") for begin, end in _alone(host, lower))


def _named_hosts(text: str, lower: str) -> Iterator[tuple[int, int]]:
    if "://" in text:
        yield from (found.span("host") for found in _URL_HOST.finditer(text) if _is_host(found["host"]))
    if any(hint in lower for hint in ("host", "master", "node", "server", "address", "instance")):
        yield from (found.span("host") for found in _HOST.finditer(text) if _is_host(found["host"]))


def _alone(name: str, text: str) -> Iterator[tuple[int, int]]:
    """Where a name stands, not as a part of another."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not (_within(text[at - 1 : at] if at else "") or _within(text[end : end + 1])):
            yield at, end
        at = text.find(name, end)


def _within(sign: str) -> bool:
    return sign.isalnum() or (sign in "-_" and bool(sign))


def _is_host(host: str) -> bool:
    return not (public(host) or host.lower() in _NO_HOSTS or host.endswith((".py", ".json", ".so", ".sock")))


def _named_like(host: str) -> Iterator[str]:
    """Where a host's name stands, in capitals too, with other numbers in it too, and its domain. One of a letter or two
    is a word like others: alone, or where the journal puts it."""
    if not host or host.lower() in _NO_HOSTS or public(host):
        return
    short, _, domain = host.partition(".")
    if domain.count("."):
        yield rf"(?<![\w.-])(?:[\w-]{{1,63}}\.){{0,3}}{re.escape(domain)}(?![\w-]|\.\w)"
    if domain:
        yield rf"(?<![\w-]){re.escape(host)}(?![\w-])"
    if len(short) < 3:
        name = re.escape(short)
        yield rf"^{name}$"
        yield rf"(?<=[0-9Z] ){name}(?= [\w@.:-]{{1,200}}\[\d{{1,9}}\]: )"
        return
    # gpu-node-7 stands among gpu-node-8 and its like.
    stem = _DIGITS.split(short)
    letters = sum(len(part.strip("-_")) for part in stem)
    like = r"\d{1,9}".join(map(re.escape, stem)) if len(stem) > 1 and letters > 2 else re.escape(short)
    yield rf"(?<![\w-]){like}(?![\w-])"
