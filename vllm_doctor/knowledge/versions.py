"""What each vLLM release accepts and assumes: options, environment variables, defaults.

The facts are in history/, made from the releases' own files (releases/, written by tools/release.py); what a person
knows beside them is in notes.json. Between two releases that were read and disagree the honest answer is "unknown",
and it is given as None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Literal

from vllm_doctor.knowledge.history import ReleaseHistory, history
from vllm_doctor.knowledge.specifiers import is_closed, upper_end
from vllm_doctor.knowledge.version import Version, as_version, parse_version

__all__ = [
    "GIB",
    "BatchDefaults",
    "Default",
    "Engine",
    "Expression",
    "FlagFact",
    "Version",
    "as_version",
    "batch_defaults",
    "canonical",
    "complete",
    "default_utilization",
    "engine",
    "env",
    "env_names",
    "flag",
    "flag_names",
    "later_end",
    "literal",
    "metric_note",
    "newest_known",
    "newest_on",
    "out_on",
    "parse_version",
    "requires",
    "sampled",
]

GIB = 1 << 30


@dataclass(frozen=True)
class Expression:
    """A default that the source computes; the text is the source's own."""

    source: str


Literalish = None | bool | int | float | str
Default = Literalish | Expression


@dataclass(frozen=True)
class FlagFact:
    """One flag (or environment variable) at one version.

    `exists` is None where the two sampled neighbours disagree. `default` None means "resolved at start-up" (see
    `batch_defaults`); an Expression is computed by vLLM. `choices` None means any value of the flag's type.
    """

    name: str
    exists: bool | None
    default: Default = None
    choices: tuple[Literalish, ...] | None = None
    negatable: bool = False
    deprecated: bool = False
    note: str = ""
    first: str = ""
    last: str = ""
    aliases: tuple[str, ...] = ()


def _options() -> ReleaseHistory:
    return history("options", "options")


def _variables() -> ReleaseHistory:
    return history("environment", "environment")


@cache
def _notes() -> Mapping[str, Mapping[str, str]]:
    loaded: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("notes.json").read_text(encoding="utf-8"))
    return loaded


def metric_note(name: str) -> str:
    """What a person must know of a metric beside its kind and labels; "" for most."""
    return _notes()["metrics"].get(name, "")


def sampled() -> tuple[Version, ...]:
    """The releases whose wheels were read, oldest first."""
    return _options().releases


def complete(version: Version | str) -> bool:
    """Was this very release read?"""
    return as_version(version) in sampled()


def newest_known() -> Version:
    """The newest release that was read; a later one is planned as this one, and the plan says so."""
    return sampled()[-1]


def newest_on(day: str) -> Version | None:
    """The newest release that was read and out on this day (`2025-01-03`); None before the first of them."""
    return max((release for out, release in _released() if out <= day), default=None)


def out_on(release: Version) -> str | None:
    """The day on which a release came out; None of one that was not read."""
    return next((day for day, one in _released() if one == release), None)


@cache
def _released() -> tuple[tuple[str, Version], ...]:
    days = json.loads(Path(__file__).with_name("released.json").read_text(encoding="utf-8"))["days"]
    return tuple((day, as_version(release)) for release, day in days.items())


def literal(text: object) -> Default:
    """A Python source literal as its value; any other expression as an Expression."""
    if not isinstance(text, str):
        return None
    plain = {"None": None, "True": True, "False": False}
    if text in plain:
        return plain[text]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"\d+( \* \d+)+", text):  # a size, as in 394 * 1024 * 1024
        return prod(int(factor) for factor in text.split(" * "))
    if re.fullmatch(r"-?\d+\.\d*(e-?\d+)?", text):
        return float(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        return text[1:-1]
    return Expression(text)


@cache
def _names() -> Mapping[str, str]:
    """Every spelling that a release takes → the option's own name; a name that is one option's own is no alias."""
    names: dict[str, str] = {}
    for name in _options().names():
        for record in _options().values(name):
            names.update({str(a).lstrip("-").replace("_", "-"): name for a in _list(record.get("aliases"))})
    return names | {name: name for name in _options().names()}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def canonical(name: str) -> str:
    """The flag's long name without dashes in front: `--max_num_seqs`, `-tp` → `max-num-seqs`,
    `tensor-parallel-size`."""
    bare = name.lstrip("-").replace("_", "-")
    return _names().get(bare, bare)


def _fact(name: str, facts: ReleaseHistory, notes: Mapping[str, str], at: Version) -> FlagFact:
    record = facts.value(name, at)
    first, last = facts.span(name)
    exists = facts.exists(name, at)
    return FlagFact(
        name=name,
        exists=exists,
        default=literal(record.get("default")),
        choices=_choices(record),
        negatable=exists is True and record.get("no_form") is True,
        deprecated=exists is True and record.get("deprecated") is True,
        note=notes.get(name, ""),
        first=str(as_version(first)),
        last=str(as_version(last)),
        aliases=tuple(dict.fromkeys(str(a) for r in facts.values(name) for a in _list(r.get("aliases")))),
    )


def _choices(record: Mapping[str, object]) -> tuple[Literalish, ...] | None:
    listed = [c for c in _list(record.get("choices")) if c is None or isinstance(c, bool | int | float | str)]
    return tuple(listed) or None


@lru_cache(maxsize=4096)
def flag(name: str, version: Version | str) -> FlagFact | None:
    """What is known of a flag at a version; None when no release that was read has a flag of this name. The name may
    be written with dashes, underscores or as an alias (`-tp`)."""
    known = canonical(name)
    return _fact(known, _options(), _notes()["options"], as_version(version)) if known in _options() else None


@lru_cache(maxsize=256)
def flag_names(version: Version | str) -> tuple[str, ...]:
    """The flags this release has (as far as known), without leading dashes."""
    at = as_version(version)
    return tuple(n for n in _options().names() if _options().exists(n, at))


@lru_cache(maxsize=1024)
def env(name: str, version: Version | str) -> FlagFact | None:
    """What is known of an environment variable at a version; None when no release that was read has it. A variable of
    torch or NCCL has a note alone."""
    if name not in _variables():
        note = _notes()["environment"].get(name)
        return None if note is None else FlagFact(name, exists=False, note=note)
    return _fact(name, _variables(), _notes()["environment"], as_version(version))


@lru_cache(maxsize=256)
def env_names(version: Version | str) -> frozenset[str]:
    """The environment variables that this release reads (as far as known)."""
    at = as_version(version)
    return frozenset(n for n in _variables().names() if _variables().exists(n, at))


def requires(package: str, version: Version | str) -> str | None:
    """The versions of a package that a release's metadata asks for (`>=4.56.0,<5`), of the release at or just below;
    None where it asks for none, or nobody read it."""
    return history("packages", "packages").text(package, as_version(version))


def later_end(package: str, version: Version | str) -> str:
    """The upper end of a package (`<5`) that the next release with one asks for, where this one has none; else empty.
    What a newer vLLM still refuses, an older one was not written for."""
    own, *later = history("packages", "packages").from_on(package, as_version(version)) or [""]
    return "" if is_closed(own) else next((end for end in map(upper_end, later) if end), "")


def default_utilization(version: Version | str) -> float:
    """--gpu-memory-utilization when not given: 0.9, and 0.92 from 0.20.0 (config/cache.py)."""
    fact = flag("gpu-memory-utilization", version)
    if fact is None or not isinstance(fact.default, float):
        raise TypeError("the data has no default of gpu-memory-utilization")
    return fact.default


# The largest fraction that leaves a driver's context its part.
HIGHEST_UTILIZATION = 0.97
# One that most cards take, where nothing is known of the card.
USUAL_UTILIZATION = 0.92


@cache
def default_port() -> int:
    """--port when not given; no release has another."""
    fact = flag("port", newest_known())
    if fact is None or not isinstance(fact.default, int):
        raise TypeError("the data has no default of port")
    return fact.default


Engine = Literal["V0", "V1"]


def engine(version: Version | str, use_v1: bool | None = None) -> Engine:
    """The engine that starts. VLLM_USE_V1 counted from 0.6.6 (off) and 0.8.0 (on) to 0.10.2; V0 is gone from 0.11.0."""
    at = as_version(version)
    if at >= Version((0, 11)):
        return "V1"
    if at < Version((0, 6, 4)):
        return "V0"
    if use_v1 is not None:
        return "V1" if use_v1 else "V0"
    return "V1" if at >= Version((0, 8)) else "V0"


@dataclass(frozen=True)
class BatchDefaults:
    """max_num_batched_tokens (None: resolved from max_model_len, see `source`) and max_num_seqs when not given."""

    tokens: int | None
    seqs: int
    source: str


def batch_defaults(
    version: Version | str,
    gpu_total_gib: float | None,
    gpu_name: str = "",
    *,
    server: bool = True,
    use_v1: bool | None = None,
) -> BatchDefaults:
    """Batch limits that a release chooses for a card when the flags are absent (engine/arg_utils.py,
    `_set_default_args` and `get_batch_defaults`). `gpu_total_gib` is the device total as torch reports it; None is
    planned as a small card. `server` is the OpenAI server; False is the offline LLM class. A GB10 counts as small in
    every release: NVML refuses its memory, and the exception means 0 there (logs of 0.13 and 0.27: 2048, 256).
    """
    at = as_version(version)
    if engine(at, use_v1) == "V0":
        return BatchDefaults(
            None, 256, "engine/arg_utils.py, config.py (V0): max(max_model_len, 2048), or the chunk size"
        )
    total, name = gpu_total_gib or 0.0, gpu_name.lower()
    if at < Version((0, 8, 5)):  # by its name, not its memory (0.7.0 to 0.8.4)
        big = at >= Version((0, 7)) and ("h100" in name or "h200" in name)
    else:
        big = total >= 70 and ("a100" not in name or at < Version((0, 9)))
    if at < Version((0, 8, 4)):
        # The sequences follow the card from 0.8.4 on (read in 0.6.5 to 0.8.5).
        return BatchDefaults(
            (8192 if server else 16384) if big else (2048 if server else 8192),
            1024,
            "engine/arg_utils.py _set_default_args_v1: 1024 sequences whatever the card",
        )
    if at >= Version((0, 28)) and total >= 160:
        return BatchDefaults(16384, 1024, "engine/arg_utils.py get_batch_defaults: 160 GiB and more")
    if big and "gb10" not in name:
        return BatchDefaults(8192 if server else 16384, 1024, "engine/arg_utils.py get_batch_defaults: 70 GiB and more")
    return BatchDefaults(2048 if server else 8192, 256, "engine/arg_utils.py get_batch_defaults: below 70 GiB, or A100")
