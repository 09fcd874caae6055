"""Which program writes errors in which form, and where to look on: programs.json, the more telling first.

The forms are rows of the catalogue of messages (log/catalogue/programs.json): a form is of a logger that many programs
use, and what the line says tells which of them it was.
"""

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.pattern import Pattern


class Neighbour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program around vLLM: it writes errors in these `forms`, where `who` matches the line or `beside` the text
    around it (either, where both are given; any line, where none is). `next` is where to look on, with what to send
    along. `alone`: it starts vLLM, or may be a part of its process, so it counts only where vLLM wrote no line.
    `installs`: it installs vLLM, or makes an environment the one in use.
    """

    id: str
    name: str
    forms: tuple[str, ...]
    next: str
    who: str = ""
    beside: str = ""
    alone: bool = False
    ran_by: str = ""
    in_front: bool = False
    installs: bool = False


@cache
def programs() -> tuple[Neighbour, ...]:
    """All programs, the more telling first."""
    return msgspec.json.decode(Path(__file__).with_name("programs.json").read_bytes(), type=tuple[Neighbour, ...])


@cache
def steps() -> tuple[Answer, ...]:
    """What cures an error of any program, where it is the system's or the network's word: steps.json."""
    return msgspec.json.decode(Path(__file__).with_name("steps.json").read_bytes(), type=tuple[Answer, ...])


@cache
def forms() -> tuple[str, ...]:
    """Every form in which one of them writes an error."""
    return tuple(dict.fromkeys(form for one in programs() for form in one.forms))


@cache
def forms_of_installers() -> tuple[str, ...]:
    """The forms in which whoever installs vLLM says that it did not."""
    return tuple(dict.fromkeys(form for one in programs() if one.installs for form in one.forms))


def program_of(form: str, line: str, around: str = "") -> Neighbour | None:
    """The program that wrote a line of this form; None where nothing tells, as any script may write `Error: `."""
    return next((one for one in programs() if form in one.forms and _tells(one, line, around)), None)


def _tells(one: Neighbour, line: str, around: str) -> bool:
    asked = ((one.who, line), (one.beside, around))
    return not (one.who or one.beside) or any(regex and _pattern(regex).search(text) for regex, text in asked)


@cache
def _pattern(regex: str) -> Pattern:
    return Pattern(regex)
