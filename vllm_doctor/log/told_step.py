"""What a person says in words of their own: in which step it failed (told_memory.py: that memory ran out).

Rows of catalogue/told.json have the words, in the languages that reports are written in. An account is believed less
than a program's line: the words count only where no program shows the step, or that anything failed at all.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import places
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_setup import named_models
from vllm_doctor.log.told_text import LONGEST, SENTENCE_END

# An option is no word for a step: --disable-log-requests.
_OPTION = Pattern(r"(?<![\w-])--[a-z][\w-]{1,60}")
_MODEL = "model"
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
    texts = [_plain(line[:LONGEST]) for line in lines]
    at = sum(len(text) + 1 for text in texts[:index])
    end = at + len(texts[index])
    joined = "\n".join(texts)
    own = [(at + first, at + last) for first, last in with_memory(texts[index])]
    words = [(at + first, at + last) for first, last in places("told-memory", texts[index])]
    # The sampler runs in a warm-up and in every step: what a request asked of it is none of a start.
    asked = places(LOGPROBS, joined)
    named = [
        (first, last, rank)
        for rank, (row, _) in enumerate(_STEPS)
        for first, last in places(row, joined)
        if not (row == _WARM_UP and asked and places(SAMPLER, joined[first:last]))
    ]
    found = [
        (not any(begin <= first < close for begin, close in own), *_away(first, last, words or [(at, end)]), rank)
        for first, last, rank in named
        if not any(first <= begin and close <= last and (begin, close) != (first, last) for begin, close, _ in named)
    ]
    step = _STEPS[min(found)[-1]][1] if found else None
    # The profile run runs the encoder, too.
    inner = any(_STEPS[rank][0] == ENCODER and not apart for apart, _, _, rank in found)
    return StartupPhase.PROFILE_ENCODER if inner and step is StartupPhase.PROFILE else step


def _plain(text: str) -> str:
    """The text without its options, and each model by that word: who loads a 70B loads a model."""
    for first, last in named_models(text):
        text = f"{text[:first]}{_MODEL[: last - first]:{last - first}}{text[last:]}"
    return _OPTION.sub(lambda option: " " * len(option[0]), text)


def _away(first: int, last: int, words: Iterable[tuple[int, int]]) -> tuple[bool, int]:
    """How far a step stands from the words for memory: what is behind them, `out of memory while it loads`, is said of
    them, so it comes first."""
    return min((first < begin, max(0, begin - last, first - close)) for begin, close in words)


def with_memory(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a line stand that speak of memory."""
    said = places("told-memory", text)
    ends = [0, *(end.end() for end in SENTENCE_END.finditer(text)), len(text)]
    for first, last in pairwise(ends):
        if any(first <= at < last for at, _ in said):
            yield first, last
