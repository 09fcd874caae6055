"""A value of somebody else's JSON by its path: what is missing, or of another kind than was expected, is nothing."""

import re
from collections.abc import Mapping

# Of a text that is shown; a runtime's message has some hundred characters.
_LONGEST = 2000
_MOST = 4096
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([EPTGMk]i?|Ki|m|[eE]\d{1,2})?")
_FACTORS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{unit}i": 1 << (10 * power) for power, unit in enumerate("KMGTPE", 1)
}


def at(value: object, *path: str) -> object:
    """What stands under these names, one in the other."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def text(value: object, *path: str) -> str:
    """A text, bounded; "" for what is none."""
    found = at(value, *path)
    return found[:_LONGEST] if isinstance(found, str) else ""


def whole(value: object, *path: str) -> int | None:
    """A whole number that is not negative."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63 else None


def rows(value: object, *path: str) -> list[object]:
    """The items of a list, at most some thousands."""
    found = at(value, *path)
    return found[:_MOST] if isinstance(found, list) else []


def words(value: object, *path: str) -> tuple[str, ...]:
    """The texts of a list, whole: a command line is nothing without the end of its words."""
    return tuple(item for item in rows(value, *path) if isinstance(item, str))


def moment(value: object, *path: str) -> str | None:
    """A time of day in ISO 8601; None for the year 1, which stands for never."""
    found = text(value, *path)
    return found if re.match(r"[12]\d{3}-\d\d-\d\dT", found) else None


def quantity(value: object, *path: str) -> int | None:
    """A size as Kubernetes writes it (16Gi, 16G, 1e9, 128974848), in whole bytes."""
    found = at(value, *path)
    match = _QUANTITY.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
    unit = match[2] or ""
    factor = 10 ** int(unit[1:]) if unit[:1] in {"e", "E"} and unit[1:].isdigit() else _FACTORS.get(unit, 1)
    return int(float(match[1]) * (factor if unit != "m" else 0.001))
