"""VD708: a memory row waits for its replacement, or the card corrects many errors: a window to reset it is due."""

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.xid import card, xids
from vllm_doctor.rules.outcome import Clear, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

_CODES = frozenset({63, 92})


def judge(case: Case) -> Outcome:
    """Does the driver, or the kernel's log, tell of a row that is to be replaced?"""
    kernel, gpus = case.kernel, case.gpus
    if kernel is None and gpus is None:
        return Unseen(frozenset({Signal.KERNEL, Signal.GPUS}))
    waiting = tuple(g for g in gpus or () if g.remap_pending)
    told = tuple(x for x in xids(kernel) if x.code in _CODES)
    if gpus is not None and not waiting:
        told = tuple(x for x in told if x.code != 63)
    if not waiting and not told:
        return Clear("no memory row waits for its replacement")
    return finding(
        RULE,
        title=f"GPU {waiting[0].index}: a memory row waits for its replacement"
        if waiting
        else f"Xid {told[0].code} on {card(told[0].bus, gpus)}: {told[0].meaning}",
        severity=Severity.ADVICE,
        evidence=(
            *(Evidence("NVML", f"GPU {g.index}", "row remapping is pending") for g in waiting),
            *(Evidence("kernel log", f"line {x.event.number}", x.event.text, x.event.at) for x in told[:2]),
        ),
        changes=(
            thing(
                ChangeKind.HARDWARE,
                "gpu",
                Direction.REPAIR,
                "reset the GPU in the next maintenance window; running and new services go on until then",
                command="nvidia-smi --gpu-reset -i INDEX   # drained, with the index that the evidence names",
            ),
        ),
        refute="nvidia-smi -q -d ROW_REMAPPER shows Pending: No",
    )


RULE = rule("VD708", reads=frozenset({Signal.KERNEL, Signal.GPUS}), judge=judge)
