"""VD206: a kernel wanted more scratch memory than was measured, and the workspace is locked."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, gib, upgrade
from vllm_doctor.rules.startup._levers import fewer_tokens


def judge(case: Case) -> Outcome:
    """Did an allocation from the locked workspace fail?"""
    if case.story is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None or "workspace-locked" not in root.ids:
        return NotHere("no allocation from a locked workspace failed")
    fields = root.fields("workspace-locked")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=(case.line(next(h.index for h in root.hits if h.id == "workspace-locked")),),
        arithmetic=(
            gib("asked for", float(fields["asked"]) / 1024, f"{fields['asked']} MB", "the error line"),
            gib(
                "workspace",
                float(fields["size"]) / 1024,
                f"{fields['size']} MB, as measured at start",
                "the error line",
            ),
        ),
        changes=(
            upgrade(case, "a shape that the measuring pass did not cover is a defect of that release"),
            fewer_tokens(case, None, measuring=False),
        ),
        refute="the same request passes after a restart with the same settings",
    )


RULE = Rule(
    code="VD206",
    slug="workspace-locked",
    title="A kernel needs more scratch memory than was measured at start",
    node="burst",
    cause=Cause.KNOWN_VLLM_BUG,
    phase=Phase.RUNTIME_PREFILL_BURST,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}),
    judge=judge,
    rank=40,
)
