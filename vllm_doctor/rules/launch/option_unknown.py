"""VD502: the launch uses an option that no release has: mistyped, or of another program."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._options import hint, refused, remove
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding


def judge(case: Case) -> Outcome:
    """Was a word refused that no release knows?"""
    got = refused(case)
    if isinstance(got, NotHere | Unseen):
        return got
    if not got.unknown:
        return Clear("other releases have what was refused" if got.known else "no option was refused")
    hints = {o: hint(case, o) for o in got.unknown}
    return finding(
        RULE,
        title=f"vLLM has no --{got.unknown[0]}: {hints[got.unknown[0]]}",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=tuple(remove(option, why) for option, why in hints.items()),
        refute="`vllm serve --help=all` of this very environment lists the option",
    )


RULE = Rule(
    code="VD502",
    slug="option-unknown",
    title="The launch uses an option that vLLM does not have",
    node="refused",
    cause=Cause.BAD_FLAG,
    phase=Phase.FLAG_ERROR,
    reads=frozenset({Signal.LOG, Signal.VERSION, Signal.LAUNCH}),
    judge=judge,
    rank=21,
)
