"""VD525: layers whose KV cache blocks differ in bytes, and not by whole multiples."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, upgrade

_ID = "page-sizes"


def judge(case: Case) -> Outcome:
    """Do the pages of two kinds of layers not divide one another?"""
    fault = named(case, _ID)
    if isinstance(fault, NotHere | Unseen):
        return fault
    # A cache type that packs some layers and not others, beside windows or states, makes such pages.
    packed = case.effective("kv-cache-dtype") not in {None, "auto"}
    why = "with this type the pages of some layers are not a multiple of the pages of the others"
    return finding(
        RULE,
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, _ID),
        changes=(
            set_flag(case, "kv-cache-dtype", None, Direction.REMOVE, why) if packed else None,
            upgrade(case, "this release gives the pages of such layers one size"),
        ),
        refute="the same launch without --kv-cache-dtype fails in the same way",
    )


RULE = rule("VD525", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
