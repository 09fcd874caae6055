"""Reading a model's config.json: typed access whose errors name the key and the value.

A config file is foreign input. Every number is checked for its type and for a size that a real model can have, so that
a hostile file ends in one clear sentence and never in a traceback, a huge loop or a plan built on a guess.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import isfinite
from pathlib import Path

from vllm_doctor.gather.bounded import all_of, json_value
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Unknown

MAX_BYTES = 32 << 20  # the largest published config.json (skip lists of quantized models) is below 1 MiB


class ConfigError(Exception):
    """A model description that no plan can be built on; the text names the key, the value and what is needed."""


def of_each_layer(value: object) -> object:
    """What a list has for every layer alike, as Hunyuan's has its experts; anything else as it is."""
    if isinstance(value, list) and value and all(one == value[0] for one in value):
        return value[0]
    return value


class Section:
    """One object of a config, with the path to it for messages. Two with one text are one: what was found out about a
    config stands for each launch that is planned with it."""

    def __init__(self, values: Mapping[str, object], path: str = "config.json") -> None:
        self.values = values
        self.path = path

    @cached_property
    def _told(self) -> tuple[str, str]:
        # As text: to Python 1, 1.0 and true are equal, and what is said of them is not.
        return self.path, json.dumps(self.values)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Section) and self._told == other._told)

    def __hash__(self) -> int:
        return hash(self._told)

    def _fail(self, key: str, value: object, needed: str) -> ConfigError:
        return ConfigError(f"{self.path}: {key} is {excerpt.value(value)}; needed: {needed}")

    def has(self, *keys: str) -> bool:
        """Is any of these keys there with a value?"""
        return any(self.values.get(k) is not None for k in keys)

    def find(self, keys: Iterable[str]) -> tuple[str, object]:
        """The first of these keys that has a value, and that value; ("", None) if there is none."""
        for key in keys:
            if self.values.get(key) is not None:
                return key, self.values[key]
        return "", None

    def whole(self, *keys: str, low: int = 1, high: int, default: int | None = None) -> int:
        """A whole number in [low, high] under the first key present, or the one that is there for each layer. Raises
        ConfigError if absent without default."""
        key, value = self.find(keys)
        value = of_each_layer(value)
        if not key:
            if default is None:
                raise ConfigError(f"{self.path}: {' or '.join(keys)} is missing; needed: a whole number")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or int(value) != value:
            raise self._fail(key, value, "a whole number")
        if not low <= value <= high:
            raise self._fail(key, value, f"a whole number from {low} to {high}")
        return int(value)

    def number(self, key: str, default: float, *, low: float = 0.0, high: float = 1e9) -> float:
        """A number in [low, high], or the default when absent."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._fail(key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean, or the default when absent."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._fail(key, value, "true or false")
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """A string, or the default when absent."""
        key, value = self.find(keys)
        if not key:
            return default
        if not isinstance(value, str):
            raise self._fail(key, value, "a text")
        return value

    def items(self, key: str) -> list[object] | None:
        """A list, or None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._fail(key, value, "a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        listed = self.items(key) or []
        out: list[str] = []
        for item in listed:
            if not isinstance(item, str):
                raise self._fail(key, item, "a list of texts")
            out.append(item)
        return tuple(out)

    def ints(self, key: str, *, high: int, low: int = 0) -> tuple[int, ...]:
        """A list of whole numbers in [low, high]; empty when absent."""
        out: list[int] = []
        for item in self.items(key) or []:
            if isinstance(item, bool) or not isinstance(item, int) or not low <= item <= high:
                raise self._fail(key, item, f"a list of whole numbers from {low} to {high}")
            out.append(item)
        return tuple(out)

    def section(self, key: str) -> Section | None:
        """A nested object, or None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._fail(key, value, "an object")
        return Section(value, f"{self.path}: {key}")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose keys all stand once, or twice with one value: Python takes the last, another reader the first."""
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            raise ValueError(f"{key} stands twice, as {values[key]!r:.60} and as {value!r:.60}")
        values[key] = value
    return values


def _parse(text: bytes, path: Path) -> Section:
    read = json_value(text, str(path), "", object_pairs_hook=_once)
    if isinstance(read, Unknown):
        raise ConfigError(f"{read.reason}; needed: the model's config.json, complete")
    if not isinstance(read.value, dict):
        raise ConfigError(f"{path}: holds a {type(read.value).__name__}; needed: one JSON object")
    return Section(read.value, str(path))


def read_config(path: Path) -> Section:
    """The config of a model from its config.json or from the folder that holds it. Raises ConfigError."""
    try:
        return _folder(path) if stat.S_ISDIR(path.stat().st_mode) else _parse(_text(path), path)
    except OSError as problem:
        raise ConfigError(
            f"{problem.filename or path}: cannot be read ({problem.strerror}); needed: a config.json or a model folder"
        ) from None


def _folder(path: Path) -> Section:
    there = {entry.name for entry in path.iterdir()}
    for name in ("config.json", "params.json"):
        if name in there:
            return _parse(_text(path / name), path / name)
    if "model_index.json" in there:
        raise ConfigError(
            f"{path}: holds model_index.json, a diffusion pipeline; needed: a language model with a config.json"
        )
    raise ConfigError(f"{path}: no config.json in this folder; needed: a model folder as downloaded")


def _text(path: Path) -> bytes:
    raw = all_of(str(path), "--model-config", MAX_BYTES)
    if isinstance(raw, Unknown):
        raise ConfigError(f"{raw.reason}; needed: a config.json, which is below 1 MiB")
    return raw


def checkpoint_bytes(path: Path) -> int | None:
    """Bytes of all tensors of the checkpoint beside a config: from the safetensors index, else from the file headers.
    None when the folder holds no weights. Raises ConfigError for an index that is none."""
    folder = path if path.is_dir() else path.parent
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            metadata = _parse(_text(index), index).section("metadata")
            if metadata is not None and metadata.has("total_size"):
                return metadata.whole("total_size", high=1 << 50)
        # Mistral's own format lies beside the common one, with the same tensors.
        sizes = [tensor_bytes(f) for f in folder.glob("*.safetensors") if not f.name.startswith("consolidated")]
    except OSError:
        return None
    known = [s for s in sizes if s is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def tensor_bytes(file: Path) -> int | None:
    """Bytes of the tensors in one safetensors file: the file without its header. None for another format."""
    with file.open("rb") as handle:
        head = handle.read(8)
    size = file.stat().st_size
    header = int.from_bytes(head, "little") if len(head) == 8 else size
    return size - 8 - header if 0 < header < size - 8 else None
