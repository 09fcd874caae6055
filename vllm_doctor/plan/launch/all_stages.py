"""Which classes make the vocabulary's embedding and the head on each pipeline stage, though the first and the last
alone use them (all_stages.json)."""

from __future__ import annotations

import enum
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version


class OnEach(enum.Enum):
    """What each stage makes."""

    BOTH = "both"
    EMBEDDING = "embedding"
    HEAD = "head"
    NEITHER = "neither"


class _Made(msgspec.Struct, frozen=True):
    """Type of the text model → from which release on it makes what; nothing for the first that has it."""

    source: str
    model_types: dict[str, tuple[tuple[str | None, OnEach], ...]]


@cache
def _made() -> _Made:
    return msgspec.json.decode(Path(__file__).with_name("all_stages.json").read_bytes(), type=_Made)


def on_each_stage(model_type: str, version: Version) -> OnEach:
    """What each stage makes of a model of this type; neither for a type that is not listed."""
    found = OnEach.NEITHER
    for since, made in _made().model_types.get(model_type, ()):
        if since is None or version >= as_version(since):
            found = made
    return found
