"""The list of checks. The first twelve are those that a naive role lacks; the others ask for room and a fit."""

from collections.abc import Callable

from vllm_doctor.preflight.capacity import disk_space, host_memory, ports_free
from vllm_doctor.preflight.driver import (
    branch_alive,
    branch_supports_gpus,
    fabric_manager,
    flavour_legal,
    gpu_present,
    kernel_headers,
    one_repository,
    secure_boot_possible,
)
from vllm_doctor.preflight.existence import driver_released, vllm_released
from vllm_doctor.preflight.fit import model_fits
from vllm_doctor.preflight.judged import Checked, HostToJudge
from vllm_doctor.preflight.release import compute_capability, libc_and_python, wheel_runs_on_driver
from vllm_doctor.preflight.slices import slices_possible
from vllm_doctor.preflight.there import models_there

HostCheck = Callable[[HostToJudge], Checked]

CHECKS: tuple[HostCheck, ...] = (
    gpu_present,
    branch_supports_gpus,
    branch_alive,
    flavour_legal,
    secure_boot_possible,
    kernel_headers,
    one_repository,
    wheel_runs_on_driver,
    compute_capability,
    libc_and_python,
    fabric_manager,
    disk_space,
    host_memory,
    ports_free,
    models_there,
    model_fits,
    slices_possible,
    driver_released,
    vllm_released,
)

# What variables alone decide, for the GPUs that the inventory names.
OF_VARIABLES: tuple[HostCheck, ...] = (
    driver_released,
    vllm_released,
    branch_supports_gpus,
    branch_alive,
    flavour_legal,
    wheel_runs_on_driver,
    compute_capability,
    model_fits,
    slices_possible,
)


def judge(case: HostToJudge, checks: tuple[HostCheck, ...] = CHECKS) -> tuple[Checked, ...]:
    """All rows of one host, in the order of the checks."""
    return tuple(check(case) for check in checks)
