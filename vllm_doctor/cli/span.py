"""A length of time as a person types it; a moment as JSON has it."""

import datetime
import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")


def seconds(text: str) -> float | None:
    """`90m`, `12h`, `7d` in seconds; None for anything else."""
    found = _SPAN.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2]] if found is not None else None


def stamp(at: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC; empty for what is no moment."""
    try:
        return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
