"""What a person says in words of their own: in which step it failed (told_memory.py: that memory ran out).

Rows of catalogue/told.json have the words, in the languages that reports are written in. An account is believed less
than a program's line: the words count only where no program shows the step, or that anything failed at all.
"""

from collections.abc import Iterable

from vllm_doctor.log.match import places
from vllm_doctor.log.startup_phase import StartupPhase

_LONGEST = 2000
# What of an engine a person names beside the step: the row of its words.
ENCODER, ADAPTERS, TENANT = "told-encoder", "told-adapters", "told-tenant"
WAKES, LOGPROBS, SAMPLER = "told-wake-up", "told-logprobs", "told-sampler"
_STEPS = (
    (ENCODER, StartupPhase.PROFILE_ENCODER),
    ("told-graphs", StartupPhase.GRAPHS),
    ("told-warm-up", StartupPhase.WARMUP),
    ("told-cache", StartupPhase.KV),
    ("told-profile", StartupPhase.PROFILE),
    ("told-device", StartupPhase.DEVICE),
    ("told-weights", StartupPhase.WEIGHTS),
    ("told-serving", StartupPhase.SERVING),
    (WAKES, StartupPhase.SERVING),
    (LOGPROBS, StartupPhase.SERVING),
)


def told_step(lines: Iterable[str], index: int) -> StartupPhase | None:
    """The step that a person names nearest to one of these lines; None where none is named."""
    texts = [line[:_LONGEST] for line in lines]
    at = sum(len(text) + 1 for text in texts[:index])
    end = at + len(texts[index])
    joined = "\n".join(texts)
    found = [
        (max(0, at - last, first - end), -first, rank)
        for rank, (row, _) in enumerate(_STEPS)
        for first, last in places(row, joined)
    ]
    return _STEPS[min(found)[2]][1] if found else None
