"""The files that the package reads: for each name the releases at which what is known of it changed.

`releases/` has every release in full; a diagnosis that read them all would take a second. So `vllm_doctor/knowledge/
history/` is made from them: an entry stands where something differs from the release before, and the newest has no
end that the next release would have to move.
"""

from __future__ import annotations

import json
from pathlib import Path

from releases import kernels, registered, replicated, ropes, store
from vllm_doctor.knowledge.version import Version, as_version

FOLDER = store.FOLDER.parent / "history"
FILES: dict[str, tuple[str, ...]] = {
    "options": ("options",),
    "fields": ("fields",),
    "checks": ("checks",),
    "joint": ("joint",),
    "registered": tuple(registered.TABLES),
    "environment": ("environment",),
    "kernels": kernels.TABLES,
    "packages": ("packages",),
    "metrics": ("metrics",),
    "models": ("architectures", "breakable", "quantizations"),
    "build": ("build",),
    "schemes": ("schemes",),
    "checkpoints": ("checkpoints",),
    "configurations": ("configurations",),
    "ropes": ropes.TABLES,
    "model_tests": ("model_tests",),
    "traits": ("traits",),
    "replicated": replicated.TABLES,
    "adapted": ("adapted",),
    "drafted": ("drafted",),
    "mtp": ("mtp",),
    "connectors": ("connectors",),
    "guards": ("guards",),
}


def texts(folder: Path = store.FOLDER) -> dict[str, str]:
    """Name of each file → its text, from the releases that lie in a folder."""
    found = {version: store.load(version, folder) or {} for version in store.versions(folder)}
    return {name: _text(found, sections) for name, sections in FILES.items()}


def _text(found: dict[str, store.Release], sections: tuple[str, ...]) -> str:
    read = {v: r for v, r in found.items() if any(section in r for section in sections)}
    if sections != ("packages",):
        read = _without_posts(read)
    out = ["{", f' "releases": {json.dumps(list(read))}']
    for section in sections:
        rows = [f"  {json.dumps(name)}: {json.dumps(line)}" for name, line in _lines(read, section).items()]
        out[-1] += ","
        out += [f" {json.dumps(section)}: {{", ",\n".join(rows), " }"]
    return "\n".join([*out, "}"]) + "\n"


def _without_posts(read: dict[str, store.Release]) -> dict[str, store.Release]:
    """A post release is its release with other packages: it takes the same options."""
    kept: dict[Version, str] = {}
    for version in read:
        kept.setdefault(as_version(version), version)
    return {version: read[version] for version in kept.values()}


def _lines(read: dict[str, store.Release], section: str) -> dict[str, list[list[object]]]:
    """Name → [[release, what is known from it on, or null where the name is gone], …]."""
    names = sorted({name for release in read.values() for name in store.section(release, section)})
    made: dict[str, list[list[object]]] = {name: [] for name in names}
    for version, release in read.items():
        have = store.section(release, section)
        for name in names:
            value, line = have.get(name), made[name]
            if value != (line[-1][1] if line else None):
                line.append([version, value])
    return made


def write(source: Path = store.FOLDER, folder: Path = FOLDER) -> list[Path]:
    """Write what differs; the files that were written."""
    made = {folder / f"{name}.json": text for name, text in texts(source).items()}
    return [file for file, text in made.items() if store.write(file, text)]
