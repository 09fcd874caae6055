"""The last net under an answer's text, and its figures; what others wrote is shown by `redact.visible`."""

import re

# What acts, but for line ends, tabs and what we write ourselves: colours, and a screen that `watch` begins anew.
_ACTS = re.compile(
    r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|\x1b(?!\[[0-9;]{0,30}[mHJ])"
)


def harmless(text: str) -> str:
    """The text of an answer in whatever format with what would act written as JSON has it (`\\u009b`): JSON stays the
    same JSON. The last net; what shows a text of others uses `visible`."""
    return text if text.isascii() and text.isprintable() else _ACTS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def figure(value: float) -> str:
    """A number as a person reads it: whole numbers grouped, others with as many digits as tell something."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:.3g}"
