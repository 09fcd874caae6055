"""The times that stand in front of lines: ISO with or without a zone, or vLLM's own, which name no year."""

from datetime import UTC, datetime

from vllm_doctor.knowledge.pattern import Pattern

_ISO = Pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_CLOCK = Pattern(r"\b(\d\d):(\d\d):\d\d")
_DAY = Pattern(r"(?:\d{4}-)?(\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_WHOLE_DAY = Pattern(r"(20\d\d-[01]\d-[0-3]\d)[T ]")
# journald and syslog, in English
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG = Pattern(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)")


def is_iso(at: str) -> bool:
    """Does it begin as an ISO time does?"""
    return _ISO.match(at) is not None


def day_and_time(at: str) -> str | None:
    """Day and time without the year, as vLLM writes them, so that texts of one log compare; None for any other form."""
    if (found := _DAY.match(at)) is not None:
        return f"{found[1]} {found[2]}"
    short = _SYSLOG.match(at)
    if short is None or short[1] not in _MONTHS:
        return None
    return f"{_MONTHS.index(short[1]) + 1:02d}-{int(short[2]):02d} {short[3]}"


def day_of(at: str | None) -> str | None:
    """The day with its year, `2025-01-03`; None of a time that names no year."""
    found = _WHOLE_DAY.match(at or "")
    return found[1] if found is not None else None


def minute_of_day(at: str | None) -> int | None:
    """The minute of the day, from 0; None without a time of day."""
    found = _CLOCK.search(at or "")
    return int(found[1]) * 60 + int(found[2]) if found is not None else None


def second_of_year(at: str | None) -> int | None:
    """A time as seconds that compare within a year, of months of 31 days."""
    told = day_and_time(at) if at is not None else None
    if told is None:
        return None
    month, day, hour, minute, second = (int(told[n : n + 2]) for n in (0, 3, 6, 9, 12))
    return (((month * 31 + day) * 24 + hour) * 60 + minute) * 60 + second


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """How much time lies between two stamps of the same form; None where they cannot be compared."""
    if earlier is None or later is None:
        return None
    moments = [_moment(text) for text in (earlier, later)]
    if moments[0] is None or moments[1] is None:
        return None
    return abs((moments[1] - moments[0]).total_seconds())


def epoch(at: str | None) -> float | None:
    """An ISO time with its zone as seconds since 1970; None for any other, and for the journal's word for no time."""
    try:
        moment = datetime.fromisoformat((at or "").replace(",", "."))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None and moment.timestamp() > 0 else None


def _moment(text: str) -> datetime | None:
    """vLLM's own stamps name no year: the same one stands in for it."""
    try:
        if text[2:3] == "-":
            return datetime.fromisoformat(f"2000-{text.replace(',', '.')}").replace(tzinfo=UTC)
        moment = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def seconds_of(span: str) -> float:
    """A span as a bar of progress counts it (`1:02:03`, `02:03`), in seconds."""
    total = 0
    for part in span.split(":"):
        total = total * 60 + int(part or 0)
    return float(total)
