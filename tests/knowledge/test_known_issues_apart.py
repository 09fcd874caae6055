"""A failure of one known issue is not taken for another, be it a played one or made of an entry's own patterns."""

import re
import re._constants as sign
import re._parser as parser
from collections.abc import Sequence
from typing import Any

import pytest

from tests.knowledge.test_known_issues_played import ROWS, Failure
from vllm_doctor.knowledge.known_issues import Issue, issues, matching
from vllm_doctor.knowledge.versions import as_version

# The second says less and covers the first: the first has a cause of its own and stands in front.
WIDER = {"reranker-head-repacked": {"marlin-repack-tile"}}
CLASSES = {sign.CATEGORY_DIGIT: "7", sign.CATEGORY_SPACE: " "}


@pytest.mark.parametrize("name", ROWS)
def test_a_played_failure_matches_no_entry_of_another_cause(name: str) -> None:
    assert set(Failure.of(ROWS[name]).matches()) - {name} == WIDER.get(name, set())


@pytest.mark.parametrize("issue", issues(), ids=lambda issue: issue.id)
def test_what_an_entry_names_is_named_by_no_other_entry(issue: Issue) -> None:
    said, code, *calls = (example(regex) for regex in (issue.said, issue.code, *issue.calls))
    release = as_version(issue.since) if issue.since is not None else None
    found = [one.id for one in matching(example(issue.kind), said, code, calls, release)]
    assert found[0] == issue.id
    assert set(found[1:]) <= WIDER.get(issue.id, set())


@pytest.mark.parametrize(
    ("regex", "text"),
    [("ab+c?", "ab"), (r"(?:x|y)\d{2,4}", "x77"), (r"[^a]\s\S$", "x w"), ("(?i)Only", "Only")],
)
def test_an_example_is_the_shortest_text_of_a_pattern(regex: str, text: str) -> None:
    assert example(regex) == text
    assert re.search(regex, text)


def example(regex: str) -> str:
    """A text that a pattern finds: the first branch, each repetition as often as it must be."""
    return _text(parser.parse(regex))


def _text(parts: Sequence[tuple[Any, Any]]) -> str:
    return "".join(_one(kind, what) for kind, what in parts)


def _one(kind: Any, what: Any) -> str:
    if kind is sign.LITERAL:
        return chr(what)
    if kind is sign.IN:
        return _member(what)
    if kind is sign.BRANCH:
        return _text(what[1][0])
    if kind is sign.SUBPATTERN:
        return _text(what[3])
    if kind in (sign.MAX_REPEAT, sign.MIN_REPEAT):
        return _text(what[2]) * what[0]
    return "" if kind in (sign.AT, sign.ASSERT, sign.ASSERT_NOT) else "x"


def _member(what: Sequence[tuple[Any, Any]]) -> str:
    kind, first = what[0]
    if kind is sign.NEGATE:
        return next(c for c in "xyz0" if (sign.LITERAL, ord(c)) not in what)
    if kind is sign.CATEGORY:
        return CLASSES.get(first, "w")
    return chr(first if kind is sign.LITERAL else first[0])
