"""What the proof and the table of a change say, from what hosts said."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[3]
GOOD = {"outcome": "ok", "gpus": 2}
ABSENT = {"outcome": "not run", "why": "no release of vLLM is installed here yet"}
CARD = {"uuid": "GPU-1", "mig": False}
HOST = {"nvidia_driver_from": "580.105.08", "nvidia_driver_version": "580.65.06"}


@pytest.fixture(scope="module")
def filters() -> Any:
    spec = importlib.util.spec_from_file_location("nvidia_driver", REPO / "plugins" / "filter" / "nvidia_driver.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def proof(**changed: object) -> dict[str, object]:
    return {"bus": 2, "nvml": {"gpus": [CARD, CARD]}, "kernel": GOOD, "torch": ABSENT} | changed


@pytest.mark.parametrize(
    ("changed", "against"),
    [
        ({}, []),
        ({"nvml": {"error": 9}}, ["NVML: 9"]),
        ({"bus": 3}, ["NVML shows 2 of the 3 GPUs on the bus"]),
        ({"torch": {"outcome": "ok", "gpus": 1}}, ["torch: CUDA shows 1 GPUs, NVML 2"]),
        ({"kernel": {"outcome": "failed", "why": "cuInit: 802"}}, ["kernel: cuInit: 802"]),
        ({"nvml": {"gpus": [CARD, CARD | {"mig": True}]}, "kernel": {"outcome": "ok", "gpus": 1}}, []),
    ],
)
def test_what_speaks_against_the_gpus(filters: Any, changed: dict[str, object], against: list[str]) -> None:
    assert filters.unproven(proof(**changed)) == against


def test_what_did_not_run_is_said(filters: Any) -> None:
    told = "NVML: 2 of 2 GPUs; kernel: computed on 2; torch: not run: no release of vLLM is installed here yet"
    assert filters.proven(proof()) == told


@pytest.mark.parametrize(
    ("known", "driver", "state"),
    [
        ({}, "580.105.08", "not reached; serves"),
        ({"nvidia_driver_begun": True, "nvidia_driver_done": True}, "580.65.06", "changed; a GPU computes"),
        ({"nvidia_driver_begun": True}, "580.105.08 -> 580.65.06", "DOES NOT ANSWER ANY MORE"),
        (
            {"nvidia_driver_begun": True, "nvidia_driver_failure": "x", "nvidia_driver_serves_again": True},
            "580.105.08",
            "FAILED before a package was changed; serves again",
        ),
        (
            {"nvidia_driver_begun": True, "nvidia_driver_failure": "x", "nvidia_driver_touched": True},
            "580.105.08 -> 580.65.06",
            "FAILED after its services had drained; they are stopped",
        ),
    ],
)
def test_every_state_of_a_host_has_its_words(filters: Any, known: dict[str, object], driver: str, state: str) -> None:
    told = filters.turn(HOST | known)
    assert told["driver"] == driver
    assert told["state"].startswith(state)
