"""What people have words for (memory, a lack of it, a load, a request), by language: spoken.json.

A row of the catalogue says which of them stand near each other, in any order, as each language and each writer has its
own. A word ends where it is written (`load`), or anywhere beside a star (`request*`); scripts without blanks have no
ends, and a word of another script ends where they begin: an English one stands in Chinese without a blank. ` * ` stands
for words between, `#` is a number.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import msgspec

from vllm_doctor.log.told_text import SENTENCE_END

_PATH = Path(__file__).with_name("spoken.json")
# So much stands between the first word of a row and each other one, and before or behind what takes it back.
_APART, _TAKES_BACK = 30, 14
_BETWEEN, _ENDING = 50, 9
# What goes well in the next clause is something else: `under load it appears, before that all is fine`.
_CLAUSE = frozenset(",;\uff0c\uff1b")
# What makes another thing of a number that stands beside it: a release, an hour, a line of code.
_NO_NUMBER = frozenset(".:_")
# Scripts below this one write a blank between two words.
_WITH_BLANKS = "\u2e80"
_LETTER = rf"[^\W{_WITH_BLANKS}-\U0010ffff]"
_APOSTROPHES = "'\u2019"
_WORDS_END = rf"(?:(?<!{_LETTER})(?={_LETTER})|(?<={_LETTER})(?!{_LETTER}))"

_Span = tuple[int, int]


def spoken_near(
    rows: Sequence[Sequence[str]], text: str, *, before: str = "", behind: str = "", among: str = ""
) -> list[_Span]:
    """Where words of each list of a row stand near a word of its first list, unless one of the list `before` is right
    before them, one of `behind` right behind, or one of `among` between them."""
    found = {span for lists in rows for span in _of(lists, text)}
    taken = _hits(before, text) if before and found else []
    given = _hits(behind, text) if behind and found else []
    others = _hits(among, text) if among and found else []
    return sorted(
        (first, last)
        for first, last in found
        if not any(first - _TAKES_BACK <= end <= first for _, end in taken)
        and not any(last <= start <= last + _TAKES_BACK and _CLAUSE.isdisjoint(text[last:start]) for start, _ in given)
        and not any(first <= start < last for start, _ in others)
    )


def ending_by_script(regex: str) -> str:
    """An expression whose words (`\\b`) end as those of the lists do."""
    return regex.replace(r"\b", _WORDS_END)


def _of(lists: Sequence[str], text: str) -> Iterator[_Span]:
    hits = [_hits(name, text) for name in lists]
    if not all(hits):
        return
    for hit in hits[0]:
        beside = [min(others, key=lambda other: _apart(hit, other)) for others in hits[1:]]
        if all(_apart(hit, other) <= _APART and _of_one(text[slice(*_both(hit, other))]) for other in beside):
            yield min(at[0] for at in (hit, *beside)), max(at[1] for at in (hit, *beside))


def _of_one(text: str) -> bool:
    """Is it of one sentence?"""
    return "\n" not in text and SENTENCE_END.search(text) is None


def _apart(one: _Span, other: _Span) -> int:
    return max(0, one[0] - other[1], other[0] - one[1])


def _both(one: _Span, other: _Span) -> _Span:
    return min(one[0], other[0]), max(one[1], other[1])


def _hits(name: str, text: str) -> list[_Span]:
    low = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
    return [span for word in _words(name) for span in _word(word, low)]


@cache
def _words(name: str) -> tuple[str, ...]:
    return tuple({word.lower(): None for of in _lists()[name].values() for word in of})


@cache
def _lists() -> dict[str, dict[str, tuple[str, ...]]]:
    return msgspec.json.decode(_PATH.read_bytes(), type=dict[str, dict[str, tuple[str, ...]]])


def _word(word: str, text: str) -> Iterator[_Span]:
    if word == "#":
        yield from _numbers(text)
        return
    first, gap, rest = word.partition(" * ")
    for start, end in _plain(first, text):
        if not gap:
            yield start, end
        else:
            later = next((at for at in _plain(rest, text[: end + _BETWEEN]) if at[0] > end), None)
            if later is not None and "\n" not in text[end : later[0]]:
                yield start, later[1]


def _numbers(text: str) -> Iterator[_Span]:
    at = 0
    for digits, signs in groupby(text, str.isdigit):
        first, at = at, at + len([*signs])
        if digits and not any(_of_number(text[i : i + 1]) for i in (first - 1, at) if i >= 0):
            yield first, at


def _of_number(sign: str) -> bool:
    return bool(sign) and (sign in _NO_NUMBER or _letter(sign))


def _plain(word: str, text: str) -> Iterator[_Span]:
    body = word.strip("*")
    at = text.find(body)
    while at >= 0:
        end = at + len(body)
        if (word[0] == "*" or not _joins(text, at - 1, at)) and (word[-1] == "*" or not _joins(text, end - 1, end)):
            yield at, _end(text, end) if word[-1] == "*" else end
        at = text.find(body, end)


def _joins(text: str, one: int, other: int) -> bool:
    """Are both of one word, of a script that sets blanks between words? `can` is none in `can't`."""
    if one < 0 or other >= len(text) or not _letter(text[one]):
        return False
    return _letter(text[other]) or (text[other] in _APOSTROPHES and text[other + 1 : other + 2] == "t")


def _letter(sign: str) -> bool:
    return sign < _WITH_BLANKS and (sign.isalnum() or sign == "_")


def _end(text: str, at: int) -> int:
    last = min(len(text), at + _ENDING)
    return next((i for i in range(at, last) if not _letter(text[i])), last)
