"""VD518: shapes that do not fit one another: a defect, not a shortage."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, set_flag, thing, upgrade

_IDS = (
    "shape-invalid",
    "shape-mismatch",
    "size-mismatch",
    "hybrid-specs",
    "shapes-multiply",
)


def judge(case: Case) -> Outcome:
    """Did shapes not fit?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    said = case.version_text or ""
    own = ".dev" in said or "+" in said
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            set_flag(
                case, "speculative-config", None, Direction.CHANGE, "another method or number of draft tokens, or none"
            )
            if case.effective("speculative-config") is not None
            else None,
            thing(
                ChangeKind.PACKAGE,
                "code",
                Direction.REPAIR,
                "this is no release: the fault may lie in what was changed",
            )
            if own
            else None,
            upgrade(case, "a release in which it is mended"),
        ),
        refute="the plain release with the same flags fails as well",
    )


RULE = Rule(
    code="VD518",
    slug="shape-defect",
    title="Tensors of different shapes meet: a defect of this build",
    node="not-memory",
    cause=Cause.KNOWN_VLLM_BUG,
    phase=Phase.NOT_MEMORY,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}),
    judge=judge,
    rank=32,
)
