"""What a person says in words of their own: in which step it failed (told_memory.py: that memory ran out).

Rows of catalogue/told.json have the words, in the languages that reports are written in. An account is believed less
than a program's line: the words count only where no program shows the step, or that anything failed at all.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import places
from vllm_doctor.log.startup_phase import StartupPhase

# So much of a line is read.
LONGEST = 2000
# Where a sentence ends; the full stop of Chinese and Japanese needs no blank behind it.
SENTENCE_END = Pattern("[.!?;]\\s|[\u3002\uff01\uff1f\uff1b]")
# An option is no word for a step: --disable-log-requests.
_OPTION = Pattern(r"(?<![\w-])--[a-z][\w-]{1,60}")
# What of an engine a person names beside the step: the row of its words.
ENCODER, ADAPTERS, TENANT = "told-encoder", "told-adapters", "told-tenant"
WAKES, LOGPROBS, SAMPLER = "told-wake-up", "told-logprobs", "told-sampler"
# A start, without its step.
START = "told-start"
_WARM_UP = "told-warm-up"
_STEPS = (
    (ENCODER, StartupPhase.PROFILE_ENCODER),
    ("told-graphs", StartupPhase.GRAPHS),
    (_WARM_UP, StartupPhase.WARMUP),
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
    texts = [_OPTION.sub(lambda option: " " * len(option[0]), line[:LONGEST]) for line in lines]
    at = sum(len(text) + 1 for text in texts[:index])
    end = at + len(texts[index])
    joined = "\n".join(texts)
    own = [(at + first, at + last) for first, last in with_memory(texts[index])]
    # The sampler runs in a warm-up and in every step: what a request asked of it is none of a start.
    asked = places(LOGPROBS, joined)
    found = [
        (
            not any(begin <= first < close for begin, close in own),
            max(0, at - last, first - end),
            -first,
            rank,
        )
        for rank, (row, _) in enumerate(_STEPS)
        for first, last in places(row, joined)
        if not (row == _WARM_UP and asked and places(SAMPLER, joined[first:last]))
    ]
    return _STEPS[min(found)[-1]][1] if found else None


def with_memory(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a line stand that speak of memory."""
    said = places("told-memory", text)
    ends = [0, *(end.end() for end in SENTENCE_END.finditer(text)), len(text)]
    for first, last in pairwise(ends):
        if any(first <= at < last for at, _ in said):
            yield first, last
