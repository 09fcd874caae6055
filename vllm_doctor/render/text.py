"""Text of unknown origin made fit for a terminal or a page: nothing in it can move the cursor or change colours."""

import re

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str, limit: int = 2000) -> str:
    """`text` with control, bidirectional and invisible characters written out (`\\x1b`), at most `limit` characters."""
    if len(text) > limit:
        text = f"{text[: limit * 3 // 4]} […] {text[-limit // 4 :]}"
    return _UNSAFE.sub(_written_out, text.expandtabs(4))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def figure(value: float) -> str:
    """A number as a person reads it: whole numbers grouped, others with as many digits as tell something."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:.3g}"
