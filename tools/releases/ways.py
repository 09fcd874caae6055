"""Which ways round of a known issue somebody has checked: that the releases take it and that it helps there.

ways.json has a line for each option, variable and package that an entry changes, with the releases of the entry: what
of the code shows that it reaches the failure (`shown`, reaching.py), or what a person found who read it (`read`). An
entry whose way or releases are others than those is not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from releases.accepted import of_vllm, releases_of, span, why_refused
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.version import as_version

FILE = Path(__file__).with_suffix(".json")
# What else an answer may be is done outside of vLLM, or is a release that a proof bears out.
_KINDS = frozenset({"flag", "env", "package"})
_FROM = re.compile(r"(?:[^,;:.]{1,60}, )?from (0\.\d+(?:\.\d+)*)(?: on\b|[:,])")


@dataclass(frozen=True)
class Way:
    """One of an entry's ways round; `way` and `releases` are what was checked."""

    id: str
    way: str
    releases: str
    shown: str = ""
    read: str = ""

    @property
    def checked(self) -> bool:
        """Is it known to help?"""
        return bool(self.shown or self.read)


def answers_of(one: Issue) -> list[Answer]:
    """The answers of an entry that have a way to be checked."""
    return [answer for answer in one.answers if answer.kind in _KINDS]


def way_of(one: Issue, answer: Answer) -> Way:
    """An answer as it is to be checked."""
    done = f"{answer.kind} {answer.direction} {' '.join(answer.options)}"
    when = "".join(f" {name} {bound}" for name, bound in (("since", answer.since), ("before", answer.before)) if bound)
    return Way(one.id, f"{done}{f' to {answer.to}' if answer.to else ''}{when}", f"{one.since or ''}-{one.fixed or ''}")


@cache
def ways() -> tuple[Way, ...]:
    """What was checked."""
    return tuple(Way(**row) for row in json.loads(FILE.read_text(encoding="utf-8")))


def write(rows: Iterable[Way]) -> None:
    """A line for each way."""
    kept = ({name: value for name, value in vars(row).items() if value or name == "releases"} for row in rows)
    lines = (json.dumps(row, ensure_ascii=False) for row in kept)
    FILE.write_text("[\n " + ",\n ".join(lines) + "\n]\n", encoding="utf-8")


def unchecked(entries: Iterable[Issue], known: Sequence[Way]) -> Iterator[str]:
    """The ways that nobody has checked, and rows of ways that no entry has."""
    rows = {(row.id, row.way, row.releases): row for row in known}
    for one in entries:
        for answer in answers_of(one):
            asked = way_of(one, answer)
            row = rows.pop((asked.id, asked.way, asked.releases), asked)
            if not row.checked:
                yield f"{row.id}: {row.way}: nobody has checked it in {row.releases}"
    yield from (f"{row.id}: {row.way}: no entry has it in {row.releases}" for row in rows.values())


def mistimed(one: Issue) -> list[str]:
    """The answers whose sentence begins by naming their first release, and that are given in releases before it: a
    reader there is told what does nothing yet. `since` says it."""
    told = []
    for answer in answers_of(one):
        named = _FROM.match(answer.why)
        met = [at for at in releases_of(one, answer) if not of_vllm(answer) or why_refused(answer, at) is None]
        early = [at for at in met if named is not None and at < as_version(named[1])]
        if early:
            told.append(f"{one.id}: {answer.options[0]}: {span(early)}: {answer.why}")
    return told
