"""VD526: the failure looks like one that was reported in public."""

from vllm_doctor.knowledge.known_issues import answers_of, met_on
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.traceback import Crash
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import severity, text
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.known_issue import issue_of
from vllm_doctor.rules.remedies.runs_behind import with_its_feature
from vllm_doctor.rules.say import finding

_CHANGES = 3

# Tracebacks that are looked at where a line of its own said first what one of them is about.
_LOOKED_AT = 50


def judge(case: Case) -> Outcome:
    """Does what failed first match an entry of the known issues?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    crash = _crash(case.run, root) if root is not None else None
    if root is None or crash is None or root.ids & EXHAUSTED:
        return NotHere("no traceback shows a failure other than memory")
    if "ops-missing" in root.ids and case.run.first("ops-import") is not None:
        return Clear("vLLM said before that its compiled operators do not load, so that any of them is missing")
    one = issue_of(case, crash)
    if one is None:
        return Clear("no known issue matches its exception, message and calls")
    at = crash.root.at
    return finding(
        RULE,
        title=f"{one.title}; matches {one.address}",
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=(case.line(at if at is not None else root.index),),
        changes=with_its_feature(case, root, changes_of(case, answers_of(one), text(case, root)))[:_CHANGES],
        refute=f"the report describes another failure: {one.address}",
        then=f"{one.about}{met_on(one)} {one.address} (read on {one.read})",
    )


def _crash(run: AnalysedRun | None, root: Fault) -> Crash | None:
    """Its traceback; where a line of its own says it first, the traceback that ends with the same message."""
    if run is None or root.crash is not None:
        return root.crash
    said = run.lines[root.index].text
    later = (c for c in run.crashes[:_LOOKED_AT] if c.first > root.index and c.root.message)
    return next((c for c in later if c.root.message.splitlines()[0] in said), None)


RULE = rule("VD526", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
