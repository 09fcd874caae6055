"""Text as it may be printed on a terminal, in a length that may be kept."""

import re

LINE_LIMIT = 32_768
EXCERPT_LIMIT = 600

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\-_])")
# The escape character is often lost when a log is pasted; what is left looks like "[0;36m".
_BARE_COLOUR = re.compile(r"\[(?:0|\d{1,3}(?:;\d{1,3}){1,4}|3\d|9\d|1|2|4|22)m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable_text(text: str) -> str:
    """The text without escape sequences and control characters: what may be printed on a terminal."""
    if "0m" in text:  # every colour is switched off again
        text = _BARE_COLOUR.sub("", _ANSI.sub("", text))
    if text.isprintable():
        return text
    return _CONTROL.sub("\ufffd", _ANSI.sub("", text))


def shorten(text: str, limit: int = LINE_LIMIT) -> str:
    """A line of any length as at most `limit` characters: its head and its tail with the count of what is left out."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    return f"{text[:head]} [… {len(text) - limit} characters left out …] {text[-tail:]}"
