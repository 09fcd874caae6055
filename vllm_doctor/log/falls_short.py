"""What a person's figures say by themselves: so much is free, and more is wanted of it.

A size is free or wanted by the word that stands nearest to it (lists `free`, `only`, `need` and `make` of spoken.json),
in any language and order; a number without a unit has the unit of the size before it.
"""

from collections.abc import Iterator

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import places

_SIZE = Pattern(
    r"(?<![\w.,-])(?P<number>\d{1,6}(?:[.,]\d{1,3})?)"
    r"(?: ?(?P<unit>[KMGT\u041a\u041c\u0413\u0422])(?:i?[Bo]|[\u0411\u0431])?)?(?![\w%]|[.,:/-]\d)"
)
_GIB = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10}
_CYRILLIC = str.maketrans("\u041a\u041c\u0413\u0422", "KMGT")
# So far from a size the word stands that tells its part; one before it, `needs 9 GB`, or behind, `9 GB are free`.
_NEAR = 16
_FREE, _WANTED = "told-free", "told-wanted"


class Short(msgspec.Struct, frozen=True):
    """GiB that are free and that are wanted, and where both stand; `total`: the largest size beside them, if any."""

    free: float
    wanted: float
    total: float | None
    first: int
    last: int


class _Size(msgspec.Struct, frozen=True):
    gib: float
    first: int
    last: int


def falls_short(text: str) -> Short | None:
    """What is free and less than what is wanted, where a text says both once."""
    sizes = list(_sizes(text))
    free, wanted = ([one for one in sizes if _is(one, row, sizes, text)] for row in (_FREE, _WANTED))
    if len(free) != 1 or len(wanted) != 1 or free[0].gib >= wanted[0].gib:
        return None
    both = (free[0], wanted[0])
    more = max((one.gib for one in sizes if one.gib > wanted[0].gib), default=None)
    first, last = min(one.first for one in both), max(one.last for one in both)
    return Short(free[0].gib, wanted[0].gib, more, first, last)


def _sizes(text: str) -> Iterator[_Size]:
    unit = ""
    for found in _SIZE.finditer(text):
        number = float(found["number"].replace(",", "."))
        unit = (found["unit"] or "").translate(_CYRILLIC) or (unit if number % 1 and number > 1 else "")
        if unit:
            yield _Size(number * _GIB[unit], found.start(), found.end())


def _is(size: _Size, row: str, sizes: list[_Size], text: str) -> bool:
    """Is it the size that stands nearest to a word of this row?"""
    for word in places(row, text):
        away = {other: _away(word, other) for other in sizes}
        if away[size] <= _NEAR and away[size] == min(away.values()):
            return True
    return False


def _away(word: tuple[int, int], size: _Size) -> int:
    return max(0, word[0] - size.last, size.first - word[1])
