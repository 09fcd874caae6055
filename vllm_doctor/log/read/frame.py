"""Takes off the frame that a terminal's program drew around the lines of a log, and joins what it broke at its width.

K9s, rich's panels and their like write `│ line        │`; who copies that copies the frame. Who quotes a log in an
answer or keeps it in a script puts the same mark before each line.
"""

from collections.abc import Sequence
from statistics import mode

_SIDE = "│"
# An answer's, and a comment's in shell, Python, C and Go.
_QUOTES = ("> ", "# ", "// ")
# Fewer lines than these may be a table's, or somebody's own drawing.
_FEWEST = 3
# The frame's two sides, each with a blank.
_SIDES = 4


def unframed(raw: Sequence[str]) -> tuple[list[str], int | None]:
    """The lines without a frame, and how wide the text in it may be; None where there is none."""
    raw = _unquoted(raw)
    lines = [line.strip() for line in raw]
    framed = [_framed(line) for line in lines]
    if sum(framed) < _FEWEST:
        return [*raw], None
    width = mode(len(line) for line, whole in zip(lines, framed, strict=True) if whole) - _SIDES
    return [_inner(before, line) for before, line in zip(raw, lines, strict=True)], width


def _unquoted(raw: Sequence[str]) -> Sequence[str]:
    """The lines without the mark that stands before each of them."""
    told = [line for line in raw if line.strip()]
    if len(told) < _FEWEST:
        return raw
    mark = next((m for m in _QUOTES if all(f"{line} ".startswith(m) for line in told)), None)
    return raw if mark is None else [line[len(mark) :] for line in raw]


def _framed(line: str) -> bool:
    """Is there one side on the left, one on the right and none between?"""
    return len(line) > _SIDES and line[0] == line[-1] == _SIDE and line.count(_SIDE) == 2


def _inner(raw: str, line: str) -> str:
    """What stands in the frame; of a line whose one side was not copied, too."""
    if _framed(line) or (line.count(_SIDE) == 1 and _SIDE in {line[0], line[-1]}):
        return line.removeprefix(_SIDE).removeprefix(" ").removesuffix(_SIDE).rstrip()
    return raw
