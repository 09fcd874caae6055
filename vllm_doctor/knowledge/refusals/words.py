"""words.json: how features are called in words, which option holds a field or a class, which option a part obeys."""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor.records.verdict import Direction

# How a feature is turned off: without the option, by a size of 1, by False, by the option itself, by another value.
Off = Literal["", "remove", "one", "false", "add", "swap"]


class Feature(msgspec.Struct, frozen=True):
    """A feature as sentences call it (a pattern), and its option by release: the first that exists."""

    said: str
    options: tuple[str, ...]
    off: Off


class VllmPart(msgspec.Struct, frozen=True):
    """A part of vLLM by its file (and by what it says there), and the option that this part obeys.

    `kind` says where it is no option: a variable, a thing of the host, the release itself.
    """

    file: str
    options: tuple[str, ...]
    direction: Direction
    why: str
    said: str = ""
    kind: Literal["flag", "env", "os", "package"] = "flag"
    to: str | None = None


class Words(msgspec.Struct, frozen=True):
    """The whole of words.json.

    `fields`: fields inside an option that takes JSON. `classes`: classes of the configuration. `debug`: variables that
    show more and cure nothing, or that lift a protection. `never`: options that rules of their own speak about.
    `packages`: names of packages where the sentences use another.
    """

    features: tuple[Feature, ...]
    fields: dict[str, tuple[str, ...]]
    classes: dict[str, tuple[str, ...]]
    places: tuple[VllmPart, ...]
    debug: tuple[str, ...]
    never: tuple[str, ...]
    not_variables: tuple[str, ...]
    packages: dict[str, str]


@cache
def words() -> Words:
    """The words, as data."""
    return msgspec.json.decode(Path(__file__).with_name("words.json").read_bytes(), type=Words)
