"""A log in a frame that a terminal's program drew around its lines."""

import pytest

from vllm_doctor.log.read.frame import unframed
from vllm_doctor.log.read.unwrap import unwrapped

WIDTH = 60


def _boxed(*lines: str) -> list[str]:
    return [f"│ {line:<{WIDTH}} │" for line in lines]


TEXT = (
    "INFO 03-24 04:03:55 [loader.py:1] one",
    "ValueError: this sentence has more words than the frame is",
    "wide, and goes on.",
    "    an indented line",
)


def test_the_sides_are_taken_off_and_a_broken_line_is_whole() -> None:
    assert unwrapped(_boxed(*TEXT)) == [TEXT[0], f"{TEXT[1]} {TEXT[2]}", "", TEXT[3]]


def test_a_line_whose_left_side_was_not_copied_has_none_either() -> None:
    lines = _boxed(*TEXT)
    found, width = unframed([lines[0][2:], *lines[1:]])
    assert (found[0], width) == (TEXT[0], WIDTH)


def test_a_table_and_two_lines_are_left_as_they_are() -> None:
    table = ["│ a │ b │"] * 4
    assert unframed(table) == (table, None)
    assert unframed(_boxed("a", "b")) == (_boxed("a", "b"), None)
    rows = ["| Task | Value |", "|------|------:|", "| a    |  0.81 |", "| b    |  0.82 |"]
    assert unframed([row.replace("|-", "| -") for row in rows]) == ([row.replace("|-", "| -") for row in rows], None)


@pytest.mark.parametrize("mark", ["> ", "# ", "// ", "| "])
def test_the_mark_of_a_quotation_or_a_comment_is_taken_off(mark: str) -> None:
    text = ["INFO 03-24 04:03:55 [loader.py:1] one", "", "  two", "three"]
    assert unframed([f"{mark}{line}".rstrip() for line in text])[0] == text


def test_a_mark_before_some_lines_alone_stays() -> None:
    text = ["# a prompt of root's", "INFO 03-24 04:03:55 [loader.py:1] one", "# two"]
    assert unframed(text)[0] == text
