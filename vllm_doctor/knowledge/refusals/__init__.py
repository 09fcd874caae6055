"""What a refusal asks for: the options, variables and packages that a sentence of vLLM names, and what to do with each.

vLLM refuses some thousand combinations, each in a sentence of its own; eleven releases from 0.4.3 to 0.33.0 were read
for how these sentences are built. They name an option as `--max-loras`, as the field `max_loras` or in words ("sleep
mode": words.json, mentions.py), and say right before or after the name what is wanted ("set", "must be >=", "is not
supported with": wants.py).
"""

import re
from collections.abc import Callable, Iterator

from vllm_doctor.knowledge.refusals.mentions import Mention, mentions, options_named, values_quoted
from vllm_doctor.knowledge.refusals.packages import Package, package
from vllm_doctor.knowledge.refusals.wants import CLAUSES, LISTED, Wish, compared, wanted
from vllm_doctor.knowledge.refusals.words import VllmPart, words
from vllm_doctor.records.verdict import Direction

__all__ = ["Package", "VllmPart", "Wish", "options_named", "package", "place_of", "values_quoted", "wishes", "words"]

# Longer sentences list what was found; what is asked stands before.
_READ = 1500


def place_of_refusal(file: str, told: str) -> VllmPart | None:
    """The part of vLLM that refuses in such words, by the file of the innermost call."""
    return next((p for p in words().places if re.search(p.file, file) and re.search(p.said, told)), None)


def wishes(text: str, known: Callable[[str], bool]) -> tuple[Wish, ...]:
    """What a refusal asks for, the most definite first. `known` says whether a name is an option of the release."""
    found = [w for clause in CLAUSES.split(text[:_READ]) for w in _of_clause(clause or "", known)]
    definite = any(w.direction is not Direction.CHANGE or w.exact for w in found)
    found = [w for w in found if w.exact or not definite or w.direction is not Direction.CHANGE]
    first: dict[tuple[str, str], Wish] = {}
    for wish in sorted(found, key=lambda w: (not w.exact, w.direction is Direction.CHANGE)):
        first.setdefault((wish.kind, wish.name), wish)
    return tuple(first.values())


def _of_clause(clause: str, known: Callable[[str], bool]) -> Iterator[Wish]:
    said = sorted(mentions(clause, known), key=lambda m: m.start)
    bounds: set[int] = set()
    for index, mention in enumerate(said):
        if index in bounds:
            continue
        before = clause[(said[index - 1].end if index else 0) : mention.start]
        after = clause[mention.end : said[index + 1].start if index + 1 < len(said) else len(clause)]
        other = said[index + 1] if index + 1 < len(said) else None
        pair = compared(mention, after, other)
        if pair:
            bounds.add(index + 1) if len(pair) > 1 else None
            yield from pair
            continue
        wish = wanted(mention, before, after)
        if wish is not None:
            yield wish
        elif index and LISTED.fullmatch(before):
            yield from _like_neighbour(clause, said, index)


def _like_neighbour(clause: str, said: list[Mention], index: int) -> Iterator[Wish]:
    """ "Set A or B": what is wanted of one is wanted of its neighbour."""
    left, mention = said[index - 1], said[index]
    wish = wanted(left, clause[(said[index - 2].end if index > 1 else 0) : left.start], "")
    if wish is not None and wish.exact:
        yield Wish(mention.kind, mention.name, wish.direction, mention.value, True, mention.field)
