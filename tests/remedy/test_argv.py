"""Changes in a launch's argument list."""

import pytest
from msgspec.structs import replace

from vllm_doctor.launch.positions import placed
from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.argv import applied, at_once, written


def change(
    name: str, after: Scalar, direction: Direction = Direction.SET, kind: ChangeKind = ChangeKind.FLAG
) -> Change:
    return Change(
        kind=kind, name=name, before=None, after=after, direction=direction, applicability=Applicability.NEEDS_REVIEW
    )


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (("vllm", "--max-model-len", "9", "--x"), ("vllm", "--max-model-len", "4", "--x")),
        (("vllm", "--max_model_len=9", "--x"), ("vllm", "--max-model-len", "4", "--x")),
        (("vllm", "--x"), ("vllm", "--x", "--max-model-len", "4")),
        (("vllm", "--max-model-len", "9", "--max-model-len", "8"), ("vllm", "--max-model-len", "4")),
    ],
)
def test_a_value_replaces_every_earlier_one_in_its_place(argv: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    assert applied(argv, (change("max-model-len", 4),)) == wanted


def test_a_switch_is_added_bare_and_taken_away_without_its_neighbour() -> None:
    with_switch = applied(("vllm", "serve", "m"), (change("enforce-eager", after=True),))
    assert with_switch == ("vllm", "serve", "m", "--enforce-eager")
    assert applied(("vllm", "--swap-space", "4", "--port", "1"), (change("swap-space", None, Direction.REMOVE),)) == (
        "vllm",
        "--port",
        "1",
    )
    assert applied(("vllm", "--enforce-eager", "--port", "1"), (change("enforce-eager", None, Direction.REMOVE),)) == (
        "vllm",
        "--port",
        "1",
    )


def test_a_direction_without_a_value_takes_nothing_away() -> None:
    argv = ("vllm", "--gpu-memory-utilization", "0.9")
    assert applied(argv, (change("gpu-memory-utilization", None, Direction.RAISE),)) == argv


def test_environment_changes_leave_the_command_line_alone() -> None:
    assert applied(("vllm",), (change("A", "b", kind=ChangeKind.ENV),)) == ("vllm",)


def test_zero_is_a_value_and_no_removal() -> None:
    assert applied(("vllm",), (change("cpu-offload-gb", 0),)) == ("vllm", "--cpu-offload-gb", "0")


def test_a_switch_that_is_on_by_default_is_written_off() -> None:
    off = change("enable-prefix-caching", after=False)
    assert applied(("vllm", "serve", "m"), (off,)) == ("vllm", "serve", "m", "--no-enable-prefix-caching")
    assert applied(("vllm", "--enable-prefix-caching", "m"), (off,)) == ("vllm", "--no-enable-prefix-caching", "m")


def test_a_short_name_and_a_no_form_are_the_option_too() -> None:
    assert applied(("vllm", "-tp", "8", "--x"), (change("tensor-parallel-size", 4),)) == (
        "vllm", "--tensor-parallel-size", "4", "--x",
    )  # fmt: skip
    assert applied(("vllm", "--no-enable-prefix-caching"), (change("enable-prefix-caching", after=True),)) == (
        "vllm",
        "--enable-prefix-caching",
    )


def test_a_switch_has_no_value_and_a_list_has_all_that_follow() -> None:
    assert applied(("vllm", "--enforce-eager", "model"), (change("enforce-eager", None, Direction.REMOVE),)) == (
        "vllm",
        "model",
    )
    sizes = ("vllm", "--cudagraph-capture-sizes", "1", "2", "4", "--port", "1")
    assert applied(sizes, (change("cudagraph-capture-sizes", None, Direction.REMOVE),)) == ("vllm", "--port", "1")


def test_a_negative_number_is_a_value_and_a_lone_dash_is_no_option() -> None:
    gone = (change("seed", None, Direction.REMOVE),)
    assert applied(("vllm", "--seed", "-5", "--port", "1"), gone) == ("vllm", "--port", "1")
    assert applied(("vllm", "--seed=5", "m"), gone) == ("vllm", "m")
    assert applied(("vllm", "-", "--seed", "5"), gone) == ("vllm", "-")


@pytest.mark.parametrize(
    ("words", "name", "own"),
    [
        ("--seed 1 --seed 2 --x", "seed", "--seed 2"),
        ("--seed=1 2", "seed", "--seed=1"),
        ("--x --seed 1 2", "seed", "--seed 1"),
        ("--seed -5.5 --x", "seed", "--seed -5.5"),
        ("--seed", "seed", "--seed"),
        ("--seed --x", "seed", "--seed"),
        ("--cudagraph-capture-sizes 1 2 4 --x", "cudagraph-capture-sizes", "--cudagraph-capture-sizes 1 2 4"),
        ("--enforce-eager m", "enforce-eager", "--enforce-eager"),
        ("--of-no-release 1 2", "of-no-release", "--of-no-release 1"),
        ("-- seed 1", "seed", None),
        ("seed 1", "seed", None),
    ],
)
def test_an_option_stands_with_its_own_words(words: str, name: str, own: str | None) -> None:
    assert placed(("vllm", *words.split()), name) == (None if own is None else tuple(own.split()))


def test_an_option_in_the_middle_stays_in_its_place() -> None:
    argv = ("vllm", "serve", "m", "--seed", "1", "--x", "--seed=2", "--port", "1")
    assert applied(argv, (change("seed", 3),)) == ("vllm", "serve", "m", "--seed", "3", "--x", "--port", "1")
    both = (
        change("port", kind=ChangeKind.ENV, after=9),
        change("seed", None, Direction.LOWER),
        change("x", after=True),
    )
    assert applied(argv[:6], both) == ("vllm", "serve", "m", "--seed", "1", "--x")
    gone_and_set = (change("seed", None, Direction.REMOVE), change("port", 2))
    assert applied(argv, gone_and_set) == ("vllm", "serve", "m", "--x", "--port", "2")


def test_a_list_is_written_as_its_words() -> None:
    assert written(change("cudagraph-capture-sizes", "1 2")) == ("--cudagraph-capture-sizes", "1", "2")
    assert written(change("served-model-name", "a")) == ("--served-model-name", "a")
    assert written(change("of-no-release", "1 2")) == ("--of-no-release", "1 2")


@pytest.mark.parametrize(
    ("order", "kept"),
    [
        ("a", "a"),
        ("ab", "a"),
        ("aA", "aA"),
        ("abA", "aA"),
        ("eA", "eA"),
        ("oA", "A"),
        ("oab", "a"),
        ("v", ""),
        ("vA", "A"),
        ("ra", "r"),
    ],
)
def test_what_is_changed_at_once_is_the_first_and_what_is_together_with_it(order: str, kept: str) -> None:
    of = {
        "a": change("a", 1), "b": change("b", 1), "A": replace(change("c", 1), together=True),
        "e": change("e", 1, kind=ChangeKind.ENV), "o": change("o", 1, kind=ChangeKind.OS),
        "v": change("v", None), "r": change("r", None, Direction.REMOVE),
    }  # fmt: skip
    assert at_once([of[letter] for letter in order]) == tuple(of[letter] for letter in kept)
