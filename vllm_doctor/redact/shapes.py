"""What only a secret looks like, whatever stands beside it: the issuers' forms (shapes.json), private keys, base64 of
either, and text that only a generator of random numbers writes."""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from vllm_doctor.knowledge.pattern import Pattern

HIDDEN = "[hidden]"
TOKEN, RANDOM, ENCODED = "shape of a token", "random text", "base64 of a secret"
# Where it begins and ends, and why it is hidden; `Taken` also has where to read on.
Place = tuple[int, int, str]
Taken = Iterator[tuple[int, int, str, int]]
# Cheap first look: the shortest form has as many characters without a break (an address for messages has not).
_LONG = re.compile(r"[A-Za-z0-9_.+=-]{14}")

PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_IN_LINE = re.compile(r"(?s:(?<=-----).*?(?=-----END|\Z))")
_RUN = re.compile(r"(?<![\w+/=])[A-Za-z0-9+/]{20,}+={0,2}+(?![\w+/=])")
_OFFSET = re.compile(r"\+0x[0-9a-f]{1,8}\Z")
_SHORTEST_RANDOM = 32
# Of random base64, six characters in ten are of another kind than the one before; of words, paths and numbers fewer.
_RANDOM_CHANGES = 0.42
# One in 64 is a slash; a path has more than one in twelve.
_SLASHES = 12
_HEX = re.compile(r"[0-9a-fA-F]+\Z")
_USER_COLON_PASSWORD = re.compile(r"[\w.@-]{1,64}:[!-~]{3,}")
_CAPITAL, _SMALL, _DIGIT = re.compile("[A-Z]"), re.compile("[a-z]"), re.compile("[0-9]")


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))
    return data


@cache
def _beginnings() -> tuple[str, ...]:
    return tuple(word for shape in _data()["shapes"] for word in shape["begins"])


@cache
def _issued() -> re.Pattern[str]:
    """All forms in one expression. Parts joined by dots begin where a run of their characters does, so that no run is
    looked at twice."""
    forms = []
    for shape in _data()["shapes"]:
        begins, of, least = "|".join(map(re.escape, shape["begins"])), shape["of"], shape["least"]
        part = f"[{of}]{{{least},}}+"
        joined = shape.get("joined", 1)
        before = rf"(?<![{of}])" if joined > 1 else "(?<![A-Za-z0-9])"
        forms.append(f"{before}(?:{begins}){part}" + rf"(?:\.{part}){{{joined - 1}}}" * (joined > 1))
    return re.compile("|".join(forms))


def has_secret_shape(text: str) -> bool:
    """Does it hold what only a secret looks like: a token, a private key, a password in an address?"""
    return bool(_issued().search(text) or PRIVATE_KEY.search(text) or any(True for _ in passwords(text)))


def places(text: str) -> Iterator[Place]:
    """Where such texts stand: begin, end and why."""
    if "PRIVATE KEY" in text:
        for found in PRIVATE_KEY.finditer(text):
            body = _IN_LINE.match(text, found.end())
            if body is not None and body[0].strip() and not body[0].startswith(HIDDEN):
                yield body.start(), body.end(), "private key"
                if body.end() == len(text):
                    break
    if (_LONG.search(text) or "hook" in text) and any(word in text for word in _beginnings()):
        yield from ((found.start(), found.end(), TOKEN) for found in _issued().finditer(text))
    yield from _within(text)
    yield from _runs(text)
    yield from _images(text)


def _within(text: str) -> Iterator[Place]:
    for shape in _data()["within"]:
        if shape["holds"] in text:
            of, before, after = shape["of"], shape["before"], shape["after"]
            form = rf"(?<![{of}])[{of}]{{{before}}}{shape['holds']}[{of}]{{{after},}}+"
            yield from ((found.start(), found.end(), TOKEN) for found in re.finditer(form, text))
    lower = text.lower()
    for shape in _data()["beside"]:
        if shape["hint"] in lower:
            form = rf"(?<![\w/-]){shape['pattern']}(?![\w-])"
            yield from ((found.start(), found.end(), TOKEN) for found in re.finditer(form, text))


_IMAGE = re.compile(r"(?<=;base64,)[A-Za-z0-9+/=_%-]{16,}+")


def _images(text: str) -> Iterator[Place]:
    if ";base64," in text:
        yield from ((found.start(), found.end(), "what a user sent") for found in _IMAGE.finditer(text))


def _runs(text: str) -> Iterator[Place]:
    for found in _RUN.finditer(text):
        # A native stack names a function and the place in it, `cuMemCreate+0x1d`: the name alone is judged.
        run = _OFFSET.sub("", found[0])
        if _random(run):
            yield found.start(), found.end(), RANDOM
        elif _encoded(run):
            yield found.start(), found.end(), ENCODED


def _random(run: str) -> bool:
    """Capitals, small letters and digits in turns that no word, path or number has."""
    if len(run) < _SHORTEST_RANDOM or _HEX.match(run) or run.count("/") * _SLASHES > len(run):
        return False
    seen = run[:256]
    if not (_CAPITAL.search(seen) and _SMALL.search(seen) and _DIGIT.search(seen)):
        return False
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else "/" for c in seen]
    changes = sum(a != b for a, b in pairwise(kinds))
    return changes >= _RANDOM_CHANGES * len(seen) and kinds.count("0") * 3 < len(seen) * 2


def _encoded(run: str) -> bool:
    """Base64 of a token, of a key or of `user:password`; what else it may be stays."""
    bare = run.rstrip("=")
    try:
        inside = base64.b64decode(bare + "=" * (-len(bare) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return inside.isprintable() and bool(has_secret_shape(inside) or _USER_COLON_PASSWORD.fullmatch(inside))


_ADDRESS = re.compile(r"(?<=[A-Za-z0-9+.-]://)[^\s\"'<>`\\]++")
_PLACE = re.compile(r"[\w.-]{1,255}(?::\d{1,5})?\Z|\[[0-9A-Fa-f:.%]{2,60}\](?::\d{1,5})?\Z")


def passwords(text: str) -> Iterator[Place]:
    """User and password in an address; the password may hold `/` and `@`, and a host follows the last `@`."""
    if "://" not in text or "@" not in text:
        return
    for found in _ADDRESS.finditer(text):
        part = found[0]
        at = part.rfind("@")
        if at < 0:
            continue
        begin, host = found.start(), _first(part[at + 1 :])
        slash = part.find("/")
        if 0 <= slash < at:
            before = part[:slash]
            if "@" in before:
                at = before.rfind("@")
            elif ":" not in before or _PLACE.match(before) or not _PLACE.match(host):
                continue  # https://host/@user
        if at > 0:
            yield begin, begin + at, "user and password in an address"


_IN_PERCENTS = Pattern(r"(?<=%3[Aa]%2[Ff]%2[Ff])(?P<both>(?:[^\s\"'<>&%/\\]|%(?!40|2[Ff])[0-9A-Fa-f]{2}){1,200}+)%40")


def passwords_in_percents(text: str) -> Iterator[Place]:
    """The same in an address that is a parameter of another one: `url=https%3A%2F%2Fuser%3Apassword%40host`."""
    yield from ((*f.span("both"), "user and password in an address") for f in _IN_PERCENTS.finditer(text))


_USERINFO = Pattern(
    r"(?<![\w.:/@+%-])(?://)?[\w.+-]{1,64}+:(?P<password>[^\s\"'<>`\\@/]{3,200}+)@(?!sha\d)(?=[A-Za-z0-9\[])"
)
_WEBHOOK = Pattern(
    r"(?<=://)(?:hooks?\.[\w.-]{1,200}+(?::\d{1,5})?/|[\w.-]{1,200}+(?::\d{1,5})?/(?:[\w.-]{1,60}/){0,4}?(?:web)?hooks?/)"
    r"(?P<rest>[^\s\"'<>`\\]{6,}+)"
)


class Userinfo(NamedTuple):
    """User and password before a host that has no scheme, `//user:password@host`."""

    begin: int
    end: int
    why: str
    password: str


def userinfo(text: str) -> Iterator[Userinfo]:
    """Where such stand; whether the password is one is for the caller."""
    for found in _USERINFO.finditer(text):
        begin = found.start() + 2 * found[0].startswith("//")
        yield Userinfo(begin, found.end("password"), "user and password in an address", found["password"])


def webhooks(text: str, lower: str) -> Iterator[Place]:
    """The path of an address that whoever knows may write to."""
    if "hook" in lower:
        yield from ((*found.span("rest"), "address of a webhook") for found in _WEBHOOK.finditer(text))


def _first(text: str) -> str:
    return re.split(r"[/?#,;)\]}&]", text[:320], maxsplit=1)[0]
