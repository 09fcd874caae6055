"""VD314: an engine that slept does not get its memory back: something else has it."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.out_of_memory import exhausted, sums
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import finding, thing


def judge(case: Case) -> Outcome:
    """Did mapping the memory of a sleeping engine again fail?"""
    oom = exhausted(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    waking = "wake_up" in oom.fault.functions
    slept = oom.run.first("sleep-freed")
    mapped = "cumem-oom" in oom.fault.ids and oom.fault.startup_phase in {
        StartupPhase.CONFIG,
        StartupPhase.READY,
        StartupPhase.SERVING,
    }
    if not waking and not (mapped and slept is not None and slept.index < oom.fault.index):
        return Clear("the engine ran out of memory while it was awake")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.CONFIRMED if waking else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            lower_utilization(case, oom.torch, "the engine must fit beside the process that took the memory"),
            thing(
                ChangeKind.OS,
                "other-gpu-processes",
                Direction.STOP,
                "let the trainer free its memory first (empty its cache, offload), then wake the engine",
                command=maker_tool(case).holders,
            ),
        ),
        refute=f"{maker_tool(case).name} shows, before the wake-up, as much free memory as the sleep freed",
    )


RULE = rule("VD314", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
