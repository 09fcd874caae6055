"""Values of flags as vLLM reads them: whole numbers with suffixes, fractions, switches, JSON."""

from __future__ import annotations

import json
import re

from vllm_doctor.knowledge.human_int import scaled
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.records import excerpt


class SettingError(Exception):
    """A flag's value that is no value of its kind: names the flag, the value and what is needed."""


def whole(name: str, text: str) -> int:
    """A whole number as vLLM reads it: 32768, 32k (1000), 32K (1024), 1.5M. Raises SettingError."""
    bare = re.sub(r"(?<=\d)_(?=\d)", "", text.strip())  # as Python reads numbers
    human = scaled(bare)
    if human is not None:
        return human
    if not re.fullmatch(r"\d{1,18}", bare, re.ASCII):
        raise SettingError(f"--{name}: found {text!r}; needed: a whole number of tokens or things, such as 8192 or 8k")
    return int(bare)


class Flags:
    """Typed reading of a parsed line."""

    def __init__(self, line: LaunchLine) -> None:
        self.values = line.flags
        self.model = line.model or ""

    def int(self, name: str, default: int, low: int = 0, high: int = 2**40) -> int:
        """A whole number in [low, high], or the default. Raises SettingError."""
        value = self.values.get(name)
        if value is None:
            return default
        number = whole(name, str(value))
        if not low <= number <= high:
            raise SettingError(f"--{name}: found {value}; needed: a whole number from {low} to {high}")
        return number

    def number(self, name: str, default: float, low: float, high: float, unit: str) -> float:
        """A number in [low, high], or the default. Raises SettingError."""
        value = self.values.get(name)
        if value is None:
            return default
        try:
            number = float(str(value))
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise SettingError(f"--{name}: found {value!r}; needed: {unit} from {low:g} to {high:g}")
        return number

    def text(self, name: str) -> str | None:
        """The value as text; None for a switch or an absent flag."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def on(self, name: str, *, default: bool) -> bool:
        """Is a switch on?"""
        value = self.values.get(name)
        return default if value is None else value is True or str(value).lower() == "true"

    def object(self, name: str) -> dict[str, object]:
        """A JSON object, or `key=number` pairs; empty when absent. Raises SettingError."""
        text = self.text(name)
        if text is None:
            return {}
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            if re.fullmatch(r"\w+=\d{1,18}(,\w+=\d{1,18})*", text):
                return {k: int(v) for k, v in (p.split("=") for p in text.split(","))}
            raise SettingError(f"--{name}: found {excerpt.value(text)}; needed: JSON") from None
        if not isinstance(loaded, dict):
            raise SettingError(f"--{name}: found {excerpt.value(text)}; needed: a JSON object")
        return loaded
