"""VD520: a way that vLLM takes by default cannot be taken on this machine; there is another one."""

from vllm_doctor.knowledge import versions
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.kernel import other_kernel
from vllm_doctor.rules.say import environment, finding, set_flag, upgrade

_IDS = (
    "uva-missing",
    "capture-refused",
    "kernel-arguments",
)


def judge(case: Case) -> Outcome:
    """Did a way fail for which there is another one?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        title=_title(fault),
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(*_ways(case, fault), upgrade(case, "newer releases have other defaults")),
        refute="the same step fails without this default as well",
    )


def _title(fault: Fault) -> str:
    if "uva-missing" in fault.ids:
        return "The V2 model runner needs host memory that the GPU can address; this machine (WSL?) has none"
    if "capture-refused" in fault.ids:
        return "CUDA refuses an operation while a graph is captured"
    kernel, why = (fault.fields("kernel-arguments")[k] for k in ("kernel", "why"))
    return f"The kernel {kernel} cannot be launched on this GPU: {why}"


def _ways(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    if "uva-missing" in fault.ids:
        variable = versions.env("VLLM_USE_V2_MODEL_RUNNER", case.version) if case.version is not None else None
        if variable is not None and not variable.exists:
            return ()
        why = "the V1 model runner copies through ordinary memory if pages cannot be pinned"
        return (environment("VLLM_USE_V2_MODEL_RUNNER", Direction.SET, why, to="0"),)
    if "capture-refused" in fault.ids:
        why = "starts without CUDA graphs (slower); the operation is allowed outside a capture"
        return (set_flag(case, "enforce-eager", True, Direction.ADD, why),)
    return other_kernel(case, fault)


RULE = rule("VD520", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
