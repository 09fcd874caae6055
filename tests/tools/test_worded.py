"""The prose of a known issue names only what a field of it has, or a release of it (tools/releases/worded.py)."""

import pytest
from releases.worded import unheld

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue, Proof, issues

# The tag in its wheel's name shows it, and no line of code.
BY_THE_WHEEL = {"glibc-newer-in-wheel": ["upgrade: no proof shows 0.21.0"]}
PROVED = (Proof(last="0.20.2", first="0.21.0", file="a.py", gone="x"),)


@pytest.mark.parametrize("issue", issues(), ids=lambda issue: issue.id)
def test_no_clause_of_an_entry_stands_without_a_field_that_holds_it(issue: Issue) -> None:
    assert unheld(issue) == BY_THE_WHEEL.get(issue.id, [])


def of(about: str = "It fails.", *answers: Answer, title: str = "", said: str = "") -> Issue:
    named = ("a-name", title, about, "https://github.com/a/b/issues/4321", "")
    return Issue(*named, said=said, since="0.20.0", fixed="0.21.0", cards=("H200",), proof=PROVED, answers=answers)


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ("It fails on H200.", []),
        ("It fails on A100.", ["the card A100"]),
        ("It fails on Hopper.", ["the card Hopper"]),
        ("It fails below compute capability 8.0.", []),
        ("0.20.0 fails.", []),
        ("0.19.1 served it.", ["the number 0.19.1"]),
        ("Llama 3.1 fails.", ["the model Llama"]),
        ("Reported in May.", ["Reported, a report or a date"]),
        ("It came in May 2026.", ["May 2026, a report or a date", "the number 2026"]),
        ("Change 4321 mends it, 54321 as well.", ["the number 54321"]),
        ("Without --enforce-eager it fails.", []),
        ("Without --no-enable-prefix-caching it fails.", []),
        ("Without --no-such-option it fails.", ["such-option, which no release of it has"]),
        ("VLLM_USE_V1 changes it.", ["VLLM_USE_V1, which no release of it has"]),
        ("VLLM_CACHE_ROOT changes it.", []),
        ("CUDA_HOME changes it.", ["CUDA_HOME, which none of its fields names"]),
        ("TRITON_ATTN does not.", []),
        ("x" * 216, ["216 signs"]),
    ],
)
def test_what_the_words_of_an_entry_name_is_looked_for(about: str, told: list[str]) -> None:
    found = unheld(of(about))
    assert len(found) == len(told)
    assert all(name in one for name, one in zip(told, found, strict=True))


def test_a_signature_holds_what_it_matches_and_a_title_does_not() -> None:
    assert unheld(of("gfx942 is refused.", said=r"not supported on gfx942")) == []
    assert unheld(of(title="gfx942 is refused")) == ["the title: the card gfx942"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer("upgrade"), []),
        (Answer("upgrade", before="0.20.1"), ["upgrade: no proof shows 0.20.1"]),
        (Answer("upgrade", why="x" * 61), ["upgrade: 61 signs, at most 60"]),
        (Answer("package", options=("lmcache",), to="0.4.7", why="0.4.7 takes it"), []),
        (Answer("package", options=("lmcache",), to="0.4.7", why="0.4.8 takes it"), ["the number 0.4.8"]),
        (Answer("flag", options=("enforce-eager",), why="from 0.19.1 on"), ["the number 0.19.1"]),
    ],
)
def test_a_change_says_what_its_own_fields_hold(answer: Answer, told: list[str]) -> None:
    found = unheld(of("It fails.", answer))
    assert len(found) == len(told)
    assert all(name in one for name, one in zip(told, found, strict=True))


def test_an_upgrade_that_no_release_ends_is_none() -> None:
    assert unheld(Issue("id", "", "", "", "", answers=(Answer("upgrade"),))) == ["upgrade: no release ends it"]
