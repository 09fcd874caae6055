"""VD705: a kernel read or wrote outside its memory: a defect, never a shortage."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.gates.rocm import on_rocm
from vllm_doctor.rules.gates.xid import APPLICATION, Xid, xids
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.layer import off
from vllm_doctor.rules.remedies.other_kernel import other_kernel
from vllm_doctor.rules.say import finding, set_flag, thing, upgrade

_IDS = (
    "illegal-access",
    "launch-failure",
    "misaligned",
    "cublas-execution",
    "gpu-page-fault",
    "hsa-exception",
)
# AMD's runtime says that a kernel stopped, at an address, an instruction or an assertion; CUDA's name for it is of no
# address either.
_STOPPED = frozenset({"hsa-exception", "launch-failure"})

# What the engine says of its sleep, and what its server answers to who asks for it.
_ASLEEP, _AWAKE = ("engine-asleep", "asked-to-sleep"), ("engine-awake", "asked-to-wake")


def judge(case: Case) -> Outcome:
    """Did a kernel touch a wrong address?"""
    fault = named(case, *_IDS)
    told = [x for x in xids(case.kernel, case.run) if x.code in APPLICATION and x.ours]
    evidence = tuple(Evidence("kernel log", f"line {x.event.number}", x.event.text, x.event.at) for x in told[:2])
    if isinstance(fault, Unseen):
        return _alone(told[0], evidence) if told else Clear("no Xid of an application") if case.kernel else fault
    if isinstance(fault, NotHere):
        return fault
    asleep = _asleep(case, fault)
    if asleep is not None:
        return _of_a_sleeper(case, fault, asleep)
    stopped = fault.ids & frozenset(_IDS) <= _STOPPED
    return finding(
        RULE,
        title="A kernel stopped at a hardware exception of the GPU" if stopped else "",
        severity=severity(case, fault),
        # CUDA's words for any exception on the device (cudaErrorLaunchFailure): an address most often, or the card
        confidence=Confidence.LIKELY if stopped and not told else Confidence.CONFIRMED,
        phase=Phase.GPU_FAULT if told else None,
        evidence=(*shown(case, fault, *_IDS), *evidence),
        changes=(
            *(off(case, fault) or other_kernel(case, fault)),
            _without_drafts(case),
            upgrade(case, "its release notes say whether the newest release fixes this kernel"),
        ),
        refute=f"{_serial(case)} shows another failure first, or the kernel log a fault of the hardware",
    )


def _without_drafts(case: Case) -> Change | None:
    """Drafts make longer steps of kernels that a plain server does not run."""
    if case.effective("speculative-config") is None:
        return None
    why = "drafts run kernels that a plain server does not run; a start without drafts shows where the defect is"
    return set_flag(case, "speculative-config", None, Direction.REMOVE, why)


def _serial(case: Case) -> str:
    return "AMD_SERIALIZE_KERNEL=3" if on_rocm(case) else "CUDA_LAUNCH_BLOCKING=1"


def _asleep(case: Case, fault: Fault) -> int | None:
    """The line in which the engine fell asleep, where nothing woke it before the fault; None otherwise."""
    before = range(fault.index - 1, -1, -1) if case.run is not None else ()
    lines = case.run.lines if case.run is not None else ()
    told = (i for i in before if says(lines[i].text, *_ASLEEP, *_AWAKE))
    last = next(told, None)
    return last if last is not None and says(lines[last].text, *_ASLEEP) else None


def _of_a_sleeper(case: Case, fault: Fault, asleep: int) -> Finding:
    """Sleep mode unmaps the weights and the KV cache: whatever runs then reads addresses that are gone."""
    why = (
        "sleep mode gives the weights' and the KV cache's memory back: nothing can be computed before the engine wakes"
    )
    return finding(
        RULE,
        title="A request reached an engine that sleeps",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(case.line(asleep), *shown(case, fault, *_IDS)),
        changes=(
            thing(ChangeKind.OS, "wake-up", Direction.ADD, why, command="curl -X POST http://HOST:PORT/wake_up"),
            upgrade(case, "later releases hold back requests while the engine sleeps"),
        ),
        refute="the engine was woken between the two lines, by another way than /wake_up",
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


RULE = rule(
    "VD705", reads=frozenset({Signal.GPUS, Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.KERNEL}), judge=judge
)
