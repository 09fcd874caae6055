"""What leaves in a bundle: texts without secrets and identities, and a ledger of what was taken and what stayed."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from vllm_doctor.redact.identities import SiteNames
from vllm_doctor.redact.launch import SHORTEST_SECRET
from vllm_doctor.redact.lines import Lines
from vllm_doctor.redact.names import is_secret_name
from vllm_doctor.redact.shapes import Place
from vllm_doctor.redact.text import HIDDEN, Replace
from vllm_doctor.redact.values import opaque, secret_under

_FOLDER = re.compile(r"(?<![\w./:-])/[\w.-]{1,64}/[\w.<>-]{1,64}")
_MOST_STAYED = 200


class Entry(msgspec.Struct, frozen=True):
    """A removal: in which file, where first, why, what stands there now, how many characters it had (0: not known), and
    how often."""

    file: str
    where: str
    why: str
    token: str
    characters: int
    count: int = 1


class Redactor:
    """Removes secrets and identities; the same one has the same token in all files of one bundle, so that what belongs
    together still does."""

    def __init__(self, names: SiteNames) -> None:
        self._names = names
        self._tokens: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._following = Lines()
        self._secrets: set[str] = set()
        self._entries: dict[tuple[str, str, str, int], list[str]] = {}
        self._times: Counter[tuple[str, str, str, int]] = Counter()
        self._stayed: dict[str, dict[str, None]] = {}

    @property
    def ledger(self) -> tuple[Entry, ...]:
        """What was taken so far."""
        return tuple(
            Entry(file, where[0], why, token, characters, self._times[file, why, token, characters])
            for (file, why, token, characters), where in self._entries.items()
        )

    def stayed(self) -> dict[str, list[str]]:
        """What was seen and left, by kind: the names of variables and options that still have a value, folders."""
        return {kind: list(found) for kind, found in sorted(self._stayed.items())}

    def note_clients(self, file: str, lines: int) -> None:
        """So many lines lost words that a client may have written, by where they stood in the log."""
        if lines:
            entry = file, "words that a client may have written", HIDDEN, 0
            self._entries[entry], self._times[entry] = ["log"], lines

    def learn(self, value: object) -> None:
        """Look through all texts once for secrets that stand beside a name, and for hosts in addresses, to know them
        where they stand alone."""
        following = Lines()

        def remember(what: str, _why: str) -> str:
            if len(what) > SHORTEST_SECRET and opaque(what) and " " not in what:
                self._secrets.add(what)
            return HIDDEN

        for name, text in _texts(value):
            following.scrub(text, remember)
            self._names.learn(text)
            if name is not None and secret_under(name, text):
                remember(text, "")

    def text(self, value: str, file: str, where: str) -> str:
        """`value` as it may leave the host."""
        put: Replace = partial(self._put, "secret", file=file, where=where)
        for _ in range(value.count(HIDDEN)):
            self._note(HIDDEN, 0, "secret hidden when it was read", file, where)
        value = self._following.scrub(value, put)
        for secret in self._secrets:
            if secret in value:
                value = value.replace(secret, put(secret, "a secret that has a name elsewhere"))
        return self._without_identities(value, file, where)

    def _without_identities(self, value: str, file: str, where: str) -> str:
        kept: list[str] = []
        at = 0
        places = sorted(self._names.places(value), key=_first_and_longest) if value else ()
        for begin, end, kind in places:
            if begin >= at:
                kept += (value[at:begin], self._put(kind, value[begin:end], f"{kind} identity", file, where))
                at = end
        value = "".join((*kept, value[at:])) if kept else value
        if "/" in value:
            for found in _FOLDER.finditer(value):
                self._stay("folders", found[0])
        return value

    def _put(self, kind: str, found: str, why: str, file: str, where: str) -> str:
        known = found.lower() if kind in {"host", "gpu", "mac"} else found
        token = self._tokens.get(known)
        if token is None:
            self._counts[kind] += 1
            token = self._tokens[known] = f"<{kind}-{self._counts[kind]}>"
        self._note(token, len(found), why, file, where)
        return token

    def _note(self, token: str, characters: int, why: str, file: str, where: str) -> None:
        entry = file, why, token, characters
        self._entries.setdefault(entry, []).append(where)
        del self._entries[entry][1:]
        self._times[entry] += 1

    def _stay(self, kind: str, what: str) -> None:
        found = self._stayed.setdefault(kind, {})
        if len(found) < _MOST_STAYED:
            found[what] = None

    def tree(self, value: object, file: str, where: str = "") -> object:
        """The same for all texts of a JSON value, names of mappings included; all that stands under a secret's name."""
        match value:
            case str():
                return self.text(value, file, where)
            case dict():
                return {self.text(str(k), file, where): self._under(str(k), v, file, where) for k, v in value.items()}
            case list() | tuple():
                return [self.tree(item, file, f"{where}/{number}") for number, item in enumerate(value)]
            case _:
                return value

    def _under(self, name: str, value: object, file: str, where: str) -> object:
        place = f"{where}/{name}"
        if secret_under(name, value) if isinstance(value, str) else is_secret_name(name):
            return self._all(value, file, place)
        if name == "user" and isinstance(value, str) and value:
            return self.text(f"user={value}", file, place).removeprefix("user=")
        if isinstance(value, str) and where.endswith(("/env", "/flags")) and value != HIDDEN:
            self._stay("variables" if where.endswith("/env") else "options", name)
        return self.tree(value, file, place)

    def _all(self, value: object, file: str, where: str) -> object:
        """A secret of any form: each text of it."""
        match value:
            case str() if value and HIDDEN not in value:
                return self._put("secret", value, "name before the value", file, where)
            case dict():
                return {self.text(str(k), file, where): self._all(v, file, f"{where}/{k}") for k, v in value.items()}
            case list() | tuple():
                return [self._all(item, file, f"{where}/{number}") for number, item in enumerate(value)]
            case _:
                return self.tree(value, file, where)


def _first_and_longest(place: Place) -> tuple[int, int]:
    return place[0], -place[1]


def _texts(value: object, name: str | None = None) -> Iterator[tuple[str | None, str]]:
    match value:
        case str():
            yield name, value
        case dict():
            for key, item in value.items():
                yield from _texts(item, str(key))
        case list() | tuple():
            for item in value:
                yield from _texts(item, name)


def accounts(value: object) -> Iterator[str]:
    """The names of users that records hold."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "user" and isinstance(item, str):
                yield item
            else:
                yield from accounts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from accounts(item)
