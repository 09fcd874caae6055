"""Text as a reader sees it: a name is the same name with characters in it that nobody sees, or in letters of double
width. Only what names stand for is looked up so; a text without secrets stays as it was written."""

import re

# Colours and what terminals do not show, but for what ends a line or parts words.
_UNSEEN = re.compile(
    r"\x1b\[[0-9;:?]{0,30}[ -/]?[@-~]|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
# What a word processor makes of quotes.
_QUOTES = str.maketrans("\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb", '\'\'\'"""""')


def folded(text: str) -> str:
    """`text` without unseen characters, its letters and signs in their usual form (Unicode's NFKC)."""
    seen = _UNSEEN.sub("", text)
    if seen.isascii():
        return seen
    seen = seen.translate(_QUOTES)
    from unicodedata import normalize

    return normalize("NFKC", seen)
