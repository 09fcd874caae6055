"""A release of a package is offered where this vLLM takes it; else the one that its own metadata asks for."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.specifiers import both_take, is_specifier
from vllm_doctor.knowledge.versions import later_end, requires
from vllm_doctor.records.finding import Change
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.answer import changes_of


def offered(answer: Answer, version: str | None) -> Change:
    told = Known(version, "given") if version is not None else None
    snapshot = Snapshot(taken_at="") if told is None else Snapshot(taken_at="", version=told)
    (change,) = changes_of(Case(snapshot), (answer,), "")
    return change


HELPED = Answer("package", options=("transformers",), to="5.10.1", why="helped", command="pip install transformers")
IN_COMMAND = Answer("package", options=("openai",), why="helped", command="pip install 'openai>=1.99.1,<1.100'")
BESIDE = Answer(
    "package",
    options=("transformers",),
    to="5.10.1",
    why="helped",
    command="pip install --no-deps transformers==5.10.1",
)
OPEN = Answer("package", options=("openai",), why="helped", command="pip install 'openai>=1.99.1'; pip check")


@pytest.mark.parametrize(
    ("answer", "version", "to", "command"),
    [
        (HELPED, "0.24.0", "5.10.1", "pip install transformers"),
        (HELPED, None, "5.10.1", "pip install transformers"),
        (HELPED, "0.33.0", "<5.21.0,>=5.16.1", "pip install 'transformers<5.21.0,>=5.16.1'"),
        (HELPED, "0.11.1", "<5,>=4.56.0", "pip install 'transformers<5,>=4.56.0'"),
        (IN_COMMAND, "0.18.0", None, "pip install 'openai>=1.99.1,<1.100'"),
        (IN_COMMAND, "0.19.0", ">=2.0.0", "pip install 'openai>=2.0.0'"),
        (OPEN, "0.18.0", None, "pip install 'openai>=1.99.1,<2.25.0'; pip check"),
        (OPEN, "0.33.0", None, "pip install 'openai>=1.99.1'; pip check"),
        (OPEN, None, None, "pip install 'openai>=1.99.1'; pip check"),
        (BESIDE, "0.33.0", "5.10.1", "pip install --no-deps transformers==5.10.1"),
    ],
)
def test_what_helped_others_is_held_against_what_this_release_asks_for(
    answer: Answer, version: str | None, to: str | None, command: str
) -> None:
    change = offered(answer, version)
    assert (change.name, change.after, change.command) == (answer.options[0], to, command)
    assert ("does not take" in change.why) is (change.why != "helped")


@pytest.mark.parametrize(
    ("answer", "version", "to", "command"),
    [
        (HELPED, "0.10.0", ">=4.53.2,<5", "pip install 'transformers>=4.53.2,<5'"),
        (OPEN, "0.16.0", None, "pip install 'openai>=1.99.1,<2.25.0'; pip check"),
        (IN_COMMAND, "0.8.5", ">=1.52.0,<=1.90.0", "pip install 'openai>=1.52.0,<=1.90.0'"),
    ],
)
def test_an_older_vllm_gets_nothing_that_a_newer_one_still_refuses(
    answer: Answer, version: str, to: str | None, command: str
) -> None:
    change = offered(answer, version)
    assert (change.after, change.command) == (to, command)
    assert ("is older than one that does not take" in change.why) is (to is not None)


@pytest.mark.parametrize(
    ("package", "version", "end"),
    [
        ("transformers", "0.10.2", "<5"),
        ("transformers", "0.19.0", ""),
        ("transformers", "0.30.0", "<5.18.0"),
        ("numpy", "0.4.1", "<2.0.0"),
        ("numpy", "0.9.0", ""),
        ("torch", "0.2.0", ""),
        ("no-package-of-vllm", "0.9.0", ""),
    ],
)
def test_the_end_is_that_of_the_next_release_with_one(package: str, version: str, end: str) -> None:
    assert later_end(package, version) == end


def test_a_release_that_the_message_names_is_given_as_it_is() -> None:
    same = Answer("package", options=("ray",), said=r"(?P<head>\d[\d.]*) there", command="pip install ray=={head}")
    snapshot = Snapshot(taken_at="", version=Known("0.15.0", "given"))
    (change,) = changes_of(Case(snapshot), (same,), "2.43.0 there")
    assert change.command == "pip install ray==2.43.0"


def test_the_figures_are_those_of_the_releases() -> None:
    assert requires("transformers", "0.24.0") == ">=5.5.3"
    assert requires("openai", "0.18.0") != requires("openai", "0.19.0") == ">=2.0.0"


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("5.5.3", "<5.21.0,>=5.16.1", False),
        ("<5", ">=4.56.0", True),
        ("<4.56", ">=4.56.0", False),
        ("<=4.56", ">=4.56.0", True),
        (">4.56", "<=4.56.0", False),
        ("==5.5.*", "!=5.5.0,>=4.56", True),
        ("==5.5.0", "!=5.5.*", False),
        ("~=1.2", "<1.3", True),
        ("~=1.2", "<1.2", False),
        ("~=1.2.3", ">=1.3", False),
        ("===2.10.0", "==2.10.0", True),
        (">4.56,<4.57", "==4.56.1", True),
        ("5.0rc1", ">=5", False),
    ],
)
def test_two_specifiers_have_a_release_in_common(one: str, other: str, both: bool) -> None:
    assert both_take(one, other) is both
    assert both_take(other, one) is both


@pytest.mark.parametrize("written", ["", "==VERSION", "==$(pip", "=={head}", "the one that vLLM asks for"])
def test_what_the_reader_fills_in_is_no_release(written: str) -> None:
    assert not is_specifier(written)


def test_every_known_package_of_the_messages_own_command_is_installed() -> None:
    """A log is written by others: a name that nobody has read comes into no command."""
    said = "ImportError: this file requires packages. Run `pip install tiktoken blobfile reqeusts`"
    told = diagnosed(said).findings[0]
    assert (told.code, told.changes[0].command) == ("VD514", "pip install tiktoken blobfile")
