"""What a person says in words of their own: that a card's memory ran out.

An account of a failure is what counts: no question, advice, fear or hearsay, no line of a table or a list, nothing of
another program. And a text that denies it in one sentence, or says that it is over, gives no account of it in another.
"""

from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import pattern, says
from vllm_doctor.log.told_step import told_step

_LONGEST = 2000
# A point ends a sentence where a blank follows; the full stop of Chinese and Japanese needs none. A comma ends what
# comes before a question.
_SENTENCE = Pattern(
    "(?<=[.!?;])\\s|(?<=[\u3002\uff01\uff1f\uff1b])|\n"
    "|(?i:,\\s(?=(?:is|are|any|how|what|why|can|could|do|does|has|have|should)\\s[^,]*\\?))"
)
_CLASS = Pattern(r"[A-Z]\w{2,60}(?:Error|Exception)\b")
# "OOM" and "out of memory" are a title, a value of a table, what a commit catches.
_NOUN = Pattern("[A-Za-z ]+")
_WORD = Pattern(r"\w+")
_DEVICES = frozenset({"cuda", "hip", "rocm", "xpu", "npu", "hpu", "gpu", "mps", "device", "driver", "backend", "error"})
_ITEM = Pattern(r"\s{0,20}(?:[-*\u2022+]|\d{1,3}[.)])\s")


def memory_accounts(lines: Sequence[str]) -> list[int]:
    """The lines in which a person says that a card's memory ran out."""
    told = _told(lines)
    return [
        i
        for i in sorted(told)
        if not says(lines[i][:_LONGEST], "told-otherwise") and any(not says(one, "told-host") for one in told[i])
    ]


def memory_talk(lines: Sequence[str]) -> frozenset[int]:
    """The lines that have words for it and give no account of it, and quote neither an exception nor a message."""
    told = _told(lines)
    return frozenset(
        i
        for i, text in enumerate(line[:_LONGEST] for line in lines)
        if i not in told and says(text, "told-memory") and _CLASS.search(text) is None and not _message_alone(text)
    )


def _message_alone(text: str) -> bool:
    """Is the line what a program prints of a device, and nothing else? `CUDA OUT OF MEMORY`"""
    beside = [word[0] for word in _WORD.finditer(pattern("told-memory").sub("", text).lower())]
    return bool(beside) and _DEVICES.issuperset(beside)


def _told(lines: Sequence[str]) -> dict[int, list[str]]:
    """The sentences of each line that say it, and neither ask, advise nor fear."""
    texts = [line[:_LONGEST] for line in lines]
    if not any(says(text, "told-server") for text in texts):
        return {}  # of what, nobody knows
    if any(says(text, "told-over") or any(map(_denied, _sentences(text))) for text in texts):
        return {}
    listed = sum(_ITEM.match(text) is not None for text in texts) > 1
    found = {
        i: [one for one in _sentences(text) if _runs_out(one) and (_happens(one) or told_step(texts, i) is not None)]
        for i, text in enumerate(texts)
        if not (listed and _ITEM.match(text)) and not says(text, "told-in-a-form")
    }
    return {i: sentences for i, sentences in found.items() if sentences}


def _runs_out(sentence: str) -> bool:
    return not says(sentence, "told-aside") and any(
        not _of_another(sentence[: at.start()]) for at in pattern("told-memory").finditer(sentence)
    )


def _happens(sentence: str) -> bool:
    """Is there a verb, in the words for memory themselves where they are not English?"""
    own = (at[0] for at in pattern("told-memory").finditer(sentence))
    return says(sentence, "told-happens") or not all(map(_NOUN.fullmatch, own))


def _denied(sentence: str) -> bool:
    """Does it say of memory that it is not what failed, or does so no more?"""
    return any(
        says(sentence[: at.start()], "told-denied-before") or says(sentence[at.end() :], "told-denied-behind")
        for at in pattern("told-memory").finditer(sentence)
    )


def _of_another(before: str) -> bool:
    """Is the program that is named last before it another one than vLLM?"""
    named = [*pattern("told-program").finditer(before)]
    return bool(named) and named[-1]["other"] is not None


def _sentences(text: str) -> Iterator[str]:
    return (part for part in _SENTENCE.split(text) if part)
