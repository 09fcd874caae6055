"""A unit's text is read as systemd reads it, and as whoever writes it here writes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_doctor.launch.unit_text import pieces, read_unit, values, words_of
from vllm_doctor.remedy.dropin import quoted

WORDS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=20), min_size=1, max_size=5)
UNIT = """[Unit]
Description=ExecStart=/no/such
[Service]
# ExecStart=/bin/old
Environment=A=1 "B=two words" 'C=a"b'
Environment="D=50%% \\\\ \\x41\\101"
ExecStart=-/opt/vllm/bin/vllm serve m \\
# between two lines
  --hf-overrides "{\\"a\\": 1}" \\
  --port 8001
Restart=on-failure
"""


def test_a_command_goes_on_behind_a_backslash_and_a_comment_within_it_is_none() -> None:
    read = read_unit(UNIT)
    assert read.words == ("/opt/vllm/bin/vllm", "serve", "m", "--hf-overrides", '{"a": 1}', "--port", "8001")
    assert read.env == {"A": "1", "B": "two words", "C": 'a"b', "D": "50% \\ AA"}
    assert values(UNIT, "Restart") == ["on-failure"]


def test_each_line_has_its_number() -> None:
    told = [(one.number, one.text, one.begins) for one in pieces(UNIT.splitlines()) if one.directive == "ExecStart"]
    assert [number for number, _, _ in told] == [7, 9, 10]
    assert [begins for _, _, begins in told] == [True, False, False]


def test_the_last_command_counts_and_an_empty_value_takes_back_what_stands_before_it() -> None:
    read = read_unit("Environment=A=1\nEnvironment=\nEnvironment=B=2\nExecStart=/a\nExecStart=\nExecStart=/b c\n")
    assert (read.words, read.env) == (("/b", "c"), {"B": "2"})
    assert read_unit("ExecStart=/a\nExecStart=\n").words == ()


def test_a_backslash_that_another_one_escapes_does_not_join_lines() -> None:
    assert read_unit('ExecStart=/a "b\\\\\\\\"\nRestart=no\n').words == ("/a", "b\\\\")
    assert read_unit("ExecStart=/a b\\\\\nRestart=no\n").words == ("/a", "b\\")


def test_a_quote_within_a_word_joins_and_an_unknown_escape_stays() -> None:
    assert list(words_of(r'a"b c"d \q "" \s')) == ["ab cd", r"\q", "", " "]


def test_a_quote_that_does_not_close_is_no_word() -> None:
    with pytest.raises(ValueError, match="does not close"):
        read_unit("ExecStart=/a 'b\n")


@given(WORDS)
def test_what_is_quoted_for_systemd_is_read_back(words: list[str]) -> None:
    for variables in (True, False):
        written = " ".join(quoted(word, variables=variables) for word in words)
        read = [word.replace("$$", "$") if variables else word for word in words_of(written)]
        assert read == words, written
