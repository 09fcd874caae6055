"""Takes off the frame that a terminal's program drew around the lines of a log, and joins what it broke at its width.

K9s, rich's panels and their like write `│ line        │`; who copies that copies the frame. Who quotes a log in an
answer, a mail or Markdown, or keeps it in a script, puts the same mark before each line.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import mode

from vllm_doctor.knowledge.pattern import Pattern

_SIDE = "│"
# A comment's in shell, Python, C and Go, and a block's in YAML and Scala; a quotation's, which is not Python's prompt.
_COMMENTS = ("# ", "// ", "| ")
_QUOTED = Pattern(r"(?!>>> )(?:> ?){1,6}")
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
    """The lines without the mark of a comment that stands before each of them, or of a quotation that stands before
    two or more, one below the other."""
    told = [line for line in raw if line.strip()]
    mark = next((m for m in _COMMENTS if all(f"{line} ".startswith(m) for line in told)), None)
    rows = sum(line.rstrip().endswith("|") for line in told)  # a table's rows end as they begin
    if mark is not None and len(told) >= _FEWEST and 2 * rows < len(told):
        return [line[len(mark) :] for line in raw]
    marks = [_QUOTED.match(line) for line in raw]
    if not any(one and two for one, two in pairwise(marks)):
        return raw
    return [line[mark.end() :] if mark else line for line, mark in zip(raw, marks, strict=True)]


def _framed(line: str) -> bool:
    """Is there one side on the left, one on the right and none between?"""
    return len(line) > _SIDES and line[0] == line[-1] == _SIDE and line.count(_SIDE) == 2


def _inner(raw: str, line: str) -> str:
    """What stands in the frame; of a line whose one side was not copied, too."""
    if _framed(line) or (line.count(_SIDE) == 1 and _SIDE in {line[0], line[-1]}):
        return line.removeprefix(_SIDE).removeprefix(" ").removesuffix(_SIDE).rstrip()
    return raw
