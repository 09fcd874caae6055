"""VD102: a little less is free at start than the fraction asks for: the fraction is too high for this card."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.free_memory import Shortage, shortage
from vllm_doctor.rules.gates.unified import PAGES_OF_FILES, shares_memory
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.utilization import pass_free_memory_check
from vllm_doctor.rules.say import finding, gib


def judge(case: Case) -> Outcome:
    """Is the gap so small that a slightly lower fraction passes?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    short = shortage(case)
    if short is None:
        return NotHere("the check of free memory did not fail")
    if not short.small:
        return Clear(f"{short.gap:.2f} GiB are missing, too much to be a rounding of gpu_memory_utilization")
    shared = shares_memory(case)
    return finding(
        RULE,
        title=_title(short),
        evidence=tuple(case.line(i) for i in short.lines),
        arithmetic=(
            gib("wanted at start", short.want, short.wanted_by, "the error line"),
            gib("missing", short.gap, f"{short.want:.2f} − {short.free:.2f}", "the error line"),
            gib(
                "held by a desktop, the driver or others",
                short.held,
                f"{short.total:.2f} − {short.free:.2f}",
                "the error line",
            ),
        ),
        changes=(
            pass_free_memory_check(case, short),
            stop_others(
                case, f"stop the programs that hold {short.held:.2f} GiB: a desktop, a browser or another service"
            )
            if not shared
            else None,
        ),
        then=PAGES_OF_FILES if shared else "",
        refute="the same gpu_memory_utilization starts when nothing else uses the GPU",
    )


def _title(short: Shortage) -> str:
    if not short.told:
        return f"gpu_memory_utilization asks for more than the {short.free:.2f} of {short.total:.2f} GiB that are free"
    return (
        f"gpu_memory_utilization asks for {short.gap:.2f} GiB more than is free; needed {short.want:.2f} "
        f"GiB, free {short.free:.2f} GiB"
    )


RULE = rule("VD102", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
