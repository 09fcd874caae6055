"""VD531: another program beside vLLM wrote the last error, and vLLM wrote no line about it."""

from vllm_doctor.log.another_program import ForeignError, foreign_error
from vllm_doctor.records import excerpt
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding

_ALONE = "vLLM wrote no line about it"
_ARTICLES = ("A ", "The ", "Another ")


def judge(case: Case) -> Outcome:
    """Did another program fail below the last line that shows that vLLM works, and vLLM write of no failure?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if run.root is not None or run.refused is not None or run.client is not None:
        return NotHere("vLLM or its client says what failed")
    if not run.is_vllm:
        return NotHere("nothing here speaks of vLLM")
    told = foreign_error(run)
    if told is None:
        return Clear("no other program wrote an error below the last line that shows that vLLM works")
    if any(death.index < told.index for death in run.deaths):
        return NotHere("a process of vLLM died before it")
    title = f"{told.program.name}: {told.what}"
    short = len(title) <= excerpt.TITLE
    certain = told.fatal or not run.by_vllm
    return finding(
        RULE,
        title=title if short else f"{told.program.name} reports an error; vLLM wrote none about it",
        detail=_ALONE if short else excerpt.said(told.what),
        severity=Severity.DEGRADED if run.served() else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY if certain else Confidence.POSSIBLE,
        evidence=(case.line(told.index),),
        refute=_refute(told),
        layer=told.program.id,
        then=told.program.next,
    )


def _refute(told: ForeignError) -> str:
    name = told.program.name
    named = name[0].lower() + name[1:] if name.startswith(_ARTICLES) else name
    return f"vLLM goes on below this line, or {named} tries again and succeeds"


RULE = rule("VD531", reads=frozenset({Signal.LOG}), judge=judge)
