"""Takes secrets out of records: out of an answer before anybody sees it, and out of what was read of a host."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec

from vllm_doctor.records.finding import Change, Diagnosis
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.launch import SHORTEST_SECRET, scrub_values, secret_values
from vllm_doctor.redact.lines import Lines
from vllm_doctor.redact.names import is_secret_name
from vllm_doctor.redact.next_line import goes_on
from vllm_doctor.redact.text import HIDDEN, scrub
from vllm_doctor.redact.values import opaque, secret_under

_Record = TypeVar("_Record")
_YOURS = f"{HIDDEN} stands for what is kept secret here: put your own in its place."
# Where a launch is printed, and what a line of it holds.
_LAUNCHES = ("non-default args", "args: Namespace", "vllm serve", "api_server", "with config:")
_HEAD = 400
# Most fields of an answer are one of these; to ask each whether it is a record, a list or a mapping took longest.
_NO_TEXT = frozenset({type(None), bool, int, float})
# What is kept of texts that were looked at is bounded: so many of so many characters.
_SENTENCE = 240


def answer_to_show(diagnosis: Diagnosis, snapshot: Snapshot) -> Diagnosis:
    """The diagnosis as it may be shown. Rules see the text as it was written; from here on nobody does."""
    found = set(_of_the_launch(snapshot))

    def remember(what: str, _why: str) -> str:
        if len(what) >= SHORTEST_SECRET and opaque(what):
            found.add(what)
        return HIDDEN

    diagnosis = _without_clients(diagnosis, snapshot)
    told = _mapped(diagnosis, lambda text: text if _harmless(text) else scrub(text, remember))
    return _mapped(told, lambda text: scrub_values(text, found)) if found else told


def _without_clients(diagnosis: Diagnosis, snapshot: Snapshot) -> Diagnosis:
    """What clients may have written, out of the lines that are shown and of what is said of them."""
    if not isinstance(snapshot.log, Known):
        return diagnosis
    from vllm_doctor.redact.clients import Removed, line_as_shown, of_clients

    lines = snapshot.log.value.last.lines
    found = of_clients(lines)
    if not found:
        return diagnosis
    shown_as = {
        lines[at].excerpt or lines[at].text: (line := line_as_shown(lines[at], told)).excerpt or line.text
        for at, told in found.items()
    }
    taken = Removed(what for told in found.values() for what in told.taken)
    return _mapped(diagnosis, lambda text: taken.out_of(shown_as.get(text, text)))


def _harmless(text: str) -> bool:
    """Is nothing to hide in it? Rules say the same sentences again and again: of a fleet, of a guard, of a watch."""
    return len(text) <= _SENTENCE and _clean(text)


@lru_cache(maxsize=4096)
def _clean(text: str) -> bool:
    return scrub(text) == text


def _of_the_launch(snapshot: Snapshot) -> Iterable[str]:
    """Secrets that the command line or the log's own print of it names, wherever else they stand."""
    if isinstance(snapshot.launch, Known):
        launch = snapshot.launch.value
        yield from (value for value in secret_values(launch.argv, launch.env) if HIDDEN not in value)
    if isinstance(snapshot.log, Known):
        found: list[str] = []

        def collect(what: str, _why: str) -> str:
            found.append(what)
            return HIDDEN

        for line in snapshot.log.value.last.lines[:_HEAD]:
            if any(mark in line.text for mark in _LAUNCHES):
                scrub(line.text, collect, users=False)
        found += _on_the_next_line(snapshot.log.value.last.lines)
        for what in found:
            parts = what.strip("[]()").split(",") if what[:1] in {"[", "("} else [what]
            values = (part.strip().strip("\"'") for part in parts)
            yield from (value for value in values if len(value) >= SHORTEST_SECRET and opaque(value))


def _on_the_next_line(lines: Iterable[LogLine]) -> list[str]:
    """Values whose names stand on the line before theirs."""
    found: list[str] = []
    following = Lines()

    def collect(what: str, _why: str) -> str:
        found.append(what)
        return HIDDEN

    for line in lines:
        # A logger's own line of information ends in no name; most lines of a long log are such.
        if following.waits or ((line.module is None or line.level != "INFO") and goes_on(line.text)):
            following.scrub(line.text, collect)
    return found


def record_without(record: _Record, secrets: Collection[str]) -> _Record:
    """What was read of a host, without the given secrets; one look at the whole where it holds none."""
    if not secrets:
        return record
    whole = msgspec.json.encode(record)
    here = [s for s in sorted(secrets, key=len, reverse=True) if msgspec.json.encode(s)[1:-1] in whole]
    return _mapped(record, lambda text: scrub_values(text, here)) if here else record


def _mapped(value: _Record, of: Callable[[str], str]) -> _Record:
    """The record with each text replaced; what does not change is not made anew."""
    return _each(value, of)  # type: ignore[return-value] # the same kind of record comes back


def _each(value: object, of: Callable[[str], str]) -> object:
    kind = type(value)
    if kind is str:
        return of(value)  # type: ignore[arg-type] # mypy knows it of type(value) alone
    if kind in _NO_TEXT or (kind is tuple and not value):
        return value
    if isinstance(value, msgspec.Struct):
        changed = {
            name: new
            for name in value.__struct_fields__
            if (new := _each(old := getattr(value, name), of)) is not old and new != old
        }
        if isinstance(value, Change):
            changed |= _change(value, changed)
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, (tuple, list)):
        items = [_each(item, of) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, Mapping):
        return {of(name) if type(name) is str else name: _under(name, item, of) for name, item in value.items()}
    return value


def _under(name: object, value: object, of: Callable[[str], str]) -> object:
    if isinstance(name, str) and isinstance(value, str) and secret_under(name, value):
        return HIDDEN
    if isinstance(name, str) and isinstance(value, Mapping | tuple | list) and is_secret_name(name):
        return _each(value, lambda _text: HIDDEN)
    return _each(value, of)


def _change(change: Change, changed: Mapping[str, object]) -> dict[str, object]:
    """A change of a secret names neither the old value nor a new one; one that lost something says so."""
    hidden: dict[str, object] = {
        side: HIDDEN
        for side in ("before", "after")
        if isinstance(value := getattr(change, side), str) and secret_under(change.variable or change.name, value)
    }
    lost = {"after", "command"} & (hidden.keys() | changed.keys())
    why = str(changed.get("why", change.why))
    whole = f"{why.rstrip('.')}. {_YOURS}" if why else _YOURS
    return hidden | ({"why": whole} if lost and _YOURS not in why else {})
