"""A traceback as rich draws it (typer's programs, lighteval, trainers), written as Python writes one, line for line.

rich/traceback.py: a panel with `FILE:LINE in NAME` above each call's code, whose own line has a sign before it, and the
exception below the panel, as Python has it. A long path is broken at the panel's width.
"""

import re
from collections.abc import Sequence

_SIDE = "│"
_TOP = re.compile(r"^(?P<before>.*?)╭─+ Traceback \(most recent call last\) ─+╮\s*$")
_BOTTOM = re.compile(r"^.*?╰─+╯\s*$")
# What Ray and vLLM write before each line of a process.
_SPEAKER = re.compile(r"\([\w .:=,/-]{1,160}\) $")
_CALL = re.compile(r"^(?P<file>\S[^│\n]{0,400}?):(?P<line>\d{1,9}) in (?P<name>\S[^│\n]{0,200}?)\s*$")
_CODE = re.compile(r"^\s*❱\s*\d{1,9}\b(?P<code>.*)$")


def unpanelled(raw: Sequence[str]) -> list[str]:
    """The same lines, as many, with each panel's calls as Python writes them; others as they are."""
    if not any("❱" in line or "╭" in line for line in raw):
        return [*raw]
    found = [*raw]
    begin: int | None = None
    for index, line in enumerate([*raw, ""]):
        inside = line.rstrip().endswith(_SIDE) and _TOP.match(line) is None
        if inside and begin is None:
            begin = index
        elif not inside and begin is not None:
            _write(found, begin, index)
            begin = None
    return found


def _write(lines: list[str], begin: int, end: int) -> None:
    """One panel: `begin` is the line below its top, `end` that of its bottom."""
    made = _calls([_parted(line.rstrip()[:-1]) for line in lines[begin:end]])
    if not any(made):
        return  # somebody's own drawing
    lines[begin:end] = made
    top = _TOP.match(lines[begin - 1]) if begin else None
    if top is not None:
        lines[begin - 1] = f"{top['before']}Traceback (most recent call last):"
    if end < len(lines) and _BOTTOM.match(lines[end]) is not None:
        lines[end] = ""


def _parted(line: str) -> tuple[str, str]:
    """Who speaks, and what stands between the sides; a paste often lacks the left side of its first line."""
    before, side, text = line.partition(_SIDE)
    if side and (not before.strip() or _SPEAKER.match(before)):
        return before, text.removeprefix(" ").rstrip()
    return "", line.rstrip()


def _calls(texts: Sequence[tuple[str, str]]) -> list[str]:
    made = [""] * len(texts)
    broken = ""
    for at, (before, text) in enumerate(texts):
        code = _CODE.match(text)
        if code is not None:
            made[at] = f"{before}    {code['code'].strip(' │')}"
            broken = ""
            continue
        call = _CALL.match(text) if not text[:1].isspace() else None
        if (whole := _CALL.match(broken + text) if broken else None) is not None:
            call = whole
        if call is not None:
            made[at] = f'{before}  File "{call["file"]}", line {call["line"]}, in {call["name"]}'
        broken = text if call is None and text and not text[:1].isspace() and _SIDE not in text else ""
    return made
