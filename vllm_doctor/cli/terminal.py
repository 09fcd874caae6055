"""The terminal as the answer is laid out for it: how wide, and whether colours are wanted."""

import os
import shutil
import sys

# Whatever COLUMNS says.
_NARROWEST, _WIDEST = 20, 400
_USUAL = 100


def width() -> int:
    """Columns: COLUMNS, else the terminal's, else the usual."""
    return min(max(shutil.get_terminal_size((_USUAL, 24)).columns, _NARROWEST), _WIDEST)


def colored() -> bool:
    """Is it a terminal that has colours, and whose reader did not ask for none (NO_COLOR)?"""
    return obeys() and not os.environ.get("NO_COLOR")


def obeys() -> bool:
    """Is it a terminal that does what an escape sequence says? One that calls itself dumb shows it as signs."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}


def told(text: str) -> None:
    """Write a text of lines to standard output, laid out where somebody reads it; a file or a pipe gets it as it is."""
    from vllm_doctor.cli.streams import say

    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        from vllm_doctor.render.page import laid

        text = laid(text, width())
    say(text)
