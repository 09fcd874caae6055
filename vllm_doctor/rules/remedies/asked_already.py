"""A refusal that asks for what the launch has: a part of the release does not see it, so what asks must go."""

from vllm_doctor.knowledge.refusals import wishes
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.allowed_value import without_choice
from vllm_doctor.rules.remedies.refusal import refusal_text, refused_by_vllm
from vllm_doctor.rules.remedies.requested_change import is_option
from vllm_doctor.rules.say import set_flag, upgrade

# So many letters of a value's end are its own name, and no word that any sentence may have.
_LETTERS = 6


def asked_already(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """The option whose value the message speaks of (MegaMoE: deep_gemm_mega_moe), then a newer release. () where the
    launch lacks what is asked for."""
    told = refusal_text(case, fault)
    if not refused_by_vllm(case, fault):
        return ()
    asked = [w for w in wishes(told, lambda name: is_option(case, name)) if w.exact and w.direction is Direction.ADD]
    given = next((w.name for w in asked if w.kind == "flag" and w.to is None and case.flag(w.name) is True), "")
    if not given:
        return ()
    why = f"the launch has --{given}, which the message asks for: this value is what asks"
    spoken = (name for name, value in case.flags.items() if isinstance(value, str) and _speaks_of(told, value))
    without = (without_choice(case, name) or set_flag(case, name, None, Direction.REMOVE, why) for name in spoken)
    newer = f"--{given} is given already, and this part of the release does not see it: a newer one may"
    return (*without, upgrade(case, newer))


def _speaks_of(told: str, value: str) -> bool:
    """Is the end of a value a word of the message, however its parts are joined?"""
    words = {"".join(filter(str.isalnum, word)).lower() for word in told.split()}
    parts = value.lower().replace("-", "_").split("_")
    ends = ("".join(parts[i:]) for i in range(len(parts)))
    return any(len(end) >= _LETTERS and end in words for end in ends)
