"""What possessive repetition matches is the same on every Python: that of Debian 12 matches some of it wrongly."""

import re

import pytest

from vllm_doctor.knowledge import possessive

PAIRS = [
    (r"(?P<name>(?:[\w.-]|%41)++)(?:&#(?:61|58);)(?:!\w{1,20}+\s++)?+", "api_key&#61;", "api_key&#61;"),
    (r"(?:a(?:b|bc)){1,3}+d", "abd", "abd"),
    (r"(?:ab?c)++d", "abcacd", "abcacd"),
    (r"(?:a|ab)++c", "abc", None),
    (r"(?:ab?)?+b", "ab", None),
]


@pytest.mark.parametrize(("pattern", "text", "found"), PAIRS)
def test_as_an_atomic_group_around_a_greedy_one(pattern: str, text: str, found: str | None) -> None:
    made = re._compiler.compile(possessive.parse_rightly(pattern))  # type: ignore[attr-defined]
    told = made.match(text)
    assert (told[0] if told else None) == found


@pytest.mark.parametrize(("pattern", "text", "found"), PAIRS)
def test_as_this_python_compiles_it_for_the_doctor(pattern: str, text: str, found: str | None) -> None:
    told = re.match(pattern, text)
    assert (told[0] if told else None) == found


def test_what_goes_back_is_rewritten_wherever_it_stands_and_the_rest_is_left() -> None:
    tree = possessive.parse_rightly(r"x(?:(?=(?:a|bc)++)|[ab]++)").data
    assert "POSSESSIVE_REPEAT" in str(tree)
    assert "ATOMIC_GROUP" in str(tree)
