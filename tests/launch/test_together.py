"""Options that vLLM takes one by one and refuses together are refused wherever a launch is judged."""

import pytest

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import parse_launch


def refused(line: str, version: tuple[int, int] = (0, 33)) -> list[tuple[str, str, str]]:
    told = parse_launch(["vllm", "serve", "m", *line.split()], Version(version)).refusals
    return [(one.flag, one.found, one.to) for one in told]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--max-num-batched-tokens 10 --max-num-seqs 256", ("--max-num-batched-tokens", "10", "256")),
        (
            "--no-enable-chunked-prefill --max-model-len 8192 --max-num-batched-tokens 2048",
            ("--max-num-batched-tokens", "2048", "8192"),
        ),
        ("--max-num-batched-tokens 1k --max-num-seqs 2000", ("--max-num-batched-tokens", "1000", "2000")),
        ("--enable-auto-tool-choice", ("--tool-call-parser", "not given", "")),
        ("--data-parallel-size 2 --data-parallel-rank 2", ("--data-parallel-rank", "2", "1")),
    ],
)
def test_two_that_do_not_go_together(line: str, expected: tuple[str, str, str]) -> None:
    assert refused(line) == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "--max-num-batched-tokens 256 --max-num-seqs 256",
        "--max-num-batched-tokens 10",
        "--max-model-len 8192 --max-num-batched-tokens 2048",
        "--no-enable-chunked-prefill --max-model-len 2048 --max-num-batched-tokens 2048",
        "--enable-auto-tool-choice --tool-call-parser hermes",
        "--data-parallel-size 2 --data-parallel-rank 1",
        "--max-num-batched-tokens 8k --max-num-seqs 256",
    ],
)
def test_what_goes_together_or_cannot_be_told_is_taken(line: str) -> None:
    assert refused(line) == []


def test_a_number_without_bounds_is_refused_by_itself_alone() -> None:
    assert [flag for flag, _, _ in refused("--max-num-batched-tokens 1e999 --max-num-seqs 8")] == [
        "--max-num-batched-tokens"
    ]


def test_a_release_that_was_not_read_for_it_refuses_nothing() -> None:
    assert refused("--data-parallel-size 2 --data-parallel-rank 5", (0, 32)) == []
    assert parse_launch(["vllm", "serve", "m", "--enable-auto-tool-choice"], None).refusals == ()
