"""A way round of a known issue is taken by each release that the issue is met in (tools/releases/accepted.py)."""

import re

import pytest
from msgspec.structs import replace
from releases.accepted import refused

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue, issues


@pytest.mark.parametrize("issue", issues(), ids=lambda issue: issue.id)
def test_each_release_of_its_span_takes_the_ways_round_of_an_entry(issue: Issue) -> None:
    assert refused(issue) == []


def of(*answers: Answer, since: str | None = None, fixed: str | None = None) -> list[str]:
    return [
        re.split(", but | or ", told)[0]
        for told in refused(Issue("id", "", "", "", "", since=since, fixed=fixed, answers=answers))
    ]


V1 = Answer("env", options=("VLLM_USE_V1",), to="0")
BACKEND = Answer("flag", options=("attention-backend",), to="TRITON_ATTN")
EAGER = Answer("flag", options=("enforce-eager",), to="true")


@pytest.mark.parametrize(
    ("answers", "since", "fixed", "told"),
    [
        ((V1,), "0.8.0", "0.11.0", []),
        ((V1,), "0.10.0", "0.13.0", ["0.11.1 to 0.12.0: no VLLM_USE_V1"]),
        ((V1, BACKEND), "0.10.0", None, ["0.11.1 to 0.12.0: no VLLM_USE_V1", "0.11.1 to 0.12.0: no attention-backend"]),
        ((BACKEND,), None, None, []),
        ((BACKEND,), "0.12.0", None, ["0.12.0: no attention-backend"]),
        ((EAGER, BACKEND), "0.11.1", None, []),
        ((EAGER, replace(BACKEND, since="0.11.1")), "0.10.2", None, ["0.11.1 to 0.12.0: no attention-backend"]),
        ((EAGER, replace(V1, before="0.13.0")), "0.10.2", None, ["0.11.1 to 0.12.0: no VLLM_USE_V1"]),
        (
            (Answer("flag", options=("attention-backend",), to="XFORMERS"),),
            "0.32.0",
            None,
            ["0.32.0 to 0.33.0: attention-backend does not take XFORMERS"],
        ),
        (
            (Answer("flag", options=("kv-cache-dtype",), to="bfloat16"),),
            "0.8.0",
            "0.8.5",
            ["0.8.0 to 0.8.4: kv-cache-dtype does not take bfloat16"],
        ),
        (
            (Answer("env", options=("VLLM_NVFP4_GEMM_BACKEND",), to="marlin"),),
            "0.14.0",
            "0.15.0",
            ["0.14.0 to 0.14.1: VLLM_NVFP4_GEMM_BACKEND does not take marlin"],
        ),
        (
            (Answer("flag", options=("load-format",), to="mistral"),),
            "0.5.0",
            "0.5.4",
            ["0.5.0 to 0.5.3: load-format does not take mistral"],
        ),
        (
            (Answer("flag", options=("compilation-config",), to='{"cudagraph_modes": 1}'),),
            "0.33.0",
            None,
            ["0.33.0: compilation-config cudagraph_modes: a key, needed a key that vLLM 0.33.0 has: cudagraph_mode"],
        ),
        ((Answer("env", options=("NUMBA_CACHE_DIR",), to="/tmp/numba"),), None, None, []),
    ],
)
def test_what_a_release_would_refuse_is_told(
    answers: tuple[Answer, ...], since: str | None, fixed: str | None, told: list[str]
) -> None:
    assert of(*answers, since=since, fixed=fixed) == told
