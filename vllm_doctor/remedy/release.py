"""Another release of vLLM, as the reader's medium brings it: a package, an image's tag, a line of the inventory."""

import re
from collections.abc import Sequence

from vllm_doctor.knowledge.images import release_of
from vllm_doctor.launch import container, quote
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind

_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:rc\d+|\.post\d+)?")
_IMAGE = "vllm/vllm-openai"
_BIN = re.compile(r"(/[\w./+-]+/bin)/(?:vllm|python[\d.]*)")


def wanted(changes: Sequence[Change]) -> str | None:
    """The release that the first change asks for; None where it asks for none by its number."""
    for change in changes[:1]:
        told = str(change.after)
        if change.kind is ChangeKind.PACKAGE and change.name == "vllm-version" and _RELEASE.fullmatch(told):
            return told
    return None


def package(release: str, launch: Sequence[str]) -> str:
    """What installs it, into the environment of the program where that is known."""
    found = _BIN.fullmatch(launch[0]) if launch else None
    if found is None:
        return f"pip install vllm=={release}   # in the environment that starts it"
    return f"{quote.word(found[1])}/python -m pip install vllm=={release}"


def image(release: str) -> str:
    """vLLM's own image of it."""
    return f"{_IMAGE}:v{release}"


def moved(kept: tuple[str, ...], release: str) -> tuple[str, ...] | None:
    """The words up to and with the image, of which the tag names another release; None where the tag is more than a
    release (a variant is not built for each), or the image is not vLLM's own."""
    name, _, tag = kept[-1].rpartition(":")
    if release_of(kept[-1]) is None or not _RELEASE.fullmatch(tag.removeprefix("v")):
        return None
    return (*kept[:-1], f"{name}:v{release}")


def of_container(words: tuple[str, ...], release: str) -> tuple[str, ...] | None:
    """A `docker run …` with the other image; None where it is none, or `moved` knows none."""
    told = container.split(words)
    kept = moved(told.kept, release) if told is not None else None
    return None if told is None or kept is None else (*kept, *words[len(told.kept) :])
