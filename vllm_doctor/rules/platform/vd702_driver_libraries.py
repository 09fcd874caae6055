"""VD702: the CUDA libraries of user space and the loaded driver are of different releases."""

import shlex

from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.cuda_libraries import CUDA_LIBRARIES
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.driver_reload import reload_driver
from vllm_doctor.rules.remedies.unfit_package import stands_beside
from vllm_doctor.rules.say import environment, finding, thing

_IDS = (
    "cuda-803",
    "nvml-mismatch",
    "nvml-rm-mismatch",
    "cudart-missing",
)


def judge(case: Case) -> Outcome:
    """Do driver and libraries disagree?"""
    fault = named(case, *_IDS)
    apart = _apart(case)
    if isinstance(fault, NotHere | Unseen):
        if apart is None:
            seen = case.driver is not None or case.kernel is not None
            return (
                Clear("the driver and its libraries have the same version")
                if isinstance(fault, Unseen) and seen
                else fault
            )
        return _before_restart(case, apart)
    library = fault.fields("cudart-missing").get("library")
    if library is not None and library.startswith(("libcuda.so", "libnvidia-")):
        return Clear(f"{library} belongs to the driver, and is missing itself")
    if library is not None and not library.startswith(CUDA_LIBRARIES):
        return Clear(f"{library} is not a CUDA library")
    other = stands_beside(fault) if library is not None else None
    return finding(
        RULE,
        title=f"{library} is missing: {other or 'vLLM or torch'} was built for another CUDA" if library else RULE.title,
        severity=severity(case, fault),
        evidence=(*shown(case, fault, *_IDS), *(apart or ())),
        changes=(
            (_for_this_torch(other, library) if other is not None else _one_cuda(case, library)) if library else None,
            environment(
                "LD_LIBRARY_PATH",
                Direction.CHANGE,
                ("put the driver's libcuda before the compat folder of the image, whose CUDA is older than the driver"),
                command="ldconfig -p | grep libcuda.so.1   # its folder first in LD_LIBRARY_PATH, without …/compat",
            )
            if "cuda-803" in fault.ids
            else None,
            reload_driver() if library is None else None,
        ),
        refute="/proc/driver/nvidia/version shows the version of the libraries",
    )


def _one_cuda(case: Case, library: str) -> Change:
    """The environment itself is of two releases of CUDA."""
    return thing(
        ChangeKind.PACKAGE,
        "wheel",
        Direction.CHANGE,
        f"install torch and vLLM for the same CUDA major version: {library} belongs to another",
        to=f"vllm=={case.version}" if case.version is not None else None,
        command=f"python3 -m venv /opt/vllm-new && /opt/vllm-new/bin/pip install vllm=={case.version or 'VERSION'}",
    )


def _for_this_torch(package: str, library: str) -> Change:
    """A package beside them is; many name their builds for another CUDA otherwise."""
    return thing(
        ChangeKind.PACKAGE,
        package,
        Direction.REPAIR,
        f"its build for the CUDA of torch, often under another name (-cu13, -cuda13): {library} is of another",
        command=f"python -c 'import torch; print(torch.version.cuda)'; pip show {shlex.quote(package)}",
    )


def _apart(case: Case) -> tuple[Evidence, ...] | None:
    """Where the loaded module and the library beside it are of different releases, by /proc or by the kernel."""
    driver, kernel = case.driver, case.kernel
    if driver is not None and driver.module and driver.library and driver.module != driver.library:
        text = f"loaded module {driver.module}, library {driver.library}"
        return (Evidence("driver", "/proc/driver/nvidia/version", text),)
    told = [e for e in kernel.events if says(e.text, "driver-mismatch-line")] if kernel is not None else []
    known = driver is not None and driver.module is not None and driver.module == driver.library
    run = case.run
    hit = run.last("api-mismatch") if run is not None else None
    if known or (not told and hit is None):
        return None
    if hit is not None and not told:
        return (case.line(hit.index),)
    return (Evidence("kernel log", f"line {told[-1].number}", told[-1].text, told[-1].at),)


def _before_restart(case: Case, apart: tuple[Evidence, ...]) -> Finding:
    """What runs keeps running; whatever starts now fails."""
    run = case.run
    serves = run is not None and run.served() and run.root is None
    return finding(
        RULE,
        title=f"{RULE.title}: {'a restart of the service will fail' if serves else 'nothing can start'}",
        severity=Severity.DEGRADED if serves else Severity.BLOCKS_START,
        evidence=apart,
        changes=(reload_driver(),),
        refute="/proc/driver/nvidia/version shows the version of the libraries",
    )


RULE = rule("VD702", reads=frozenset({Signal.LOG, Signal.DRIVER, Signal.KERNEL, Signal.VERSION}), judge=judge)
