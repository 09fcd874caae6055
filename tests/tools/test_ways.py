"""A way round of a known issue is given only where somebody has checked that it helps."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from releases.compared import Compared
from releases.reaching import reaching
from releases.ways import Way, mistimed, unchecked, way_of, ways

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue, Proof, issues
from vllm_doctor.records.verdict import Direction

CACHE = Answer("flag", Direction.SET, options=("enable-prefix-caching",), to="false")
SYMM = Answer("env", Direction.SET, options=("VLLM_USE_NCCL_SYMM_MEM",), to="0")
ROW = Way("id", "flag set enable-prefix-caching to false", "0.20.0-0.21.0", read="no prefix is cached")
PLACE = Compared(where="vllm/old.py:take")


def issue(*answers: Answer, calls: tuple[str, ...] = (), proof: tuple[Proof, ...] = ()) -> Issue:
    named = ("id", "", "", "", "")
    return Issue(*named, calls=calls, answers=answers, proof=proof, since="0.20.0", fixed="0.21.0")


def test_no_way_round_is_given_that_nobody_has_checked() -> None:
    assert list(unchecked(issues(), ways())) == []


def test_no_way_round_is_given_before_the_release_that_its_sentence_begins_with() -> None:
    assert [told for one in issues() for told in mistimed(one)] == []


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (ROW, []),
        (
            replace(ROW, read=""),
            [f"id: {ROW.way}: nobody has checked it in 0.20.0-0.21.0"],
        ),
        (replace(ROW, read="", shown="take reads it"), []),
        (
            replace(ROW, releases="0.20.0-"),
            [
                f"id: {ROW.way}: nobody has checked it in 0.20.0-0.21.0",
                f"id: {ROW.way}: no entry has it in 0.20.0-",
            ],
        ),
    ],
)
def test_a_way_is_checked_for_the_releases_that_it_was_checked_in(row: Way, told: list[str]) -> None:
    assert list(unchecked([issue(CACHE)], [row])) == told


def test_another_value_is_another_way() -> None:
    on = msgspec.structs.replace(CACHE, to="true")
    assert way_of(issue(on), on).way != way_of(issue(CACHE), CACHE).way
    later = msgspec.structs.replace(CACHE, since="0.20.1")
    assert way_of(issue(later), later).way == "flag set enable-prefix-caching to false since 0.20.1"


@pytest.mark.parametrize(
    ("answer", "text", "shown"),
    [
        (SYMM, "def take():\n    return envs.VLLM_USE_NCCL_SYMM_MEM\n", {0: "take reads it"}),
        (SYMM, "def take():\n    return 1  # VLLM_USE_NCCL_SYMM_MEM\n", {}),
        (SYMM, "def take():\n    return 1\n\ndef other():\n    return envs.VLLM_USE_NCCL_SYMM_MEM\n", {}),
        (CACHE, "def take(config):\n    if config.enable_prefix_caching:\n        return 7\n", {0: "take reads it"}),
    ],
)
def test_the_function_that_fails_reads_what_is_changed(
    answer: Answer, text: str, shown: dict[int, str], tmp_path: Path
) -> None:
    for release in ("0.20.0", "0.20.1", "0.20.2"):
        (tmp_path / release / "vllm").mkdir(parents=True)
        (tmp_path / release / "vllm/old.py").write_text(text, encoding="utf-8")
    codes = {release: tmp_path / release for release in ("0.20.0", "0.20.1", "0.20.2")}
    assert reaching(issue(answer), PLACE, codes) == shown
    (tmp_path / "0.20.1/vllm/old.py").write_text("def take():\n    return 1\n", encoding="utf-8")
    assert reaching(issue(answer), PLACE, codes) == {}


def test_a_drafter_runs_only_where_the_launch_asks_for_drafts() -> None:
    away = Answer("flag", Direction.REMOVE, options=("speculative-config",))
    assert reaching(issue(away, calls=(r"spec_decode/eagle\.py:",)), Compared(), {}) == {
        0: "what fails runs with it alone"
    }
    assert reaching(issue(away, calls=(r"models/llama\.py:",)), Compared(), {}) == {}


def test_a_package_that_has_the_mend_is_taken_where_the_release_asks_for_no_other() -> None:
    proof = (Proof(package="transformers", last="5.0.0", first="5.6.0", file="a.py", came="b"),)
    new = Answer("package", Direction.UPGRADE, options=("transformers",), to="5.6.0")
    assert reaching(issue(new, proof=proof), Compared(), {}) == {0: "transformers 5.6.0 has the mend"}
    assert reaching(issue(new), Compared(), {}) == {}
    old = msgspec.structs.replace(new, to="5.5.4")
    assert reaching(issue(old, proof=proof), Compared(), {}) == {}


def test_a_row_is_a_line_and_says_one_of_the_two() -> None:
    rows = json.loads((Path(__file__).parents[2] / "tools/releases/ways.json").read_text(encoding="utf-8"))
    assert all(set(row) <= {"id", "way", "releases", "shown", "read"} for row in rows)
