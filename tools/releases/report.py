"""What a new release changes, in the order in which a person works it off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from releases import cited, store
from releases.store import Release
from vllm_doctor.knowledge.version import Version, as_version, is_written

_SHOWN = 40
_MANY = 10  # names in which one and the same key alone changed: more of them are one line


class Catalogued(NamedTuple):
    """A message of the catalogue: its id, the last release that each wording was seen in, and whether its row names
    the file of vLLM that writes it."""

    id: str
    until: tuple[str, ...]
    has_file: bool = False


_TOLD_APART = ("messages", "refusals", "cited")
_FACTS = tuple(name for name in store.SECTIONS if name not in _TOLD_APART)


def changes(old: Release | None, new: Release, sections: Iterable[str] = _FACTS) -> Iterator[str]:
    """Section by section: what came, what went, what is another."""
    for name in sections:
        before, after = store.section(old, name), store.section(new, name)
        came, gone = [n for n in after if n not in before], [n for n in before if n not in after]
        other = [n for n in after if n in before and after[n] != before[n]]
        if came or gone or other:
            yield f"{name}: {len(came)} new, {len(gone)} gone, {len(other)} changed"
            yield from _listed("  +", came)
            yield from _listed("  -", gone)
            yield from _listed("  ~", _changed(before, after, other))


def planner(old: Release | None, new: Release) -> Iterator[str]:
    """The functions whose body is another than that which the memory model was read from."""
    before, after, where = store.section(old, "cited"), store.section(new, "cited"), cited.table()
    for name in where:
        was, now = before.get(name), after.get(name)
        if now is None and was is not None:
            yield f"gone: {name} (cited by {', '.join(where[name])})"
        elif isinstance(was, dict) and isinstance(now, dict):
            at = str(now.get("in") or name.partition("::")[0])
            if was["as"] != now["as"]:
                yield f"another body: {name.partition('::')[2]} in {at} (cited by {', '.join(where[name])})"
            elif str(was.get("in") or name.partition("::")[0]) != at:
                yield f"moved, same body: {name.partition('::')[2]} to {at}"
        elif now is not None and old is not None:
            yield f"new: {name} (cited by {', '.join(where[name])})"


def messages(old: Release | None, new: Release, catalogue: Iterable[Catalogued]) -> Iterator[str]:
    """Messages that the source no longer has, and those whose wording is another."""
    before, after = store.section(old, "messages"), store.section(new, "messages")
    last, version = str((old or {}).get("version", "")), str(new["version"])
    catalogue = list(catalogue)
    ends = (as_version(end) for message in catalogue for end in message.until if _is_release(end))
    reached = max((end for end in ends if end <= as_version(version)), default=None)
    for message in catalogue:
        was, now = before.get(message.id), after.get(message.id)
        if was is not None and now is None:
            if reached is not None and _ended(message, min(reached, as_version(last))):
                continue
            file = was["in"] if isinstance(was, dict) else "?"
            claimed = f"end its span with {last}" if version in message.until else "no row says that it is still there"
            yield f"gone: {message.id} (was in {file}): {claimed}; look for what is said there now"
        elif message.has_file and now is None and version in message.until:
            yield f"not found: {message.id}: the file that its row names does not say it; compare it with its samples"
        elif isinstance(was, dict) and isinstance(now, dict) and was["as"] != now["as"]:
            yield f"another wording: {message.id} in {now['in']}: compare it with its samples"


def added(kept: Release, new: Release) -> Iterator[str]:
    """Messages and functions that this reading of a release has beside those of the one before."""
    for section in ("messages", "cited"):
        before, after = store.section(kept, section), store.section(new, section)
        for name, row in after.items():
            if before.get(name) != row:
                yield f"{name} in {row['in']}" if isinstance(row, dict) and "in" in row else name
        yield from (f"no longer found: {name}" for name in before if name not in after)


def refusals(old: Release | None, sentences: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """New sentences that refuse an option, as the wheel has them."""
    before = store.section(old, "refusals")
    for key, row in sentences.items():
        if key not in before:
            text = str(row["text"]).replace("\0", "…")
            yield f"{row['in']}: {' '.join(text.split())[:200]}"


def claims_too_much(new: Release, older: Iterable[Release], catalogue: Iterable[Catalogued]) -> list[str]:
    """Messages that the catalogue claims for a release whose source has them no longer.

    A message that no release's source has is another program's, or is made of pieces: nothing can be said of it, but
    where its row names the file that writes it.
    """
    known = {name for release in older for name in store.section(release, "messages")}
    have = store.section(new, "messages")
    version = str(new["version"])
    return [m.id for m in catalogue if (m.has_file or m.id in known) and m.id not in have and version in m.until]


def _ended(message: Catalogued, last: Version) -> bool:
    """Did every wording end before this release? Then there is nothing to do."""
    return all(_is_release(end) and as_version(end) < last for end in message.until)


def _is_release(end: str) -> bool:
    return is_written(end)


def _changed(before: Mapping[str, object], after: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """A line for each name; one for all in which the same key alone changed, so that they do not hide the others."""
    alone: dict[str, list[str]] = {}
    lines = []
    for name in names:
        keys = _changed_keys(before[name], after[name])
        alone.setdefault(keys[0] if len(keys) == 1 else "", []).append(name)
    many = {key: found for key, found in alone.items() if key and len(found) > _MANY}
    for key, found in alone.items():
        if key not in many:
            lines += [f"{name}: {_difference(before[name], after[name])}" for name in found]
    return [*sorted(lines), *(f"{key} alone, of {len(found)}: {', '.join(found)}" for key, found in many.items())]


def _difference(before: object, after: object) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = _changed_keys(before, after)
        return "; ".join(f"{k} {_of_key(before.get(k), after.get(k))}" for k in keys)
    return f"{before} → {after}"


def _changed_keys(before: object, after: object) -> list[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    return [k for k in {**before, **after} if before.get(k) != after.get(k)]


def _of_key(before: object, after: object) -> str:
    if isinstance(before, list) and isinstance(after, list):
        came, gone = [str(v) for v in after if v not in before], [str(v) for v in before if v not in after]
        if came or gone:
            return " ".join([*(f"+{v}" for v in came), *(f"-{v}" for v in gone)])
    return f"{before} → {after}"


def _listed(mark: str, names: list[str]) -> Iterator[str]:
    yield from (f"{mark} {name}" for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        yield f"{mark} and {len(names) - _SHOWN} more"
