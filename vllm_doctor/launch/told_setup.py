"""The model and the cards that a sentence names: `Qwen2.5-32B (AWQ) on 2x A100 40GB`, `16 GB の GPU`.

A sentence is no table: of two models of different sizes, or of two kinds of cards, nobody can tell which one is meant,
and the number of cards counts where it stands right beside the card.
"""

from collections.abc import Iterable, Iterator

import msgspec

from vllm_doctor.knowledge.gpus import Card, elsewhere, find
from vllm_doctor.knowledge.hub import billions, bits_of_words, names_quantization
from vllm_doctor.knowledge.pattern import Pattern

_LONGEST = 2000
_NAME = Pattern(r"(?<![A-Za-z0-9_./-])[A-Za-z0-9][A-Za-z0-9_./-]{1,100}(?<![./-])")
# A card's name is a few words, each of letters and figures; the first has a figure or is a brand's.
_WORD = Pattern(r"[A-Za-z0-9]+")
_WORDS = 5
_BRANDS = frozenset({"rtx", "gtx", "quadro", "tesla", "nvidia", "geforce", "arc", "radeon", "instinct", "amd", "dgx", "jetson"})
_LETTERED = Pattern(r"(?i:[a-z]{1,3}\d{1,4}[a-z]{0,2}|[2-5]0[5-9]0(?:ti)?)")
# How many of them there are: `2x`, `8 *`, `4\u5361`, a number's word; a plural without one is some.
_HOW_MANY = Pattern(
    r"(?i:(?P<count>\d{1,3})\s?(?:$|[x\u00d7*]|GPUs?|cards?|\u5f20|\u5361|\u5757|\u679a|\u57fa|\uc7a5|\u0448\u0442)"
    r"|(?P<one>\b(?:an?|one|single|my|eine[rmn]?|une?|una?|um|uma|\u043e\u0434\u043d\u0430|\u0431\u0434\u043d\u0430)\b|\u5355\u5361|\u4e00\u5f20|1\u679a)"
    r"|\b(?P<more>two|three|four|six|eight|sixteen|both|zwei|vier|acht|deux|quatre|huit|dos|cuatro|ocho|dois|quatro"
    r"|\u0434\u0432\u0435|\u0447\u0435\u0442\u044b\u0440\u0435)\b|\u4e24\u5f20|\u56db\u5f20|\u516b\u5f20|\u53cc\u5361|\u591a\u5361|2\u679a)"
)
_NEAR = 16
# Memory that is said of a card: `16 GB card`, `48GB \u663e\u5b58`, in the sizes that cards are sold with.
_OF_CARD = Pattern(
    r"(?i:(?<![\d.])(?P<size>\d{1,3})\s?(?:G|GB|GiB)\s?(?:of\s)?-?"
    r"(?:VRAM|GPU|cards?|HBM|video memory|graphics|Karte|Grafikkarte|\u663e\u5b58|\u986f\u5b58|\u663e\u5361|\u30b0\u30e9\u30dc|\u306eGPU))"
)
# Words behind a card's name that make another card of it; a device whose name looks like a model's size.
_OTHER = frozenset({"nx", "nano", "laptop", "mobile", "max"})
_DEVICE = Pattern(r"(?i:910[a-d]\d?|310p)")
_SOLD = frozenset({4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 44, 46, 48, 64, 72, 80, 94, 96, 128, 141, 180, 192, 256, 288})


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
    texts = [line[:_LONGEST] for line in lines]
    names = (name[0] for text in texts for name in _NAME.finditer(text))
    sizes = {size for name in names if (size := billions(name)) is not None and not _DEVICE.fullmatch(name)}
    cards = {(card.name, card.total_gib) for text in texts for card, _, _ in _cards(text)}
    said = {float(size["size"]) for text in texts for size in _OF_CARD.finditer(text)} & _SOLD
    card, total = next(iter(cards)) if len(cards) == 1 else ("", 0.0)
    if not cards and len(said) == 1:
        total = next(iter(said))
    places = [(text, first, last) for text in texts for _, first, last in _cards(text)]
    places += [(text, *size.span()) for text in texts for size in _OF_CARD.finditer(text) if not cards]
    several = any(_several(*place) for place in places)
    few = any(names_quantization(text) for text in texts)
    bits = bits_of_words(" ".join(texts)) if few else 16
    return ToldSetup(next(iter(sizes)) if len(sizes) == 1 else None, bits, card, total or None, several)


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


def _several(text: str, first: int, last: int) -> bool:
    """Are there more than one of the card that stands here: by a number before or behind it, or by a plural?"""
    if text[last : last + 1] == "s":
        return True
    told = [*_HOW_MANY.finditer(text[max(0, first - _NEAR) : first])]
    behind = _HOW_MANY.search(text[last : last + _NEAR])
    near = told[-1] if told else behind
    if near is None or near["one"]:
        return False
    return near["count"] is None or int(near["count"]) > 1
