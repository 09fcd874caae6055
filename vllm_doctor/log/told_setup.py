"""The model and the cards that a sentence names: `Qwen2.5-32B (AWQ) on 2x A100 40GB`, `16 GB の GPU`.

A sentence is no table: of two models of different sizes, or of two kinds of cards, nobody can tell which one is meant,
and the number of cards counts where it stands right beside the card. Who writes a plural (`our A100s`) names no card.
"""

from collections.abc import Iterable, Iterator
from re import Match

import msgspec

from vllm_doctor.knowledge.gpus import Card, elsewhere, find
from vllm_doctor.knowledge.hub import billions, bits_of_words, names_quantization
from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import places, says
from vllm_doctor.log.told_text import LONGEST, SENTENCE_END

_NAME = Pattern(r"(?<![A-Za-z0-9_./-])[A-Za-z0-9][A-Za-z0-9_./-]{1,100}(?<![./-])")
_PART = Pattern("[,.!?;]\\s|[\u3002\uff01\uff1f\uff1b\uff0c]")
# A card's name is a few words, each of letters and figures; the first has a figure or is a brand's.
_WORD = Pattern(r"[A-Za-z0-9]+")
_WORDS = 5
_BRANDS = frozenset(
    {"rtx", "gtx", "quadro", "tesla", "nvidia", "geforce", "arc", "radeon", "instinct", "amd", "dgx", "jetson"}
)
_LETTERED = Pattern(r"(?i:[a-z]{1,3}\d{1,4}[a-z]{0,2}|(?:rtx|gtx)?[2-5]0[5-9]0(?:ti)?)")
# How many of them there are, by a number right before or behind; words for it are `told-several`.
_HOW_MANY = Pattern(
    r"(?i)(?<![\d.])(?P<count>\d{1,3})\s?(?:$|[x\u00d7*]|GPUs?|cards?|[\u5f20\u5361\u5757\u679a\u57fa\uc7a5])"
)
_NEAR = 16
# Memory that is said of a card (`told-of-a-card` right behind it), in the sizes that cards are sold with.
_SIZE = Pattern(r"(?<![\d.])(?P<size>\d{1,3})\s?(?:GB|GiB|G)(?![A-Za-z])(?:\s?(?:of|\u306e))?[\s-]?")
# Words behind a card's name that make another card of it; a device whose name looks like a model's size.
_OTHER = frozenset({"nx", "nano", "laptop", "mobile", "max"})
_DEVICE = Pattern(r"(?i:910[a-d]\d?|310p)")
_SOLD = frozenset({8, 10, 11, 12, 15, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 128, 141, 180, 192, 256, 288})


class ToldSetup(msgspec.Struct, frozen=True):
    """What a text tells of a model and of the cards: billions of parameters, bits of a weight (None where they are few
    and nobody says how many), the card's name and GiB, and whether it is one card or several."""

    billions: float | None = None
    bits: int | None = None
    card: str = ""
    total_gib: float | None = None
    several: bool = False


def told_setup(lines: Iterable[str]) -> ToldSetup:
    """The one model and the one kind of card that these lines name."""
    texts = [line[:LONGEST] for line in lines]
    # Of several models the one beside the words for memory is meant: `an 8B runs, the 70B goes OOM`.
    parts = [part for text in texts for part in _PART.split(text) if part]
    own = {size for part in parts if says(part, "told-memory") for size in _billions(part)}
    sizes = own or {size for text in texts for size in _billions(text)}
    cards = {(card.name, card.total_gib) for text in texts for card, _, _ in _cards(text)}
    said = {float(size["size"]) for text in texts for size in _sizes(text)} & _SOLD
    card, total = next(iter(cards)) if len(cards) == 1 else ("", 0.0)
    if not cards and len(said) == 1:
        total = next(iter(said))
    named = [(text, first, last) for text in texts for _, first, last in _cards(text)]
    named += [(text, *size.span()) for text in texts for size in _sizes(text) if not cards]
    several = any(_several(*place) for place in named)
    # How many bits its weights have stands with the model's name.
    of_model = " ".join(one for text in texts for one in SENTENCE_END.split(text) if one and any(_billions(one)))
    bits = bits_of_words(of_model) if names_quantization(of_model) else 16
    return ToldSetup(next(iter(sizes)) if len(sizes) == 1 else None, bits, card, total or None, several)


def names_a_setup(texts: Iterable[str]) -> bool:
    """Do these lines name what a server runs with: a model, a card or a size, a release, an option?

    Who tells of a failure names some of it. Advice, plans, tests and lists of changes do not.
    """
    return any(
        any(_billions(text)) or any(_cards(text)) or says(text, "release-in-words", "setting-in-words", "told-figure")
        for text in texts
    )


def named_models(text: str) -> list[tuple[int, int]]:
    """Where the names of models stand that tell how large these are."""
    return [name.span() for name in _NAME.finditer(text) if _size_of(name[0]) is not None]


def _billions(text: str) -> Iterator[float]:
    """The sizes of the models that a text names."""
    return (size for name in _NAME.finditer(text) if (size := _size_of(name[0])) is not None)


def _size_of(name: str) -> float | None:
    return None if _DEVICE.fullmatch(name) else billions(name)


def _cards(text: str) -> Iterator[tuple[Card, int, int]]:
    """The cards that a text names, each by as many words as name it."""
    words = [*_WORD.finditer(text)]
    index = 0
    while index < len(words):
        found = next(
            (
                (card, last)
                for last in range(min(len(words), index + _WORDS), index, -1)
                if (card := _card(text[words[index].start() : words[last - 1].end()])) is not None
            ),
            None,
        )
        if found is None:
            index += 1
            continue
        card, last = found
        if last == len(words) or words[last][0].lower() not in _OTHER:
            yield card, words[index].start(), words[last - 1].end()
        index = last


def _card(name: str) -> Card | None:
    first = _WORD.match(name)
    if first is None or not (first[0].lower() in _BRANDS or _LETTERED.fullmatch(first[0])):
        return None
    card = find(name) or elsewhere(name)
    return card if card is not None and card.total_gib else None


def _sizes(text: str) -> Iterator[Match[str]]:
    """The sizes that are a card's: what is meant stands right behind them."""
    ends = {first for first, _ in places("told-of-a-card", text)}
    return (size for size in _SIZE.finditer(text) if size.end() in ends)


def _several(text: str, first: int, last: int) -> bool:
    """Are there more than one of the card that stands here: by a number or a word before it, or a number behind?"""
    before, behind = text[max(0, first - _NEAR) : first], text[last : last + _NEAR]
    if says(before, "told-several"):
        return True
    told = [*_HOW_MANY.finditer(before)][-1:] or [*_HOW_MANY.finditer(behind)][:1]
    return any(int(near["count"]) > 1 for near in told)
