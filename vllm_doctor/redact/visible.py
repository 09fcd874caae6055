"""Text of unknown origin made fit for a terminal or a page: nothing in it can move the cursor or change colours."""

import re

# Unicode's controls, line and paragraph separators, format characters (bidirectional marks, joiners, tags: categories
# Cc, Zl, Zp, Cf), surrogates, and the fillers that are letters without a shape.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str, limit: int = 2000) -> str:
    """`text` with control, bidirectional and invisible characters written out (`\\x1b`), at most `limit` characters."""
    if len(text) > limit:
        text = f"{text[: limit * 3 // 4]} […] {text[-limit // 4 :]}"
    return _UNSAFE.sub(_written_out, text.expandtabs(4))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
