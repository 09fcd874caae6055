"""The release of a package that an answer names, held against what this vLLM's own metadata asks for."""

from collections.abc import Iterator

from msgspec.structs import replace

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.specifiers import below_the_ends_of, both_take, is_specifier
from vllm_doctor.knowledge.version import Version
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import thing

# What ends a requirement in a command.
_ENDS = "'\"; \t"


def names_a_release(answer: Answer) -> bool:
    """Does an answer write which release of its package helps?"""
    return bool(named_by(answer))


def named_by(answer: Answer) -> dict[str, str]:
    """The packages of an answer for which it, or its command, writes which release helps."""
    each = answer.options if answer.kind == "package" else ()
    return {name: written for name in each if (written := next(_named(answer, name), None)) is not None}


def what_vllm_asks_for(case: Case, answer: Answer) -> Change | None:
    """The package as this release of vLLM asks for it, where that leaves out what the answer names; else None."""
    if not names_a_release(answer) or case.version is None or goes_round(answer):
        return None
    for name, named in named_by(answer).items():
        own, asked = versions.requires(name, case.version), asked_by(name, case.version)
        if asked and not both_take(named, asked):
            of_own = own == asked or not both_take(named, own or "")
            why = "asks for this, and does not take" if of_own else "is older than one that does not take"
            return thing(
                ChangeKind.PACKAGE,
                name,
                Direction.CHANGE,
                f"vLLM {case.version} {why} the release that helped others ({named})",
                to=asked,
                command=f"pip install '{name}{asked}'",
            )
    return None


def goes_round(answer: Answer) -> bool:
    """Is a release meant to be installed beside what is asked for, as one that is asked for and fails?"""
    return answer.kind == "package" and "--no-deps" in (answer.command or "")


def within_what_vllm_asks_for(case: Case, answer: Answer) -> Answer:
    """The answer with a command that installs nothing newer than this release of vLLM takes."""
    command = answer.command or ""
    for name in answer.options if answer.kind == "package" and not goes_round(answer) else ():
        asked = asked_by(name, case.version) if case.version is not None else ""
        for written in dict.fromkeys(_in_command(command, name)) if asked else ():
            command = command.replace(f"{name}{written}", f"{name}{below_the_ends_of(written, asked)}")
    return replace(answer, command=command or None)


def asked_by(name: str, version: Version) -> str:
    """What this vLLM asks for, no newer than what a later one still refuses; empty where it asks for nothing."""
    own = versions.requires(name, version)
    return ",".join(filter(None, (own, versions.later_end(name, version)))) if own is not None else ""


def _named(answer: Answer, name: str) -> Iterator[str]:
    """The releases that the answer or its command writes for a package; what it takes from the message is none."""
    if answer.to is not None and is_specifier(answer.to):
        yield answer.to
    yield from _in_command(answer.command or "", name)


def _in_command(command: str, name: str) -> Iterator[str]:
    for part in command.split(name)[1:]:
        written = part.split("]", 1)[-1] if part.startswith("[") else part
        end = next((at for at, sign in enumerate(written) if sign in _ENDS), len(written))
        if written[:1] in "<>=!~" and is_specifier(written[:end]):
            yield written[:end]
