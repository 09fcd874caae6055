"""The call of a failure whose calls nobody kept: sentences of vLLM and its libraries tell which function says them."""

import msgspec

from vllm_doctor.knowledge.version import Version, as_version, parse_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.traceback import Frame, Link

# As an installed release prints its files; no line, as each release has it elsewhere.
_PACKAGES = "/site-packages/"
_RAISES = "raise "


def last_to_say(fault: Fault) -> Version | None:
    """The last release that raises in the words of this failure; None where no sentence of vLLM fits, or the failing
    call is of another file."""
    crash = fault.crash
    if crash is None or not crash.root.message.strip():
        return None
    from vllm_doctor.knowledge.said_by import said_by

    told = said_by(crash.root.kind, crash.root.message, libraries=False)
    frames = crash.root.frames
    here = told is not None and (not frames or frames[-1].file.endswith(told.file))
    return told.last if told is not None and here else None


def last_with_its_calls(fault: Fault) -> Version | None:
    """The last release that has all of vLLM's functions through which this failure went; None where the newest has
    them."""
    from vllm_doctor.knowledge.functions import last_with

    frames = [f for link in fault.crash.links for f in link.frames] if fault.crash is not None else []
    ours = (f for f in frames if says(f.file, "call-of-vllm"))
    last = last_with((f.file, "" if f.function.startswith("<") else f.function) for f in ours)
    return as_version(last) if last is not None else None


def told_by_words(link: Link) -> bool:
    """Is its one call known by what it said? Who called it, and when, is open then."""
    return len(link.frames) == 1 and not link.frames[0].line


def kind_raised(link: Link) -> str:
    """The class that the code raises: what quotes another's words under its own name (pydantic) is told by them."""
    return link.frames[0].code.removeprefix(_RAISES).removesuffix("(") if told_by_words(link) else link.kind


def with_its_call(fault: Fault, version: str | None) -> Fault:
    """The fault, with the one call that raises in its words where its traceback was cut away; else as it is."""
    crash = fault.crash
    if crash is None or any(link.frames for link in crash.links) or not crash.root.message.strip():
        return fault
    from vllm_doctor.knowledge.said_by import said_by

    told = said_by(crash.root.kind, crash.root.message, parse_version(version) if version else None)
    if told is None:
        return fault
    call = Frame(f"{_PACKAGES}{told.file}", 0, told.function, f"{_RAISES}{told.kind}(")
    links = tuple(msgspec.structs.replace(k, frames=(call,)) if k is crash.root else k for k in crash.links)
    return msgspec.structs.replace(fault, crash=msgspec.structs.replace(crash, links=links))
