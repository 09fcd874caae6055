"""Kernels that a vLLM release lets one choose.

kernels.json is written by `python -m vllm_doctor.knowledge.extract_kernels` from the wheels of the releases that it
lists; of a release before the first of them nothing is known.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from vllm_doctor.knowledge.versions import Version, as_version, within

Table = Literal["attention", "moe", "pass_config", "compilation"]


@cache
def _data() -> Mapping[str, object]:
    loaded: dict[str, object] = json.loads(Path(__file__).with_name("kernels.json").read_text(encoding="utf-8"))
    return loaded


@cache
def _sampled() -> tuple[Version, ...]:
    listed = _data()["sampled"]
    return tuple(as_version(str(v)) for v in listed) if isinstance(listed, list) else ()


@cache
def _spans(table: Table) -> Mapping[str, list[tuple[Version, Version]]]:
    entries = _data()[table]
    if not isinstance(entries, dict):
        raise TypeError(f"kernels.json: {table} is not a table")
    return {name: [(as_version(a), as_version(b)) for a, b in spans] for name, spans in entries.items()}


def has(table: Table, name: str, at: Version) -> bool:
    """Is it certain that this release has the name? A sample next to `at` that lacks it makes it uncertain."""
    spans = _spans(table).get(name)
    return spans is not None and within(spans, at, _sampled()) is True
