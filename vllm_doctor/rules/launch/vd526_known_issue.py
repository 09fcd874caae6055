"""VD526: the failure looks like one that was reported in public."""

from vllm_doctor.knowledge.known_issues import Issue, matching
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import severity, text
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.say import finding

_CHANGES = 3


def judge(case: Case) -> Outcome:
    """Does what failed first match an entry of the known issues?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None or root.crash is None or root.ids & EXHAUSTED:
        return NotHere("no traceback shows a failure other than memory")
    one = _matching(case, root)
    if one is None:
        return Clear("no known issue matches its exception, message and calls")
    at = root.crash.root.at
    return finding(
        RULE,
        title=f"{one.title}; matches {one.address}",
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=(case.line(at if at is not None else root.index),),
        changes=changes_of(case, one.answers, text(case, root))[:_CHANGES],
        refute=f"the report describes another failure: {one.address}",
        then=f"{one.about} {one.address} (read on {one.read})",
    )


def _matching(case: Case, root: Fault) -> Issue | None:
    if root.crash is None:
        return None
    for link in root.crash.links:
        calls = [f"{f.file}:{f.function}".replace("\\", "/") for f in link.frames]
        code = link.frames[-1].code if link.frames else ""
        found = matching(link.kind, link.message, code, calls, case.version)
        if found:
            return found[0]
    return None


RULE = rule("VD526", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
