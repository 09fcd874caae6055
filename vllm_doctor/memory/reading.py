"""Reading a model's config.json: typed access whose errors name the key and the value.

A config file is foreign input. Every number is checked for its type and for a size that a real model can have, so that
a hostile file ends in one clear sentence and never in a traceback, a huge loop or a plan built on a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path

MAX_BYTES = 32 << 20  # the largest published config.json (skip lists of quantised models) is below 1 MiB


class ConfigError(Exception):
    """A model description that no plan can be built on; the text names the key, the value and what is needed."""


class Section:
    """One object of a config, with the path to it for messages."""

    def __init__(self, values: Mapping[str, object], path: str = "config.json") -> None:
        self.values = values
        self.path = path

    def _fail(self, key: str, value: object, needed: str) -> ConfigError:
        shown = repr(value)
        return ConfigError(
            f"{self.path}: {key} is {shown if len(shown) <= 80 else shown[:77] + '...'}; needed: {needed}"
        )

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
        """A whole number in [low, high] under the first key present. Raises ConfigError if absent without default."""
        key, value = self.find(keys)
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

    def ints(self, key: str, *, high: int) -> tuple[int, ...]:
        """A list of whole numbers in [0, high]; empty when absent."""
        out: list[int] = []
        for item in self.items(key) or []:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= high:
                raise self._fail(key, item, f"a list of whole numbers from 0 to {high}")
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


def _parse(text: str, path: Path) -> Section:
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{path}: not JSON ({problem}); needed: the model's config.json, complete") from None
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: holds a {type(loaded).__name__}; needed: one JSON object")
    return Section(loaded, str(path))


def read_config(path: Path) -> Section:
    """The config of a model from its config.json or from the folder that holds it. Raises ConfigError."""
    if path.is_dir():
        for name in ("config.json", "params.json"):
            if (path / name).is_file():
                return read_config(path / name)
        if (path / "model_index.json").exists():
            raise ConfigError(
                f"{path}: holds model_index.json, a diffusion pipeline; needed: a language model with a config.json"
            )
        raise ConfigError(f"{path}: no config.json in this folder; needed: a model folder as downloaded")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"{path}: is {path.stat().st_size >> 20} MiB; needed: a config.json, which is below "
                f"{MAX_BYTES >> 20} MiB"
            )
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; needed: a config.json") from None
    except OSError as problem:
        raise ConfigError(
            f"{path}: cannot be read ({problem.strerror}); needed: a config.json or a model folder"
        ) from None
    return _parse(text, path)


def checkpoint_bytes(path: Path) -> int | None:
    """Bytes of all tensors of the checkpoint beside a config: from the safetensors index, else from the file headers.
    None when the folder holds no weights."""
    folder = path if path.is_dir() else path.parent
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file() and index.stat().st_size <= MAX_BYTES:
            total = (json.loads(index.read_text(encoding="utf-8")).get("metadata") or {}).get("total_size")
            if isinstance(total, int) and total > 0:
                return total
        sizes = [tensor_bytes(f) for f in sorted(folder.glob("*.safetensors"))]
    except (OSError, ValueError, AttributeError):
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
