"""Which part of the whole failed, for every failure: layers.json, asked by what was said and by the calls.

A layer is told first by a sentence that only it writes, else by the innermost call that belongs to any. Its answers
are what cures such failures in general; each names what must be in the message or the file for it to apply.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.pattern import compiled


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part: `said` matches an exception's text, `files` a call's file. `next` is the step where no setting cures,
    with what to send along. `first` tells more than any `said`: what the kernel answers of a file, whose
    name is nobody's word. `kernels`: its calls compute on the card, and another kernel may do the same.
    `broken` is the problem where code of this part fails on a state of its own, `refuses` where it says in a sentence
    of its own what it does not take, `library` where only a library that it calls does; `symbols` matches functions and
    libraries of native code that are of this part alone. `voice` is the part as the one who refuses in a sentence."""

    id: str
    name: str
    next: str
    first: str = ""
    said: str = ""
    files: str = ""
    symbols: str = ""
    kernels: bool = False
    answers: tuple[Answer, ...] = ()
    broken: str = ""
    refuses: str = ""
    library: str = ""
    voice: str = ""


@cache
def layers() -> tuple[Layer, ...]:
    """All layers, the more telling first."""
    return msgspec.json.decode(Path(__file__).with_name("layers.json").read_bytes(), type=tuple[Layer, ...])


@cache
def features() -> tuple[Answer, ...]:
    """What turns off the feature that a failed check is about, by the words of the check and of its function."""
    path = Path(__file__).with_name("features.json")
    return msgspec.json.decode(path.read_bytes(), type=tuple[Answer, ...])


def layer_of(said: Sequence[str], files: Sequence[str]) -> Layer | None:
    """The layer of a failure: `said` are its exceptions as `Kind: message`, the first raised first. What that one says
    weighs more than the calls (`files`, outermost first), and they more than the others. None where nothing tells."""
    by_call = (_first(file, "files") for file in reversed(files))
    by_word = (_first(text, "first") or _first(text, "said") for text in said)
    return next(by_word, None) or next((f for f in by_call if f is not None), None) or next(filter(None, by_word), None)


def layer_of_native(calls: Sequence[str], files: Sequence[str]) -> Layer | None:
    """The layer of a crash in native code: `calls` are its functions and libraries, `files` those of Python, both
    outermost first. The innermost that tells decides: a native function before the Python that called it."""
    told = (_first(call, "symbols") for call in reversed(calls))
    return next((one for one in told if one is not None), None) or layer_of((), files)


def _first(text: str, told_by: Literal["first", "said", "files", "symbols"]) -> Layer | None:
    found = ((layer, getattr(layer, told_by)) for layer in layers())
    return next((layer for layer, regex in found if regex and compiled(regex).search(text)), None)
