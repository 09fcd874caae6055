"""VD604: the host had no memory left for what was asked, before any GPU memory."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, set_flag, thing

_IDS = (
    "memory-error",
    "mmap-failed",
    "cannot-allocate",
    "compiler-killed",
    "cpu-allocator",
    "bad-alloc",
)


def judge(case: Case) -> Outcome:
    """Did the host refuse memory?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            environment(
                "MAX_JOBS",
                Direction.SET,
                "runs fewer compilers at once: by default one per core, each with a few GiB",
                to="2",
            )
            if "compiler-killed" in fault.ids
            else None,
            thing(
                ChangeKind.HARDWARE,
                "host-ram",
                Direction.RAISE,
                "every rank reads its part of the weights through host memory",
            ),
            set_flag(case, "cpu-offload-gb", 0, Direction.LOWER, "it takes this much host memory")
            if case.number("cpu-offload-gb")
            else None,
            set_flag(
                case, "swap-space", 0, Direction.LOWER, "it pins this many GiB per GPU; the V1 engine never uses it"
            )
            if case.number("swap-space")
            else None,
        ),
        refute="`free -g` and the unit's MemoryMax show room at that moment",
    )


RULE = rule("VD604", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
