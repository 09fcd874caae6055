"""What a person says in words of their own: that a card's memory ran out, or that a kill for the host's ended it.

An account of a failure is what counts: no question, advice, fear or hearsay, no line of a table or a list, nothing of
another program. And a text that denies it in one sentence, or says that it is over, gives no account of it in another.
"""

from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.falls_short import falls_short
from vllm_doctor.log.match import places, says
from vllm_doctor.log.told_setup import names_a_setup
from vllm_doctor.log.told_step import TENANT, told_step
from vllm_doctor.log.told_text import LONGEST

# A point ends a sentence where a blank follows; the full stop of Chinese and Japanese needs none. A comma ends what
# comes before a question, and theirs what comes before its last clause.
_SENTENCE = Pattern(
    "(?<=[.!?;])[\"'\u201d\u2019)]?\\s|(?<=[\u3002\uff01\uff1f\uff1b])|\n"
    "|(?i:,\\s(?=(?:is|are|any|how|what|why|can|could|do|does|has|have|should)\\s[^,]*\\?))"
    "|(?<=[\uff0c\u3001])(?=[^\uff0c\u3001\u3002]{1,20}[?\uff1f])"
)
_CLASS = Pattern(r"[A-Z]\w{2,60}(?:Error|Exception)\b")
# "OOM" and "out of memory" are a title, a value of a table, what a commit catches; in other languages they are said.
_NOUN = Pattern(
    r"(?i)(?:oom\w{0,10}|(?:[a-z]{1,8} ){0,3}out of [a-z ]+|(?:not enough|insufficient|no more) [a-z ]+)"
    r"(?:[- ]?kill\w{0,5})?"
)
_WORD = Pattern(r"\w+")
_COMMA = Pattern("[,;\uff0c]")
_DEVICES = frozenset({"cuda", "hip", "rocm", "xpu", "npu", "hpu", "gpu", "mps", "device", "driver", "backend", "error"})
_ITEM = Pattern(r"\s{0,20}(?:[-*\u2022+]|\d{1,3}[.)])\s")
_STEPS = Pattern(r"(?:^|\s)\(?1[.)]\s.{1,400}?\s\(?2[.)]\s")
_CARD, _ANY, _KILL, _HOST = "told-memory", "told-lack", "told-killed", "told-host-gone"
# Words that tell of an end themselves.
_ENDS = frozenset({_KILL, _HOST})
# What asks, advises or fears governs the words behind it; of those before it, the ones right before: `OOM can happen`.
_RIGHT_BEHIND = 12
_RIGHT_BEFORE = 8
# So far behind that all is well a `but` takes it back.
_GOES_ON = 25


def memory_accounts(lines: Sequence[str], *, of_server: bool = False) -> list[int]:
    """The lines in which a person says that a card's memory ran out. `of_server`: that of a server is told beside."""
    told = _told(lines, _CARD, of_server=of_server) or _of_any(lines, of_server=of_server)
    return [
        i
        for i in sorted(told)
        if not says(lines[i][:LONGEST], "told-otherwise") and any(not says(one, "told-host", _HOST) for one in told[i])
    ]


def _of_any(lines: Sequence[str], *, of_server: bool) -> dict[int, list[str]]:
    """The sentences that say it of memory alone, where the text names a card and a step in which it ran out."""
    if not any(says(line[:LONGEST], "told-card") for line in lines):
        return {}
    return {i: told for i, told in _told(lines, _ANY, of_server=of_server).items() if _placed(lines, i)}


def kill_accounts(lines: Sequence[str], *, of_server: bool = False) -> list[int]:
    """The lines in which a person says that a server, its container or its engine was killed for memory of the host."""
    said = (_told(lines, words, of_server=of_server) for words in (_KILL, _HOST))
    told = next((one for one in said if one), None) or _killed(lines, of_server=of_server)
    return [i for i in sorted(told) if says(lines[i][:LONGEST], "told-ended")]


def _killed(lines: Sequence[str], *, of_server: bool) -> dict[int, list[str]]:
    """The sentences that say of no device's memory that it ran out, of what was killed."""
    told = _told(lines, _CARD, of_server=of_server, verb="told-kill")
    found = {i: [one for one in sentences if not _of_device(one)] for i, sentences in told.items()}
    return {i: sentences for i, sentences in found.items() if sentences}


def _of_device(sentence: str) -> bool:
    """Do the words for memory, or those right before them, name a device whose it is?"""
    found = places(_CARD, sentence)
    said = [(sentence[first:last], sentence[max(0, first - _RIGHT_BEFORE) : last]) for first, last in found]
    named = {word[0] for _, whole in said for word in _WORD.finditer(whole.lower())}
    return not _DEVICES.isdisjoint(named) or any(_NOUN.fullmatch(words) is None for words, _ in said)


def memory_talk(lines: Sequence[str], *, of_server: bool = False) -> frozenset[int]:
    """The lines that have words for it and give no account of it, and quote neither an exception nor a message."""
    told = _told(lines, _CARD, of_server=of_server)
    return frozenset(
        i
        for i, text in enumerate(line[:LONGEST] for line in lines)
        if i not in told and says(text, _CARD) and not _quotes_class(text) and not _message_alone(text)
    )


def told_of_another(text: str) -> bool:
    """Is it the memory of another program than vLLM: of one that is asked about, as a user's prompt does that a log
    keeps, or in a line that does not name vLLM?"""
    if len(text) > LONGEST or (says(text, "told-own-program") and not says(text, "told-question")):
        return False
    said = places(_CARD, text)
    return bool(said) and all(_of_another(text, first, last) for first, last in said)


def _quotes_class(text: str) -> bool:
    """Does the class of an exception stand before the words, or is it one of them?"""
    return any(_CLASS.search(text[:end]) is not None for _, end in places(_CARD, text))


def _message_alone(text: str) -> bool:
    """Is the line what a program prints of a device, and nothing else? `CUDA OUT OF MEMORY`"""
    said = {i for first, last in places(_CARD, text) for i in range(first, last)}
    words = "".join(" " if i in said else sign for i, sign in enumerate(text))
    beside = [word[0] for word in _WORD.finditer(words.lower())]
    return bool(beside) and _DEVICES.issuperset(beside)


def _told(lines: Sequence[str], words: str, *, of_server: bool, verb: str = "") -> dict[int, list[str]]:
    """The sentences of each line that say it in these words, and neither ask, advise nor fear; `verb`: the row of the
    verbs one of which their line must have."""
    texts = [line[:LONGEST] for line in lines]
    if not (of_server or words in _ENDS or names_a_setup(texts)):
        return {}
    denied = (words, "told-kill") if words in _ENDS else (words,)
    if any(_over(text) or any(_denied(one, *denied) for one in _sentences(text)) for text in texts):
        return {}
    listed = sum(_ITEM.match(text) is not None for text in texts) > 1
    found = {
        i: [one for one in _sentences(text) if _says_so(one, words)]
        for i, text in enumerate(texts)
        if (not verb or says(text, verb))
        and not (listed and _ITEM.match(text))
        and not _STEPS.search(text)
        and not says(text, "told-in-a-form")
    }
    return {i: sentences for i, sentences in found.items() if sentences}


def _over(text: str) -> bool:
    """Does it say that all is well, and does not go on with a `but`?"""
    return any(not says(text[last : last + _GOES_ON], "told-but") for _, last in places("told-over", text))


def _placed(texts: Sequence[str], index: int) -> bool:
    return told_step(texts, index) is not None


def _says_so(sentence: str, words: str) -> bool:
    if says(sentence, "told-question"):
        return False
    return any(
        not _aside(sentence[:first])
        and not says(_right_behind(sentence, last), "told-aside", "told-supposed", "told-qualifies")
        and not (_beside_another(sentence, first, last) if words in _ENDS else _of_another(sentence, first, last))
        for first, last in _said(words, sentence)
    )


def _said(words: str, sentence: str) -> list[tuple[int, int]]:
    """Where a sentence says it, in these words or, of a device that it names, by its figures."""
    short = falls_short(sentence) if words == _CARD and says(sentence, "told-card") else None
    return places(words, sentence) + ([(short.first, short.last)] if short is not None else [])


def _beside_another(sentence: str, first: int, last: int) -> bool:
    """Does the part of the sentence between two commas name what was killed, and is it another program? The nearest
    counts, before (`ollama was killed`) or behind."""
    commas = [comma.start() for comma in _COMMA.finditer(sentence)]
    begins = max((at for at in commas if at < first), default=0)
    ends = min((at for at in commas if at >= last), default=len(sentence))
    own, others = (
        [max(0, first - end, start - last) for start, end in places(row, sentence[:ends]) if start >= begins]
        for row in ("told-own-program", "told-other-program")
    )
    return bool(others) and min(others) < min(own, default=len(sentence))


def _aside(before: str) -> bool:
    """Does it ask, advise or fear? What somebody found is told: `I find that a long prompt will go OOM`."""
    return says(before, "told-aside") or (says(before, "told-supposed") and not says(before, "told-found"))


def _right_behind(sentence: str, last: int) -> str:
    """A few letters, to the end of their last word."""
    end = last + _RIGHT_BEHIND
    rest = _WORD.match(sentence, end) if sentence[end - 1 : end].isalnum() else None
    return sentence[last : rest.end() if rest is not None else end]


def _denied(sentence: str, *rows: str) -> bool:
    """Does it say of memory that it is not what failed, or does so no more?"""
    return any(
        says(sentence[:first], "told-denied-before") or says(sentence[last:], "told-denied-behind")
        for row in rows
        for first, last in places(row, sentence)
    )


def _of_another(sentence: str, first: int, last: int) -> bool:
    """Is the program that is named last before it another one than vLLM, or, where none is, the one behind it, which
    does not only hold memory beside it? `out of memory in ollama`"""
    before = sentence[:first]
    others = places("told-other-program", before)
    # `the llama.cpp server`: the word right behind a name is that program's.
    named = {last + 1 for _, last in others}
    own = [place for place in places("told-own-program", before) if place[0] not in named]
    if own or others:
        return max(others, default=(-1, -1)) > max(own, default=(-1, -1))
    return not says(sentence, TENANT) and _beside_another(sentence, first, last)


def _sentences(text: str) -> Iterator[str]:
    return (part for part in _SENTENCE.split(text) if part)
