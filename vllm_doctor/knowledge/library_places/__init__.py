"""What a package does for vLLM, by the file of its code that refused or failed: library_places.json.

A library's sentence tells what it does not take, and not which setting of vLLM, which file or whose request it read.
The place tells: Transformers' generation/configuration_utils.py reads generation_config.json and nothing else, Ray's
util/placement_group.py what the launch reserves. So one row serves all sentences that its file raises.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.pattern import compiled


class LibraryPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files of a package by what they do for vLLM.

    `files` matches the innermost call's file, `functions` its function where one file serves several purposes, `kinds`
    the exception's class; `when` is left out where the same code runs at the start and for a request. `layer` is the
    part that it belongs to, where that is another than the file's own; `title` the problem in general, where the
    sentence itself may not be shown or says it worse; `stated`: the sentence says it better than the title.
    """

    id: str
    files: str
    answers: tuple[Answer, ...]
    functions: str = ""
    kinds: tuple[str, ...] = ()
    when: Literal["start", "request", ""] = ""
    layer: str = ""
    title: str = ""
    stated: bool = False


@cache
def library_places() -> tuple[LibraryPlace, ...]:
    """All places, the narrower first."""
    return msgspec.json.decode(
        Path(__file__).with_name("library_places.json").read_bytes(), type=tuple[LibraryPlace, ...]
    )


def library_place_of(file: str, function: str, kind: str, *, serving: bool | None) -> LibraryPlace | None:
    """The place of an innermost call; None where nobody has read what the file does, or where it is not known whether
    the server was up (`serving` is None) and the same code serves both."""
    if serving is None:
        both = [library_place_of(file, function, kind, serving=up) for up in (False, True)]
        told = {one.id: one for one in both if one is not None}
        return next(iter(told.values())) if len(told) == 1 else None
    now = "request" if serving else "start"
    return next((one for one in library_places() if one.when in {"", now} and _is(one, file, function, kind)), None)


def _is(place: LibraryPlace, file: str, function: str, kind: str) -> bool:
    if place.kinds and kind not in place.kinds:
        return False
    return _found(place.files, file) and (not place.functions or _found(place.functions, function))


def _found(regex: str, text: str) -> bool:
    return compiled(regex).search(text) is not None
