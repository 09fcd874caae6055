"""A launch with a way round of a known issue starts with some kind of model, in each release that the issue is met in
(tools/releases/launched.py)."""

import pytest
from releases.launched import ends_the_start, for_some_models

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue, issues
from vllm_doctor.records.verdict import Direction


@pytest.mark.parametrize("issue", issues(), ids=lambda issue: issue.id)
def test_no_way_round_of_an_entry_ends_the_start_of_every_kind_of_model(issue: Issue) -> None:
    assert ends_the_start(issue) == []


def of(*answers: Answer, since: str | None, fixed: str | None = None) -> Issue:
    return Issue("id", "", "", "", "", since=since, fixed=fixed, answers=answers)


NAMED = Answer("flag", options=("kv-cache-dtype",), to="bfloat16", direction=Direction.SET)
EAGER = Answer("flag", options=("enforce-eager",), to="true", direction=Direction.SET)
TRITON = Answer("flag", options=("attention-backend",), to="TRITON_ATTN")
FORMAT = Answer("flag", options=("load-format",), to="bitsandbytes")
METHOD = Answer("flag", options=("quantization",), to="bitsandbytes")


@pytest.mark.parametrize(
    ("answers", "since", "fixed", "told"),
    [
        (
            (NAMED,),
            "0.14.0",
            "0.16.0",
            ["0.14.0: kv-cache-dtype bfloat16: --kv-cache-dtype: auto: no kernel of 0.14.0"],
        ),
        ((NAMED,), "0.15.0", "0.16.0", []),
        ((NAMED,), None, "0.16.0", ["0.11.1: kv-cache-dtype bfloat16: --kv-cache-dtype: auto: no kernel of 0.11.1"]),
        ((NAMED, EAGER), "0.14.0", "0.16.0", []),
        ((FORMAT, METHOD), "0.7.2", "0.7.3", []),
        ((FORMAT,), "0.7.2", "0.7.3", ["0.7.2: load-format bitsandbytes: --load-format: --quantization bitsandbytes"]),
        ((TRITON,), "0.33.0", None, []),
        ((Answer("flag", options=("kv-cache-dtype",), direction=Direction.REMOVE, to="x"),), "0.14.0", "0.15.0", []),
    ],
)
def test_a_way_round_that_no_kind_of_model_starts_with_is_told(
    answers: tuple[Answer, ...], since: str | None, fixed: str | None, told: list[str]
) -> None:
    found = ends_the_start(of(*answers, since=since, fixed=fixed))
    assert len(found) == len(told)
    assert all(one.startswith(start) for one, start in zip(found, told, strict=True))


def test_a_way_round_that_some_kinds_of_models_do_not_start_with_is_told_apart() -> None:
    """Latent attention has backends of its own (v1/attention/backends/mla)."""
    told = "0.32.0: attention-backend TRITON_ATTN: --attention-backend: one of latent attention (MLA)"
    assert for_some_models(of(TRITON, since="0.32.0")) == [f"{told}; so for latent attention"]
    assert for_some_models(of(EAGER, since="0.32.0")) == []
