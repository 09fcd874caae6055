"""A unit's launch with other values, as a drop-in's text: each word as systemd has it, variables left to it."""

from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.gather.unit_line import UnitLine
from vllm_doctor.records.finding import Change
from vllm_doctor.remedy.argv import applied
from vllm_doctor.remedy.dropin import quoted


def can_change(line: UnitLine | None) -> bool:
    """Are the words vLLM's own, so that an option may be put among them? A shell's script is one word."""
    return line is not None and line.plain and is_vllm(line.words)


def text(comment: str, line: UnitLine, changes: tuple[Change, ...]) -> str:
    """The drop-in's text; `comment` is its first line, without the `#`."""
    words = " ".join(quoted(word, variables=False) for word in applied(line.words, changes))
    # A list setting must be emptied before it is set again, or systemd refuses two ExecStart= lines.
    return f"# {comment}\n[Service]\nExecStart=\nExecStart={line.prefix}{words}\n"
