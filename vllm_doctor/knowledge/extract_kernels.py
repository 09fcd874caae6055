"""Read which kernels a vLLM wheel lets one choose: `python -m vllm_doctor.knowledge.extract_kernels WHEEL…`.

Writes kernels.json: the switches of `pass_config`, the attention backends and the MoE backends, each with the sampled
releases that have it. The wheels are read, never run.
"""

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from vllm_doctor.knowledge.extract import version_of
from vllm_doctor.knowledge.versions import Version

DATA = Path(__file__).with_name("kernels.json")
# Where each stands, in any release: a class's fields, an enumeration's members, a type's literals.
_CLASSES = {"PassConfig": "pass_config", "_Backend": "attention", "AttentionBackendEnum": "attention"}
_TYPES = {"MoEBackend": "moe"}
_FOLDERS = ("vllm/config", "vllm/platforms/", "vllm/attention/", "vllm/v1/attention/")
_FIELDS = {"CompilationConfig": "compilation"}


def _found(source: str) -> Iterator[tuple[str, str]]:
    """(table, name) of everything in one file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and (table := (_CLASSES | _FIELDS).get(node.name)):
            for line in node.body:
                targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
                yield from ((table, t.id) for t in targets if isinstance(t, ast.Name) and not t.id.startswith("_"))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in _TYPES:
            for literal in ast.walk(node.value):
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield _TYPES[node.targets[0].id], literal.value


def read(place: Path) -> dict[str, set[str]]:
    """What one wheel offers, by table."""
    made: dict[str, set[str]] = {}
    with zipfile.ZipFile(place) as wheel:
        for name in wheel.namelist():
            if name.endswith(".py") and name.startswith(
                ("vllm/config", "vllm/platforms/", "vllm/attention/", "vllm/v1/attention/")
            ):
                for table, found in _found(wheel.read(name).decode("utf-8")):
                    made.setdefault(table, set()).add(found)
    return made


def _spans(having: list[Version], every: list[Version]) -> list[list[str]]:
    spans: list[list[Version]] = []
    for version in every:
        if version not in having:
            continue
        before = every[every.index(version) - 1] if every.index(version) else None
        if spans and spans[-1][1] == before:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return [[str(first), str(last)] for first, last in spans]


def write(wheels: list[Path]) -> None:
    """Read all wheels and write the tables."""
    found = {version_of(place): read(place) for place in wheels}
    every = sorted(found)
    tables: dict[str, dict[str, list[list[str]]]] = {}
    for table in sorted({t for made in found.values() for t in made}):
        names = sorted({n for made in found.values() for n in made.get(table, ())})
        tables[table] = {n: _spans([v for v in every if n in found[v].get(table, ())], every) for n in names}
    # One line for each name: a change of one release is a change of few lines.
    out = ["{", f' "sampled": {json.dumps([str(v) for v in every])},']
    for at, (table, entries) in enumerate(tables.items(), 1):
        rows = [f"  {json.dumps(name)}: {json.dumps(spans)}" for name, spans in entries.items()]
        out += [f" {json.dumps(table)}: {{", ",\n".join(rows), " }" + ("," if at < len(tables) else "")]
    DATA.write_text("\n".join([*out, "}"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write([Path(word) for word in sys.argv[1:]])
