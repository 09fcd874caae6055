"""The asserts that a naive role lacks, one row each: a case that fires and one that passes.

A check without a row here, or a row without either case, fails.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from tests.preflight.test_checks import H100, HOST, INTENT, NVIDIA_SOURCE, SWITCH, V100
from vllm_doctor.knowledge.compat import table
from vllm_doctor.preflight import capacity, driver, release
from vllm_doctor.preflight.checks import CHECKS
from vllm_doctor.preflight.existence import driver_released, vllm_released
from vllm_doctor.preflight.fit import model_fits
from vllm_doctor.preflight.judged import Checked, Disk, Headers, HostToJudge, Installed, Intent, Result
from vllm_doctor.preflight.slices import slices_possible
from vllm_doctor.preflight.there import models_there

Given = tuple[Intent, dict[str, object]]
TODAY = date(2026, 11, 21)
DEBIANS = (Installed("libnvidia-ml1", "535.261.03-1", "distribution"),)
MISSING = (("6.1.0-40-amd64", Headers.INSTALLED), ("6.1.0-41-amd64", Headers.MISSING))

# assert of the list: its check, a case that fires, a case that passes
TWELVE: dict[int, tuple[Callable[[HostToJudge], Checked], Given, Given]] = {
    1: (driver.gpu_present, (INTENT, {"gpus": ()}), (INTENT, {})),
    2: (
        driver.branch_supports_gpus,
        (replace(INTENT, driver_version="595.71.05"), {"gpus": (V100,)}),
        (INTENT, {"gpus": (V100,)}),
    ),
    3: (
        driver.branch_alive,
        (replace(INTENT, driver_version="535.261.03", end_of_life="fail"), {}),
        (replace(INTENT, end_of_life="fail"), {}),
    ),
    4: (
        driver.flavour_legal,
        (replace(INTENT, flavour="open"), {"gpus": (V100,)}),
        (replace(INTENT, flavour="open"), {"gpus": (H100,)}),
    ),
    5: (
        driver.secure_boot_possible,
        (INTENT, {"secure_boot": True, "mok_enrolled": False}),
        (INTENT, {"secure_boot": True, "mok_enrolled": True}),
    ),
    6: (driver.kernel_headers, (INTENT, {"headers": MISSING}), (INTENT, {})),
    7: (driver.one_repository, (INTENT, {"packages": DEBIANS}), (INTENT, {"repositories": (NVIDIA_SOURCE,)})),
    8: (release.wheel_runs_on_driver, (replace(INTENT, driver_version="570.124.06"), {}), (INTENT, {})),
    9: (
        release.compute_capability,
        (replace(INTENT, vllm_version="0.20.0"), {"gpus": (V100,)}),
        (replace(INTENT, vllm_version="0.19.1"), {"gpus": (V100,)}),
    ),
    10: (release.libc_and_python, (replace(INTENT, python="3.10"), {}), (INTENT, {})),
    11: (
        driver.fabric_manager,
        (INTENT, {"switches": (SWITCH,), "fabric_candidates": ("590.48.01-1",)}),
        (INTENT, {"switches": (SWITCH,), "fabric_candidates": ("580.105.08-1",)}),
    ),
    12: (
        capacity.disk_space,
        (INTENT, {"disk": (Disk("/opt", 20.0, "a"), Disk("/var/lib", 200.0, "b"))}),
        (INTENT, {}),
    ),
}
# The checks beyond the twelve have their cases in test_checks, test_fit, test_there and test_existence.
BEYOND = (
    capacity.host_memory,
    capacity.ports_free,
    models_there,
    model_fits,
    slices_possible,
    driver_released,
    vllm_released,
)


def judged(check: Callable[[HostToJudge], Checked], given: Given) -> Checked:
    """One check on the sound host with this case's differences."""
    intent, differences = given
    return check(HostToJudge(intent, replace(HOST, **differences), table(), TODAY))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", TWELVE)
def test_it_fires_and_says_what_was_found_what_is_needed_and_what_to_do(number: int) -> None:
    check, fires, _ = TWELVE[number]
    row = judged(check, fires)
    assert row.verdict is Result.FAIL
    assert all((row.found, row.needed, row.action))


@pytest.mark.parametrize("number", TWELVE)
def test_it_passes(number: int) -> None:
    check, _, passes = TWELVE[number]
    assert judged(check, passes).verdict is Result.OK


def test_every_check_has_a_row() -> None:
    assert {check for check, _, _ in TWELVE.values()} | set(BEYOND) == set(CHECKS)
    assert sorted(TWELVE) == list(range(1, 13))


@pytest.mark.parametrize("number", TWELVE)
def test_the_check_says_which_assert_it_is(number: int) -> None:
    check, _, _ = TWELVE[number]
    assert re.match(rf"{number}: ", check.__doc__ or "")
