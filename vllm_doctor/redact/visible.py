"""Text of unknown origin made fit for a terminal or a page: nothing in it can move the cursor or change colours."""

import re

# Unicode's controls, line and paragraph separators, format characters (bidirectional marks, joiners, tags: categories
# Cc, Zl, Zp, Cf), surrogates, and the fillers that are letters without a shape.
# One list of what is not seen, for a class of a pattern; `folded` takes it away, too.
UNSEEN = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(
    rf"[\x00-\x1f\x7f-\x9f{UNSEEN}\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u2028\u2029\ud800-\udfff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
)


def visible(text: str, limit: int = 2000) -> str:
    """`text` with control, bidirectional and invisible characters written out (`\\x1b`), at most `limit` characters."""
    if len(text) > limit:
        text = f"{text[: limit * 3 // 4]} […] {text[-limit // 4 :]}"
    return _UNSAFE.sub(_written_out, text.expandtabs(4))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
