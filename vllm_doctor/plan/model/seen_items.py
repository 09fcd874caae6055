"""What a prompt may show to a class of models: images alone, or videos too (seen_items.json)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class SeenItems(msgspec.Struct, frozen=True):
    """Classes of which a prompt takes images alone; classes that ask for the limits before they make their tower,
    in releases that do not ask for every class. Of a class that is not listed, videos may come."""

    source: str
    images_alone: frozenset[str]
    asks_limits: frozenset[str]


@cache
def _table() -> SeenItems:
    """The classes that were read."""
    return msgspec.json.decode(Path(__file__).with_name("seen_items.json").read_bytes(), type=SeenItems)


def takes_videos(name: str) -> bool:
    """May a prompt of this class have a video?"""
    return name not in _table().images_alone


def asks_limits(name: str) -> bool:
    """Did this class ask for the limits of items before its release did so for every class?"""
    return name in _table().asks_limits
