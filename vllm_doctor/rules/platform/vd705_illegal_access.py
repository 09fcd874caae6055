"""VD705: a kernel read or wrote outside its memory: a defect, never a shortage."""

from vllm_doctor.records.finding import Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.gates.xid import APPLICATION, Xid, xids
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.kernel import other_kernel
from vllm_doctor.rules.remedies.layer import off
from vllm_doctor.rules.say import finding, upgrade

_IDS = (
    "illegal-access",
    "launch-failure",
    "misaligned",
    "cublas-execution",
    "gpu-page-fault",
    "hsa-exception",
)


def judge(case: Case) -> Outcome:
    """Did a kernel touch a wrong address?"""
    fault = named(case, *_IDS)
    told = [x for x in xids(case.kernel, case.run) if x.code in APPLICATION and x.ours]
    evidence = tuple(Evidence("kernel log", f"line {x.event.number}", x.event.text, x.event.at) for x in told[:2])
    if isinstance(fault, Unseen):
        return _alone(told[0], evidence) if told else Clear("no Xid of an application") if case.kernel else fault
    if isinstance(fault, NotHere):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        phase=Phase.GPU_FAULT if told else None,
        evidence=(*shown(case, fault, *_IDS), *evidence),
        changes=(
            *(off(case, fault) or other_kernel(case, fault)),
            upgrade(case, "its release notes say whether the newest release fixes this kernel"),
        ),
        refute="CUDA_LAUNCH_BLOCKING=1 shows another failure first, or the kernel log an Xid of the hardware",
    )


def _alone(first: Xid, evidence: tuple[Evidence, ...]) -> Finding:
    """The kernel's log alone: it names the code and perhaps the process, not the kernel that did it."""
    whose = f" of {first.process}" if first.process else ""
    return finding(
        RULE,
        title=f"Xid {first.code}{whose}: {first.meaning}; the service log of that minute says which",
        phase=Phase.GPU_FAULT,
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=evidence,
        refute="the process that the line names is not vLLM's, or it is from before the last start",
    )


RULE = rule("VD705", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.KERNEL}), judge=judge)
