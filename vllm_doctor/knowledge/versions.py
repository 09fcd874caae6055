"""What each vLLM release accepts and assumes: versions, flags, environment variables, defaults.

The facts are in versions.json, which `python -m vllm_doctor.knowledge.extract` writes from the wheels. They were
sampled at some releases; between two samples that disagree the honest answer is "unknown", and it is given as None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, total_ordering
from math import prod
from pathlib import Path
from typing import Literal

from vllm_doctor.knowledge.pattern import Pattern

GIB = 1 << 30

_VERSION = Pattern(
    r"\s{0,20}v?(\d{1,9}(?:\.\d{1,9}){0,50})\s{0,20}[-._]?\s{0,20}((?:a|b|rc|alpha|beta)\d{0,24})?(.*)",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)


@total_ordering
@dataclass(frozen=True)
class Version:
    """A vLLM version. Order and equality look at the release numbers alone: a development build of X.Y.Z behaves
    as X.Y.Z, and a local part ("+cpu", "+g1234") does not change the flags."""

    release: tuple[int, ...]
    text: str = field(compare=False, default="")
    prerelease: bool = field(compare=False, default=False)

    def _key(self) -> tuple[int, ...]:
        return (*self.release, 0, 0, 0, 0)[:4]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return ".".join(map(str, self.release))


def parse_version(text: str) -> Version | None:
    """Version of texts as vLLM logs them: 0.33.0, v0.10.1.1, 0.11.0rc2.dev12+g1a2b3c4, 0.19.0+cpu. None if there is
    none."""
    found = _VERSION.match(text)
    if not found:
        return None
    numbers = tuple(int(n) for n in found[1].split("."))
    if len(numbers) < 2 or len(numbers) > 4 or max(numbers) > 9999:
        return None
    rest = found[3] or ""
    return Version(numbers, text.strip(), bool(found[2]) or ".dev" in rest.split("+")[0])


def as_version(version: Version | str) -> Version:
    """The version itself, or the parsed text. Raises ValueError for a text that is no version."""
    if isinstance(version, Version):
        return version
    parsed = parse_version(version)
    if parsed is None:
        raise ValueError(f"not a vLLM version: {version!r}")
    return parsed


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


@cache
def data() -> Mapping[str, object]:
    """The whole of versions.json."""
    loaded: dict[str, object] = json.loads(Path(__file__).with_name("versions.json").read_text(encoding="utf-8"))
    return loaded


def _table(name: str) -> Mapping[str, Mapping[str, object]]:
    table = data()[name]
    if not isinstance(table, dict):
        raise TypeError(f"versions.json: {name} is not a table")
    return table


@cache
def _listed(key: str) -> tuple[Version, ...]:
    listed = data()[key]
    if not isinstance(listed, list):
        raise TypeError(f"versions.json: {key} is not a list")
    return tuple(as_version(str(v)) for v in listed)


def sampled() -> tuple[Version, ...]:
    """The releases whose wheels were read, oldest first."""
    return _listed("sampled")


def complete(version: Version | str) -> bool:
    """Is every flag of this very release known (and not only those that matter to memory)?"""
    return as_version(version) in _listed("complete")


def newest_known() -> Version:
    """The newest release that was read; a later one is planned as this one, and the plan says so."""
    return sampled()[-1]


def _spans(entry: Mapping[str, object], key: str) -> list[tuple[Version, Version]]:
    listed = entry.get(key) or []
    if not isinstance(listed, list):
        raise TypeError(f"versions.json: {key} is not a list")
    return [(as_version(a), as_version(b)) for a, b in listed]


def within(spans: Sequence[tuple[Version, Version]], at: Version, known: Sequence[Version]) -> bool | None:
    """Is `at` inside one of the spans, of the samples `known`? None between two samples that disagree; beyond the
    newest sample the newest answer stands."""
    if at < known[0]:
        return None
    at = min(at, known[-1])
    if any(a <= at <= b for a, b in spans):
        return True
    below = [v for v in known if v < at]
    above = [v for v in known if v > at]
    if at in known or not below or not above:
        return False
    beside = [any(a <= v <= b for a, b in spans) for v in (below[-1], above[0])]
    return None if any(beside) else False


def _among(entry: Mapping[str, object]) -> tuple[Version, ...]:
    """The samples that an entry's spans speak of: all, or those whose every flag was read."""
    return _listed("complete") if entry.get("among") == "complete" else sampled()


def _since(entry: Mapping[str, object], key: str, at: Version) -> object:
    """The value of the last change at or before `at`."""
    listed = entry.get(key) or []
    if not isinstance(listed, list):
        raise TypeError(f"versions.json: {key} is not a list")
    value: object = None
    for start, item in listed:
        if as_version(start) <= at or value is None:
            value = item
    return value


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
    names: dict[str, str] = {}
    for name, entry in _table("flags").items():
        names[name] = name
        aliases = entry.get("aliases") or []
        if isinstance(aliases, list):
            names.update({str(a).lstrip("-").replace("_", "-"): name for a in aliases})
    return names


def canonical(name: str) -> str:
    """The flag's long name without dashes in front: `--max_num_seqs`, `-tp` → `max-num-seqs`,
    `tensor-parallel-size`."""
    bare = name.lstrip("-").replace("_", "-")
    return _names().get(bare, bare)


def _fact(name: str, entry: Mapping[str, object], at: Version) -> FlagFact:
    spans = _spans(entry, "present")
    choices = _since(entry, "choices", at)
    aliases = entry.get("aliases") or []
    return FlagFact(
        name=name,
        exists=within(spans, at, _among(entry)),
        default=literal(_since(entry, "defaults", at)),
        choices=tuple(choices) if isinstance(choices, list) else None,
        negatable=bool(within(_spans(entry, "no_form_available"), at, _among(entry))),
        deprecated=bool(within(_spans(entry, "deprecated_in"), at, _among(entry))),
        note=str(entry.get("note") or ""),
        first=str(spans[0][0]) if spans else "",
        last=str(spans[-1][1]) if spans else "",
        aliases=tuple(str(a) for a in aliases) if isinstance(aliases, list) else (),
    )


@lru_cache(maxsize=4096)
def flag(name: str, version: Version | str) -> FlagFact | None:
    """What is known of a flag at a version; None when no sampled release has a flag of this name. The name may be
    written with dashes, underscores or as an alias (`-tp`)."""
    known = canonical(name)
    entry = _table("flags").get(known)
    return None if entry is None else _fact(known, entry, as_version(version))


def flag_names(version: Version | str) -> tuple[str, ...]:
    """The flags this release has (as far as known), without leading dashes."""
    at = as_version(version)
    return tuple(n for n, e in _table("flags").items() if within(_spans(e, "present"), at, _among(e)))


def env(name: str, version: Version | str) -> FlagFact | None:
    """What is known of an environment variable at a version; None when no sampled release reads it."""
    entry = _table("environment").get(name)
    return None if entry is None else _fact(name, entry, as_version(version))


def release(version: Version | str) -> Mapping[str, object] | None:
    """Packaging facts (torch, CUDA, minimum driver, Python, runner) of the sampled release at or just below."""
    at = as_version(version)
    below = [v for v in sampled() if v <= at]
    return _table("releases").get(str(below[-1])) if below else None


def default_utilization(version: Version | str) -> float:
    """--gpu-memory-utilization when not given: 0.9, and 0.92 from 0.20.0 (config/cache.py)."""
    fact = flag("gpu-memory-utilization", version)
    if fact is None or not isinstance(fact.default, float):
        raise TypeError("versions.json has no default of gpu-memory-utilization")
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
    if at < Version((0, 8)):
        big = "h100" in name or "h200" in name
        seqs = 256
    else:
        big = total >= 70 and ("a100" not in name or at < Version((0, 9, 1)))
        seqs = 1024
    if at >= Version((0, 28)) and total >= 160:
        return BatchDefaults(16384, 1024, "engine/arg_utils.py get_batch_defaults: 160 GiB and more")
    if big and "gb10" not in name:
        return BatchDefaults(8192 if server else 16384, seqs, "engine/arg_utils.py get_batch_defaults: 70 GiB and more")
    return BatchDefaults(2048 if server else 8192, 256, "engine/arg_utils.py get_batch_defaults: below 70 GiB, or A100")
