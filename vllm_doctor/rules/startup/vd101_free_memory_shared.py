"""VD101: far less is free at start than the fraction asks for, so something else holds the card."""

from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.free_memory import Shortage, shortage
from vllm_doctor.rules.gates.profile_run import too_large_by_name
from vllm_doctor.rules.gates.unified import PAGES_OF_FILES, shares_memory
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.utilization import pass_free_memory_check
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding, gib


def judge(case: Case) -> Outcome:
    """Is the gap larger than a card of one's own could have?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    short = shortage(case)
    if short is None:
        return NotHere("the check of free memory did not fail")
    if short.small:
        return Clear(f"only {short.gap:.2f} GiB are missing")
    return _of_the_pool(case, short) if shares_memory(case) else _finding(case, short)


def _of_the_pool(case: Case, short: Shortage) -> Finding:
    """The driver counts the page cache as used there, and the host's programs are no process of the GPU."""
    return finding(
        RULE,
        title=f"{short.free:.2f} of {short.total:.2f} GiB are free in the memory that GPU and host share",
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(i) for i in short.lines),
        arithmetic=(
            gib("wanted at start", short.want, short.wanted_by, "the error line"),
            gib("missing", short.gap, f"{short.want:.2f} − {short.free:.2f}", "the error line"),
        ),
        changes=(pass_free_memory_check(case, short),),
        refute="`free -g` shows as little available before the start, page cache included",
        then=PAGES_OF_FILES,
    )


def _finding(case: Case, short: Shortage) -> Finding:
    return finding(
        RULE,
        title=(
            f"Another process holds {short.held:.2f} GiB of {short.device}; "
            + (f"needed {short.want:.2f} GiB, " if short.told else "")
            + f"free {short.free:.2f} GiB"
        ),
        evidence=tuple(case.line(i) for i in short.lines),
        arithmetic=(
            gib("wanted at start", short.want, short.wanted_by, "the error line"),
            gib("held by others", short.held, f"{short.total:.2f} − {short.free:.2f}", "the error line"),
            gib("missing", short.gap, f"{short.want:.2f} − {short.free:.2f}", "the error line"),
        ),
        changes=(
            stop_others(
                case,
                f"`{maker_tool(case).name}`, or `vllm-doctor diagnose` on the host, names the process: often an "
                "engine of an earlier run",
            ),
            pass_free_memory_check(case, short),
            *(lighter(case) if too_large_by_name(case) is not None else ()),
        ),
        refute=f"{maker_tool(case).name} shows no process on this GPU, and its memory is free just before the start",
    )


RULE = rule(
    "VD101",
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}),
    judge=judge,
)
