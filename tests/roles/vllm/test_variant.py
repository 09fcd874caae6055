"""vllm_variant: auto, as the role asks for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.roles.vllm.plugins import load
from tests.roles.vllm.test_units import judged

choice = load("plugins/filter/vllm_variant.py").choice
HEAD = "# made by a test\n# installs on: {machine}, glibc 2.31, Python 3.11 3.12 3.13\n"


@pytest.fixture
def chosen(tmp_path: Path) -> Callable[..., dict[str, str]]:
    for name in ("0.31.0+cpu-x86_64", "0.32.0+cpu-x86_64", "0.32.0+cu130-x86_64"):
        (tmp_path / f"{name}.lock").write_text(HEAD.format(machine="x86_64"))

    def ask(
        loaded: str | None, *, machine: str = "x86_64", driver_left_out: bool = False, **values: Any
    ) -> dict[str, str]:
        facts = {"gpus": ["2330"], "driver": {"loaded": loaded}, "machine": machine}
        wanted = {"vllm_version": "0.32.0", **values}
        answer: dict[str, str] = choice(wanted, str(tmp_path), facts, driver_left_out=driver_left_out)
        return answer

    return ask


Chosen = Callable[..., dict[str, str]]


def test_the_loaded_driver_decides_where_the_role_does_not_own_it(chosen: Chosen) -> None:
    assert chosen("580.105.08") == {"variant": "cu130", "because": "CUDA 13.0 on 580.105.08"}


def test_the_wanted_driver_decides_where_it_does(chosen: Chosen) -> None:
    wanted = {"nvidia_driver_enabled": True, "nvidia_driver_version": "595.71.05"}
    assert chosen("570.124.06", **wanted)["because"] == "CUDA 13.0 on 595.71.05"


def test_who_left_the_drivers_stage_out_is_not_told_to_enable_what_is_enabled(chosen: Chosen) -> None:
    answer = chosen(None, driver_left_out=True)
    assert answer["do"] == "the driver's stage comes first: site.yml without --tags, or --tags driver"
    assert chosen(None)["do"] == "set nvidia_driver_enabled: true"


@pytest.mark.parametrize(
    ("loaded", "values", "words"),
    [
        ("570.124.06", {}, ["cu130: vLLM 0.32.0 brings CUDA 13.0; driver 570.124.06", "580.65.06 or newer"]),
        (None, {}, ["no driver"]),
        (
            "580.105.08",
            {"vllm_version": "0.31.0"},
            ["vLLM 0.31.0 on x86_64: of its hash locks there is 0.31.0+cpu-x86_64", "set vllm_version: 0.32.0"],
        ),
        ("580.105.08", {"machine": "aarch64"}, ["vLLM 0.32.0 on aarch64", "0.32.0+cu130-x86_64", "make the lock"]),
    ],
)
def test_where_none_fits_the_sum_is_said(
    chosen: Chosen, loaded: str | None, values: dict[str, Any], words: list[str]
) -> None:
    answer = chosen(loaded, **values)
    assert "variant" not in answer
    assert all(word in " ".join(answer.values()) for word in words), answer


def test_a_host_that_is_said_to_have_no_gpu_gets_the_cpu_build(chosen: Chosen) -> None:
    assert chosen(None, preflight_gpu_count=0)["variant"] == "cpu"


def test_before_the_host_is_asked_auto_only_needs_a_lock_of_the_release() -> None:
    assert judged(variant="auto")[1] == ""
    assert "0.30.0+auto" in judged(variant="auto", version="0.30.0")[1]
