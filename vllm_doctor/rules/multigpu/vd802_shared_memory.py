"""VD802: the shared memory in which ranks exchange data is too small or full."""

import math

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, says
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.gates.shared_memory import SAID, of_mapped_weights, said_by_nccl
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import SHM, finding, thing

_SIGBUS = {"signal": "7"}
_IDS = (
    "shm-space",
    "shm-raylet",
    *SAID,
    "shm-bus",
    "bus-error",
    "sigbus",
)
# A bus error is what a page of tmpfs that cannot be had ends in; a model file on a disk that went away does the same.
_LIKELY = frozenset({"bus-error", "sigbus"})
# GiB that are enough where nobody says how much was asked for.
_FEW = 4


def judge(case: Case) -> Outcome:
    """Was there no room in /dev/shm?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere) and case.root is not None and _segment_refused(case.root):
        fault = case.root
    said = said_by_nccl(case)
    if isinstance(fault, NotHere) and said is not None and case.root is not None:
        fault = case.root
    bus = _bus(case) if isinstance(fault, NotHere) else None
    if isinstance(fault, NotHere | Unseen) and bus is None:
        return fault
    if isinstance(fault, Fault) and of_mapped_weights(case, fault):
        return Clear("the process read a weights' file, which VD523 names")
    evidence = shown(case, fault, *_IDS) if isinstance(fault, Fault) else (case.line(bus or 0),)
    if said is not None and all(case.line(said.index) != one for one in evidence):
        evidence = (case.line(said.index), *evidence)
    asked = _asked(fault) if isinstance(fault, Fault) else {}
    return finding(
        RULE,
        title=f"/dev/shm has {asked['free']} MiB free, and {asked['asked']} MiB are needed" if asked else RULE.title,
        severity=severity(case, fault) if isinstance(fault, Fault) else Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED if isinstance(fault, Fault) and not fault.ids <= _LIKELY else Confidence.LIKELY,
        evidence=(*evidence, *_free(case)),
        changes=(
            thing(
                ChangeKind.OS,
                "shm volume",
                Direction.RAISE,
                f"mount a tmpfs of {_size(asked)} (--shm-size, --ipc=host, or an emptyDir of medium Memory)",
                to=_needed(asked),
                command=SHM if _needed(asked) is None else SHM.replace("8g", f"{_needed(asked)}"),
            ),
            thing(
                ChangeKind.OS,
                "/dev/shm",
                Direction.REPAIR,
                "remove segments that ended processes left",
                command="ls -l /dev/shm && fuser -v /dev/shm/*   # then rm what no process has open",
            ),
        ),
        refute="`df /dev/shm` shows room at the moment of the failure",
    )


def _asked(fault: Fault) -> dict[str, str]:
    """What was asked for and what was free, in MiB."""
    fields = fault.fields("shm-raylet")
    if "asked" in fields:
        return {name: str(int(fields[name]) >> 20) for name in ("asked", "free")}
    return fault.fields("shm-space")


def _needed(asked: dict[str, str]) -> str | None:
    """A quarter more than one segment that was refused, where that is more than a few GiB."""
    whole = math.ceil(int(asked.get("asked") or 0) / 1024 * 1.25)
    return f"{whole}g" if whole > _FEW else None


def _size(asked: dict[str, str]) -> str:
    needed = _needed(asked)
    return "a few GiB" if needed is None else f"{needed.removesuffix('g')} GiB or more"


def _segment_refused(fault: Fault) -> bool:
    """Did a call that makes a segment in /dev/shm find no page for it? ENOSPC where it is made, EFAULT where its pages
    are asked for at once (madvise(2), MADV_POPULATE_WRITE)."""
    if fault.crash is None or not says(fault.crash.root.message, "no-page"):
        return False
    return any(says(file, "call-of-shared-segment") for file in fault.files[-3:])


def _bus(case: Case) -> int | None:
    """Where a process died of SIGBUS (-7) although nothing failed: what tmpfs does when a page cannot be had."""
    run = case.run
    if run is None or run.root is not None:
        return None
    died = (h.index for h in run.deaths if any(_SIGBUS in each("exit-signal", v) for v in h.fields.values()))
    return next((i for i in died if run.stopped is None or i < run.stopped), None)


def _free(case: Case) -> tuple[Evidence, ...]:
    """What /dev/shm holds now."""
    machine = case.machine
    if machine is None or machine.shm_total is None or machine.shm_free is None:
        return ()
    text = f"{machine.shm_free / GIB:.2f} GiB free of {machine.shm_total / GIB:.2f}"
    return (Evidence("/dev/shm", "statvfs", text),)


RULE = rule("VD802", reads=frozenset({Signal.LOG, Signal.MACHINE}), judge=judge)
