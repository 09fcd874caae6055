"""VD599: something failed for good that no other rule knows; it is shown, and it is not memory."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.startup_phase import StartupPhase, startup_phase_of
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.refusal import by_place
from vllm_doctor.rules.say import finding, set_flag


def judge(case: Case) -> Outcome:
    """Did anything end this life?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = run.root
    if root is None:
        return NotHere("nothing failed for good")
    if root.ids & EXHAUSTED:
        return NotHere("what failed first is exhausted GPU memory")
    crash = root.crash
    what = (
        f"{crash.root.kind}: {crash.root.message.splitlines()[0][:160] if crash.root.message else ''}"
        if crash is not None
        else ""
    )
    where = (
        next((f"{f.function} ({f.file.rsplit('/', 1)[-1]}:{f.line})" for f in reversed(crash.root.frames)), "")
        if crash is not None
        else ""
    )
    return finding(
        RULE,
        title=f"{what.strip(' :') or RULE.title}" + (f", in {where}" if where else ""),
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(-1, root.index) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(root.index), case.line(root.last)),
        changes=(_without_graphs(case, root), by_place(case, root)),
        refute="an earlier line, cut from this log, shows another failure",
    )


def _without_graphs(case: Case, root: Fault) -> Change | None:
    """Eager mode runs nothing of what measures or captures CUDA graphs, so a start that fails there gets past it."""
    if startup_phase_of(root.functions) is not StartupPhase.GRAPHS or case.effective("enforce-eager") is True:
        return None
    why = "no graphs are measured or captured then; decoding of small batches becomes slower"
    return set_flag(case, "enforce-eager", True, Direction.ADD, why)


RULE = rule("VD599", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
