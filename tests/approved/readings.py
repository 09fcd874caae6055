"""What is read of each document that the doctor is given or asks for, and what of each part of it: every field taken
away, every figure doubled, every switch turned, and a line for what the record says then.

A document is what a program prints (documents/KIND/NAME), written by hand in its format. The first lines pin the whole
record; the lines below pin units, defaults and what is said where a field is missing.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from tests.approved.described_model import described
from tests.approved.text import number
from vllm_doctor.gather import described as of_kubectl
from vllm_doctor.gather import (
    environment_file,
    inspected,
    kernel,
    made,
    metrics,
    nvidia_smi,
    nvml_said,
    pod,
    procfs,
    release,
    slurm,
    unit_files,
    weight_files,
)
from vllm_doctor.gather import systemd as units
from vllm_doctor.gather.processes import Ran
from vllm_doctor.records.host import Launch, Unit
from vllm_doctor.records.reading import Known, Reading

DOCUMENTS = Path(__file__).parent / "documents"
_FIGURE = re.compile(r"(?<![\w.])\d{1,15}(?![\w]|\.\d)")
# Another owner's name, or none, where a process of the document is nobody's here.
_OF_THIS_HOST = ("user", "memory_peak", "oom_kills")


def _known(reading: Reading[Any]) -> object:
    return reading.value if isinstance(reading, Known) else reading


def _json(read: Callable[[bytes, str], Reading[Any]]) -> Callable[[str], object]:
    return lambda text: _known(read(text.encode(), "the document"))


def _slurm(rows: Callable[[str], list[dict[str, str]]]) -> Callable[[str], object]:
    script = "#!/bin/bash\nexport HF_HOME=/cache\nsrun vllm serve org/m --tensor-parallel-size 4\n"
    return lambda text: [slurm.seen(one, script) for one in rows(text)]


def _systemd(text: str) -> object:
    def answer(argv: list[str], **_: object) -> Ran:
        return Ran(0, text.encode() if "show" in argv else b"vllm.service enabled\nvllm@.service enabled\n", "")

    with patch.object(units, "run", answer):
        return _known(units.find(None, 5))


class _Tree:
    """A folder of files, of which only those that differ are written: a host's /proc, a hundred times."""

    def __init__(self, sockets: dict[int, int]) -> None:
        """`sockets`: by process the socket that it holds."""
        self.kept = tempfile.TemporaryDirectory(prefix="proc-")
        self.files: dict[str, str] = {}
        for pid, inode in sockets.items():
            handles = Path(self.kept.name) / str(pid) / "fd"
            handles.mkdir(parents=True)
            (handles / "7").symlink_to(f"socket:[{inode}]")

    def holding(self, files: dict[str, str]) -> Path:
        folder = Path(self.kept.name)
        for name in set(self.files) - set(files):
            (folder / name).unlink()
            if not any((folder / name).parent.iterdir()):
                (folder / name).parent.rmdir()
        for name in {name for name, text in files.items() if self.files.get(name) != text}:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(files[name], encoding="utf-8")
        self.files = files
        return folder


@cache
def _tree() -> _Tree:
    return _Tree({100: 55501, 102: 55502})


def _in(text: str) -> dict[str, str]:
    """The files of a document, by their paths."""
    return dict(re.findall(r"^== (\S+)\n((?:(?!== ).*\n)*)", text, re.MULTILINE))


@cache
def _host() -> _Tree:
    return _Tree({})


def _files(text: str) -> object:
    """A unit's files, the release that it starts, its model's configuration and weights."""
    where = _host().kept.name
    folder = str(_host().holding({name: content.replace("FOLDER", where) for name, content in _in(text).items()}))
    etc = f"{folder}/etc"
    named = {"EnvironmentFiles": f"{etc}/env (ignore_errors=yes)"}
    unit = Unit("vllm@main.service", "loaded", "failed", "failed", "exit-code", fragment=f"{etc}/vllm@.service",
                drop_ins=(f"{etc}/50-ops.conf",), properties=named)  # fmt: skip
    launch = Launch(("vllm", "serve", "org/m"), "org/m", {})
    told = {
        "settings": unit_files.settings(unit),
        "output": unit_files.output_path(unit),
        "rendered": unit_files.is_rendered(unit),
        "release": release.version([f"{folder}/opt/bin/vllm", "serve", "org/m"], None),
        "config": release.model_config(launch, {"HF_HOME": f"{folder}/hf", "HOME": f"{folder}/home"}, None),
        "weights": weight_files.checked(f"{folder}/weights"),
    }
    text = msgspec.json.encode(told).decode().replace(folder, "")
    return json.loads(re.sub(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00", "then", text))


def _described(text: str) -> object:
    seen = [one for found in of_kubectl.pods(text) for one in pod.containers(found)]
    return {"is one": of_kubectl.holds(text), "pods": pod.with_events(seen, pod.events(of_kubectl.events(text)))}


def _made(text: str) -> object:
    told = json.loads(text)
    runtime = "podman" if "CreateCommand" in str(told) else "docker"
    found = made.made(told, runtime=runtime, name="llm", image="vllm/vllm-openai:v0.12.0", program="vllm")
    if found is None:
        return None
    options: dict[str, list[str]] = {}
    for word in found.words:
        if word.startswith("-") or not options:
            options.setdefault(word, [])
            last = word
        else:
            options[last].append(word)
    return {"options": options, "left": found.left, "always": found.always}


def proc(text: str) -> Path:
    """A folder with the files of a document as in /proc, until the next one is asked for."""
    return _tree().holding({name: content.rstrip("\n").replace("␀", "\0") for name, content in _in(text).items()})


def _proc(text: str) -> object:
    with patch.object(procfs, "PROC", proc(text)):
        return {
            "memory": procfs.meminfo(),
            "processes": list(procfs.processes()),
            "listeners": [procfs.listener(port) for port in (8000, 8001, 8002)],
            "began": {pid: procfs.started(pid) for pid in procfs.pids()},
        }


_READ: dict[str, Callable[[str], object]] = {
    "config": described,
    "describe": _described,
    "files": _files,
    "made": _made,
    "environment": environment_file.assigned,
    "events": _json(pod.read_events),
    "inspect": _json(inspected.read),
    "kernel": lambda text: kernel.events(text.splitlines()),
    "metrics": metrics.parse,
    "nvidia-smi": lambda text: {"gpus": _known(nvidia_smi.gpus(text, "")), "driver": nvidia_smi.driver_of(text, "")},
    "nvml": lambda text: nvml_said.parse_said(text.encode()),
    "pod": _json(pod.read),
    "proc": _proc,
    "sacct": _slurm(slurm.accounted),
    "scontrol": _slurm(slurm.jobs),
    "systemctl": _systemd,
}


@cache
def kinds() -> tuple[str, ...]:
    """What documents there are, by what prints them."""
    return tuple(sorted(_READ))


def answers(kind: str) -> str:
    """The records of a kind's documents, and what each part of a document does."""
    return "\n".join("\n".join(_block(kind, path)) + "\n" for path in sorted((DOCUMENTS / kind).iterdir()))


def _block(kind: str, path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    before = flat(_READ[kind](text))
    yield f"{path.name}:"
    yield from (f"  {where} = {value}" for where, value in before.items())
    for what, changed in _of_json(text) if path.suffix == ".json" else _of_text(text):
        after = flat(_READ[kind](changed))
        if after != before:
            why = after.get("refused")
            yield f"  {what}: {differs(before, after) if why is None else f'refused: {why}'}"


def differs(before: dict[str, str], after: dict[str, str], shown: int = 5) -> str:
    """What two flat records do not share; where that is much, the rest is counted."""
    told = [
        f"{where} {before.get(where, '-')} -> {after.get(where, '-')}"
        for where in {**before, **after}
        if before.get(where) != after.get(where)
    ]
    more = f"; and {len(told) - shown} more" if len(told) > shown else ""
    return "; ".join(told[:shown]) + more


def flat(record: object) -> dict[str, str]:
    """Each value of a record by its path; what is empty is left out."""
    return dict(_values(msgspec.to_builtins(record, str_keys=True), ""))


def _values(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in _OF_THIS_HOST:
                yield from _values(one, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        if all(isinstance(one, str) for one in value):
            if value:
                yield where, " ".join(repr(one) if " " in one or not one else one for one in value)
            return
        for index, one in enumerate(value):
            yield from _values(one, f"{where}.{index}" if where else str(index))
    elif value is not None and value != "":
        yield where, str(number(value)).replace("\n", "\\n")


def _of_text(text: str) -> Iterator[tuple[str, str]]:
    """Each line taken away, each figure doubled."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        yield f"without line {at + 1}", "".join((*lines[:at], *lines[at + 1 :]))
        for found in _FIGURE.finditer(line):
            doubled = str(int(found[0]) * 2 or 1).rjust(len(found[0]))
            changed = line[: found.start()] + doubled + line[found.end() :]
            yield f"line {at + 1}, {found[0]} -> {doubled.strip()}", "".join((*lines[:at], changed, *lines[at + 1 :]))


def _of_json(text: str) -> Iterator[tuple[str, str]]:
    whole = json.loads(text)
    for path in _paths(whole):
        for what, changed in _variants(whole, path):
            yield f"{what.format('.'.join(map(str, path)))}", json.dumps(changed)


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _paths(value[key], (*above, key))


def _variants(whole: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    changed = deepcopy(whole)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    old = inner[path[-1]]
    if isinstance(old, bool):
        inner[path[-1]] = not old
        yield f"{{}} {not old}", deepcopy(changed)
    elif isinstance(old, int) and old:
        inner[path[-1]] = old * 2
        yield f"{{}} {old} -> {old * 2}", deepcopy(changed)
    del inner[path[-1]]
    yield "without {}", changed
