"""A program's message in other words than its own: translated, with its numbers set as another country sets them.

Words change, and what is no word stays: the figures in their order, which of them have a unit, stand in brackets or
number a card, vLLM's options and the field's abbreviations. Where these are one message's and no message is read in the
line as it is, the message is put behind it as its program writes it, with the figures of the line.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, takewhile

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.versions import flag, newest_known
from vllm_doctor.log.falls_short import falls_short
from vllm_doctor.log.match import Message, catalogue, messages, read, says
from vllm_doctor.log.torch_oom import torch_oom

# Lines and letters that a person retells; a program's log has more.
_LINES, _LONG = 40, 4000
# Units as other languages write them.
_UNITS = {
    "o": "B",
    "\u0411": "B",
    "\u0431": "B",
    "\u041a": "K",
    "\u041c": "M",
    "\u0413": "G",
    "\u0422": "T",
    "\u0438": "i",
}
# A number with what sets its thousands apart, or its fraction.
_FIGURE = Pattern(
    r"(?<![A-Za-z0-9_.=\-])(?P<number>\d{1,15}(?:(?<![^\d]0)[ \u00a0\u202f'\u2019.,]\d{3}(?!\d)){0,4}(?:[.,]\d{1,4})?)"
    r"(?![.,]?[\d%])(?P<of> ?/)? {0,2}"
    r"(?P<unit>(?:[KMGT\u041a\u041c\u0413\u0422][i\u0438]?[Bo\u0411\u0431]|bytes?)(?![A-Za-z0-9_\u0430-\u044f]))?"
    r"(?(of)|(?![A-Za-z_]))"
)
_SEPARATORS = str.maketrans("", "", " \u00a0\u202f'\u2019.,")
_FRACTION = Pattern(r"[.,](?:\d{1,2}|\d{4})$|^0[.,]")
_CARD = Pattern(r"(?:GPU|NPU|XPU)[ #-]{0,2}$")
# An option as a message names it; who sets one writes dashes or a value behind it.
_OPTION = Pattern(r"(?<![A-Za-z0-9_-])[a-z]{2,20}(?:_[a-z]{2,20}){1,5}(?![A-Za-z0-9_=-]| =| \d)")
_SHORT = Pattern(r"(?<![A-Za-z])(?:KV|CUDA|HIP|Mamba|LoRA)(?![A-Za-z])")
_WORD = Pattern(r"(?<![A-Za-z_])[a-z]{5,30}(?![A-Za-z_])")
# Where a sentence ends, or an aside begins.
_STOP = Pattern("[.!?](?:\\s|$)|[\u3002\uff01\uff1f(\uff08\n]")
# torch's class for it (torch/cuda/__init__.py), and its beginning at the end of a line.
_OF_MEMORY = "OutOfMemoryError"
_OUT, _BEGUN = "out of memory", len("out of")
_CUT = Pattern(r"(?<![\w.])(?:[a-z]{2,20}\.){0,3}(?P<name>OutOfM[A-Za-z]{0,10})$")
_CLASS = Pattern(r"[A-Za-z_.]{0,60}(?:Error|Exception) ?[:\uff1a]")
# Marks that tell one message from all others, and no fewer; figures that do so without another mark.
_ENOUGH, _FIGURES = 4, 3
# vLLM prints hundredths, people tenths.
_ROUNDED, _SAME_SUM = 0.02, 0.005
_TWO = 2
_SIZES = frozenset({"size", "part", "(part"})
# People write a verb where a program writes a colon.
_VERB = Pattern(r" (?:is|was|of|=) (?=-?\d)")
_LEFT, _LEFT_FOR_CACHE = "kv-available", "Available KV cache memory: {} GiB"
_NO_BLOCK = "no-kv-blocks"
# What a request may be long, and behind it the tokens that the cache takes.
_LENGTHS = Pattern(
    r"(?i)\bmax[ _-](?:seq(?:uence)?|model)[ _-]len(?:gth)?\D{1,12}(?P<asked>\d{3,8})\b"
    r"[^\n]{1,60}?\b(?P<fit>\d{2,7}) tokens (?:[a-z]{1,6} ){0,3}KV"
)
_SHORT_CACHE = (
    "ValueError: The model's max seq len ({}) is larger than the maximum number of tokens that can be stored in KV "
    "cache ({})."
)
_NEEDED = (
    "ValueError: To serve at least one request with the model's max seq len ({}), ({} GiB KV cache is needed, which is "
    "larger than the available KV cache memory ({} GiB). Based on the available memory, the estimated maximum model "
    "length is {}."
)
_NEEDED_ALONE = (
    "ValueError: To serve at least one request with the models's max seq len ({}), ({} GB KV cache is needed, which is "
    "larger than the available KV cache memory ({} GB). Try increasing `gpu_memory_utilization` or decreasing "
    "`max_model_len` when initializing the engine."
)
_FREE = "Free memory on device ({}/{} GiB) on startup is less than desired GPU memory utilization ({}, {} GiB)."


class _Figure(msgspec.Struct, frozen=True):
    number: str
    unit: str
    kind: str
    bracketed: bool
    first: int
    last: int


class _Told(msgspec.Struct, frozen=True):
    """What is no word in a sentence, and the long words that a translator left."""

    figures: tuple[_Figure, ...]
    options: frozenset[str]
    short: frozenset[str]
    words: frozenset[str]
    foreign: bool


class _Meant(msgspec.Struct, frozen=True):
    """A message that a line may retell: how much of it is there, and from which figure of the line on."""

    marks: int
    words: int
    message: Message
    line: str
    figures: tuple[tuple[_Figure, _Figure], ...]
    end: int


def retold(lines: Sequence[str]) -> list[str]:
    """The lines, each that retells a message with that message behind it, in brackets."""
    if sum(bool(line.strip()) for line in lines) > _LINES:
        return [*lines]
    return [_with_message(line) for line in _to_its_end(lines)]


def _to_its_end(lines: Sequence[str]) -> list[str]:
    """The lines, with the class or the words whole that the end of the text has cut in two, where they say by
    themselves what failed."""
    last = next((index for index in range(len(lines) - 1, -1, -1) if lines[index].strip()), None)
    said = lines[last].rstrip() if last is not None else ""
    more = next((_OUT[size:] for size in range(len(_OUT) - 1, _BEGUN, -1) if said.endswith(_OUT[:size])), "")
    if last is not None and more:
        return [*lines[:last], said + more, *lines[last + 1 :]]
    cut = _CUT.search(said)
    if last is None or cut is None or not _OF_MEMORY.startswith(cut["name"]):
        return [*lines]
    return [*lines[:last], f"{lines[last].rstrip()}{_OF_MEMORY[len(cut['name']) :]}: ", *lines[last + 1 :]]


def _with_message(line: str) -> str:
    if len(line) > _LONG or _says_itself(line):
        return line
    if not any(letter.isdigit() for letter in line):
        return _beside(line, _of_no_block(line))
    if (said := _with_colon(line)) is not None:
        return _beside(line, said)
    raised = _CLASS.search(line)
    if raised is None and says(line, "signed-by-program"):
        return line
    told = _told(unicodedata.normalize("NFKC", line[raised.start() if raised else 0 :]))
    ranked = [meant for message, sample, of in _known() if (meant := _meant(told, message, sample, of)) is not None]
    ranked = [meant for meant in ranked if _adds_up(_written(meant))]
    # Of two messages with the same marks that one which has more wordings: more releases write it.
    most = max((_likely(meant) for meant in ranked), default=(0, 0, 0))
    best = [meant for meant in ranked if _likely(meant) == most]
    told_apart = len({meant.message.id for meant in best}) == 1
    without = _without_figures(line[raised.start() :]) if raised else None
    message = _written(best[-1]) if told_apart else without or _by_its_sum(line, told) or _of_no_block(line)
    return _beside(line, message or _of_short_cache(line, told) or _of_check(line))


def _beside(line: str, message: str | None) -> str:
    return line if message is None else f"{line} [{message}]"


def _with_colon(line: str) -> str | None:
    """The size that the engine left for its cache, below nothing, as a person quotes it: `memory is -1.2 GiB`."""
    as_printed = _VERB.sub(": ", line)
    left = read(_LEFT, as_printed) if as_printed != line and read(_LEFT, line) is None else None
    return _LEFT_FOR_CACHE.format(left["size"]) if left is not None and left["size"].startswith("-") else None


def _by_its_sum(line: str, told: _Told) -> str | None:
    """vLLM's check before the start with its halves the other way round: in brackets the share of the card and what it
    comes to, which no other message has; and what is free is less."""
    if "GPU" not in line:
        return None
    sizes = {float(_number(one)): _number(one) for one in told.figures if one.kind in _SIZES}
    for share, want in pairwise(told.figures):
        if share.kind != "(fraction" or not want.bracketed or want.kind != "size":
            continue
        part, asked = float(_number(share)), float(_number(want))
        whole = [size for size in sizes if abs(part * size - asked) <= _SAME_SUM * asked]
        free = [size for size in sizes if size not in {*whole, asked} and size < asked]
        if len(whole) == len(free) == 1 and part < 1:
            return _FREE.format(sizes[free[0]], sizes[whole[0]], part, _number(want))
    return None


def _of_no_block(line: str) -> str | None:
    """vLLM's sentence of a KV cache without a block: it has no figure, and an option that it advises."""
    told = "gpu_memory_utilization" in line and says(line, "told-no-blocks")
    return catalogue()[_NO_BLOCK].samples[-1].line if told else None


def _of_short_cache(line: str, told: _Told) -> str | None:
    """vLLM's sentence of a KV cache that one request does not fit: by the two lengths that it compares, or by the
    sizes, which stand to each other as the lengths do."""
    if "KV" not in told.short:
        return None
    lengths = _LENGTHS.search(line)
    if lengths is not None and int(lengths["fit"]) < int(lengths["asked"]):
        return _SHORT_CACHE.format(lengths["asked"], lengths["fit"])
    short = falls_short(line)
    counts = sorted(int(one.number.translate(_SEPARATORS)) for one in told.figures if one.kind == "number")[::-1]
    if short is None or not counts:
        return None
    if len(counts) == 1:
        return _NEEDED_ALONE.format(counts[0], short.wanted, short.free)
    asked, fit = counts[:_TWO]
    times = short.wanted / short.free if short.free else 0
    same = fit > 0 and abs(times - asked / fit) <= _ROUNDED * times
    return _NEEDED.format(asked, short.wanted, short.free, fit) if same else None


def _of_check(line: str) -> str | None:
    """vLLM's check before the start in a person's words: what is free, what is wanted, and what the card has."""
    short = falls_short(line) if says(line, "told-start") and not says(line, "told-memory") else None
    if short is None or short.total is None:
        return None
    return _FREE.format(short.free, short.total, round(short.wanted / short.total, 2), short.wanted)


def _number(figure: _Figure) -> str:
    return _set(msgspec.structs.replace(figure, unit=""), _Figure("0.0", "", "", False, 0, 0))


def _without_figures(text: str) -> str | None:
    """The message of another language that has no figure, by its class and the options that it names, which no other
    message of that class names alone."""
    options = [*_OPTION.finditer(text)]
    stop = _STOP.search(text, options[-1].end()) if options else None
    part = text[: stop.start()] if stop is not None else text
    told = _told(part)
    if not options or told.figures or not told.options or not told.foreign:
        return None
    kind = part.partition(":")[0].strip()
    same = {m.id: line for m, line, of in reversed(_silent()) if of.options == told.options and line.startswith(kind)}
    return next(iter(same.values())) if len(same) == 1 else None


@cache
def _silent() -> tuple[tuple[Message, str, _Told], ...]:
    """The samples of what fails that have no figure."""
    causes = (message for message in messages() if message.kind == "cause" and message.scope == "log")
    samples = ((message, sample.line, _told(sample.line)) for message in causes for sample in message.samples)
    return tuple(one for one in samples if one[2].options and not one[2].figures)


def _likely(meant: _Meant) -> tuple[int, int, int]:
    return meant.marks, meant.words, len(meant.message.samples)


def _says_itself(line: str) -> bool:
    """Is a message with its figures read in the line as it is?"""
    return any(read(message, line) for message in messages() if message.kind == "cause" and message.scope == "log")


def _meant(told: _Told, message: Message, line: str, sample: _Told) -> _Meant | None:
    """The message, where so many of its marks are in what is told that it is this one."""
    figures = max((_alike(told.figures[at:], sample.figures) for at in range(len(told.figures))), key=len, default=())
    short = sample.short & told.short
    words = len(sample.words & told.words)
    # Whoever retells a message leaves its brackets, so those of a bare number are a mark of their own.
    bracketed = sum(mine.bracketed and not mine.unit for mine, _ in figures)
    marks = len(figures) + bracketed + len(sample.options & told.options) + bool(short)
    figures_alone = len(figures) >= _FIGURES and any(mine.kind in {"card", "(part"} for mine, _ in figures)
    named = figures_alone or bool(short) or (told.foreign and bool(sample.options & told.options))
    if not figures or marks < _ENOUGH or not named or (len(figures) == 1 and not words):
        return None
    end = sample.figures[len(figures)].first if len(figures) < len(sample.figures) else len(line)
    alike = sum(mine.bracketed == theirs.bracketed for mine, theirs in figures)
    return _Meant(marks + alike, words, message, line, figures, end)


def _alike(mine: Sequence[_Figure], theirs: Sequence[_Figure]) -> tuple[tuple[_Figure, _Figure], ...]:
    """The figures of both as far as they are of one kind, from the first on."""
    both = zip(mine, theirs, strict=False)
    return tuple(takewhile(lambda pair: pair[0].kind == pair[1].kind, both))


def _told(text: str) -> _Told:
    figures = []
    for found in _FIGURE.finditer(text):
        before = text[max(0, found.start("number") - 40) : found.start("number")]
        unit = "".join(_UNITS.get(letter, letter) for letter in found["unit"] or "")
        kind = "card" if _CARD.search(before) else "size" if unit else "part" if found["of"] else _kind(found["number"])
        bracketed = before.rfind("(") > before.rfind(")")
        if bracketed and kind in {"number", "fraction", "part"}:
            kind = f"({kind}"
        figures.append(_Figure(found["number"], unit, kind, bracketed, found.start("number"), found.end("number")))
    options = {found[0] for found in _OPTION.finditer(text)}
    return _Told(
        tuple(figures),
        frozenset(name for name in options if flag(name.replace("_", "-"), newest_known()) is not None),
        frozenset(found[0] for found in _SHORT.finditer(text)),
        frozenset(found[0] for found in _WORD.finditer(text)),
        any(letter.isalpha() and not letter.isascii() for letter in text),
    )


def _kind(number: str) -> str:
    return "fraction" if _FRACTION.search(number) else "number"


@cache
def _known() -> tuple[tuple[Message, str, _Told], ...]:
    """The samples of what fails that can be told without their words: by options, a card or a part of a whole."""
    of_fields = (m for m in messages() if m.kind == "cause" and m.scope == "log" and m.fields)
    samples = ((message, sample.line, _told(sample.line)) for message in of_fields for sample in message.samples)
    return tuple(one for one in samples if one[2].options or any(f.kind in {"card", "(part"} for f in one[2].figures))


def _written(meant: _Meant) -> str:
    """The message with the figures of the line, up to the last one that the line has."""
    parts, at = [], 0
    for mine, theirs in meant.figures:
        parts += [meant.line[at : theirs.first], _set(mine, theirs)]
        at = theirs.last + (len(theirs.unit) + 1 if mine.unit else 0)
    rest = meant.line[at : meant.end]
    return "".join((*parts, rest if meant.end == len(meant.line) else rest[: rest.rfind(". ") + 1]))


def _set(mine: _Figure, like: _Figure) -> str:
    """A figure as programs set it: with a point where the message has a fraction, else with nothing."""
    mark = max(mine.number.rfind("."), mine.number.rfind(",")) if "." in like.number else -1
    whole, part = (mine.number[:mark], mine.number[mark:]) if mark >= 0 else (mine.number, "")
    number = whole.translate(_SEPARATORS) + part.replace(",", ".")
    return f"{number} {mine.unit}" if mine.unit else number


def _adds_up(message: str) -> bool:
    """Do the figures stand to each other as the program would have them, before it says that memory is short?"""
    torch = torch_oom(message)
    if torch is not None:
        return torch.free is not None and torch.total is not None and torch.free < min(torch.asked, torch.total)
    above = read("external-weights-exceed", message)
    if above is not None:
        return float(above["held"]) > float(above["want"])
    below = read("free-below-wanted", message)
    if below is None or "want" not in below:
        return True
    want = float(below["want"])
    return float(below["free"]) < want and abs(float(below["util"]) * float(below["total"]) - want) <= _ROUNDED * want
