"""Text as a reader sees it: a name is the same name with characters in it that nobody sees, or in letters of double
width. Only what names stand for is looked up so; a text without secrets stays as it was written."""

import re

from vllm_doctor.redact.visible import UNSEEN

# Colours and what terminals do not show, but for what ends a line or parts words.
_UNSEEN = re.compile(rf"\x1b\[[0-9;:?]{{0,30}}[ -/]?[@-~]|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{UNSEEN}]")
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
