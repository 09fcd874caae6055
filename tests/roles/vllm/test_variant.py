"""vllm_variant: auto, as the role asks for it."""

from typing import Any

import pytest

from tests.roles.vllm.plugins import load
from tests.roles.vllm.test_units import judged

choice = load("filter_plugins/vllm_variant.py").choice
LOCKS = ["0.31.0+cpu", "0.32.0+cpu", "0.32.0+cu130"]


def chosen(loaded: str | None, **values: Any) -> dict[str, str]:
    facts = {"gpus": ["2330"], "driver": {"loaded": loaded}}
    answer: dict[str, str] = choice({"vllm_version": "0.32.0", **values}, LOCKS, facts)
    return answer


def test_the_loaded_driver_decides_where_the_role_does_not_own_it() -> None:
    assert chosen("580.105.08") == {"variant": "cu130", "because": "CUDA 13.0 on 580.105.08"}


def test_the_wanted_driver_decides_where_it_does() -> None:
    wanted = {"nvidia_driver_enabled": True, "nvidia_driver_version": "595.71.05"}
    assert chosen("570.124.06", **wanted)["because"] == "CUDA 13.0 on 595.71.05"


@pytest.mark.parametrize(
    ("loaded", "values", "words"),
    [
        ("570.124.06", {}, ["cu130: vLLM 0.32.0 brings CUDA 13.0; driver 570.124.06", "580.65.06 or newer"]),
        (None, {}, ["no driver"]),
        ("580.105.08", {"vllm_version": "0.31.0"}, ["vLLM 0.31.0 has a lock for cpu"]),
    ],
)
def test_where_none_fits_the_sum_is_said(loaded: str | None, values: dict[str, Any], words: list[str]) -> None:
    answer = chosen(loaded, **values)
    assert "variant" not in answer
    assert all(word in " ".join(answer.values()) for word in words), answer


def test_a_host_that_is_said_to_have_no_gpu_gets_the_cpu_build() -> None:
    assert chosen(None, preflight_gpu_count=0)["variant"] == "cpu"


def test_before_the_host_is_asked_auto_only_needs_a_lock_of_the_release() -> None:
    assert judged(variant="auto")[1] == ""
    assert "0.30.0+auto" in judged(variant="auto", version="0.30.0")[1]
