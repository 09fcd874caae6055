"""How much of what others wrote is shown."""

from collections.abc import Callable

import pytest

from vllm_doctor.records import excerpt


@pytest.mark.parametrize(
    ("kind", "most"),
    [(excerpt.word, 80), (excerpt.said, 200), (excerpt.name, 300), (excerpt.title, 70), (excerpt.short, 12)],
)
def test_each_kind_of_text_has_one_length(kind: Callable[[str], str], most: int) -> None:
    assert kind("x" * most) == "x" * most
    assert kind("x" * most + "y") == "x" * most


def test_a_value_is_quoted_where_it_is_text_and_written_as_python_writes_it_where_it_is_none() -> None:
    assert excerpt.value("a" * 81) == "'" + "a" * 80 + "'"
    assert excerpt.value(True) == "True"
    assert excerpt.value([1] * 99) == "[" + "1, " * 26 + "1"


@pytest.mark.parametrize(
    ("written", "told"), [("first\nlast\n\n", "last"), (" \n", "exit code 3"), ("z" * 201, "z" * 200)]
)
def test_a_program_s_reason_is_its_last_line(written: str, told: str) -> None:
    assert excerpt.last_said(written, "exit code 3") == told
