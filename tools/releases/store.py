"""The file of one release: sections of names, one name a line, so that a diff of two files is what changed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from vllm_doctor.knowledge.version import as_version

FOLDER = Path(__file__).resolve().parents[2] / "vllm_doctor" / "knowledge" / "releases"

Release = Mapping[str, Mapping[str, object] | str]
SECTIONS = (
    "packages",
    "build",
    "options",
    "fields",
    "checks",
    "joint",
    "environment",
    "attention",
    "attention_order",
    "compilation",
    "linear",
    "moe",
    "moe_by_format",
    "pass_config",
    "quantizations",
    "schemes",
    "checkpoints",
    "configurations",
    "ropes",
    "scaled",
    "load_formats",
    "tokenizers",
    "tool_parsers",
    "reasoning_parsers",
    "architectures",
    "breakable",
    "model_tests",
    "traits",
    "tokens",
    "shared_experts",
    "adapted",
    "drafted",
    "mtp",
    "connectors",
    "metrics",
    "messages",
    "refusals",
    "guards",
    "cited",
)


def dumps(release: Mapping[str, object]) -> str:
    """The file's text."""
    parts = []
    for key, value in release.items():
        if isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{rows}\n }}" if value else f" {json.dumps(key)}: {{}}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def path(version: str, folder: Path = FOLDER) -> Path:
    """Where a release's file lies."""
    return folder / f"{version}.json"


def load(version: str, folder: Path = FOLDER) -> Release | None:
    """What is written down of a release; None where nothing is."""
    file = path(version, folder)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def versions(folder: Path = FOLDER) -> list[str]:
    """The releases with a file, oldest first; a post release stands after its release."""
    return sorted((f.stem for f in folder.glob("*.json")), key=lambda v: (as_version(v), v))


def before(version: str, folder: Path = FOLDER) -> str | None:
    """The newest release before this one whose wheel was read."""
    older = [v for v in versions(folder) if as_version(v) < as_version(version)]
    return next((v for v in reversed(older) if "options" in (load(v, folder) or {})), None)


def section(release: Release | None, name: str) -> Mapping[str, object]:
    """A section of a release; empty where it was not read."""
    found = (release or {}).get(name)
    return found if isinstance(found, Mapping) else {}


def write(file: Path, text: str) -> bool:
    """Put a whole file in its place at once. False: it says so already."""
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True
