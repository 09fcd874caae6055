"""VD515: the loader or the linker does not find the driver library."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import environment, finding, thing

_IDS = (
    "linker-cuda",
    "libcuda-assert",
    "cudart-missing",
)


def judge(case: Case) -> Outcome:
    """Was libcuda not found?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    library = fault.fields("cudart-missing").get("library", "libcuda.so")
    if not library.startswith("libcuda."):
        return Clear(f"{library} is a library of the toolkit")
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "libcuda-symlink",
                Direction.ADD,
                "libcuda.so beside the driver's libcuda.so.1 (the -dev link), then ldconfig; in a "
                "container the toolkit mounts it",
            ),
            environment("LIBRARY_PATH", Direction.SET, "or the folder that holds it, for the linker"),
        ),
        refute="`ldconfig -p | grep libcuda.so` shows libcuda.so and libcuda.so.1",
    )


RULE = Rule(
    code="VD515",
    slug="libcuda-missing",
    title="The driver library libcuda is not found",
    node="platform",
    cause=Cause.LIBCUDA_NOT_FOUND,
    phase=Phase.NOT_MEMORY,
    also=frozenset({Phase.DRIVER_CUDA_MISMATCH}),
    reads=frozenset({Signal.LOG}),
    judge=judge,
    rank=2,
)
