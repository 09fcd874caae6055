"""What a person's files are: descriptions of containers and pods among the logs, told by what is in them."""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vllm_doctor.gather import described, inspected, pod, slurm
from vllm_doctor.gather.bounded import CHUNK, STDIN, json_value, opened, put_back, start
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.records.container import Event
from vllm_doctor.records.reading import Known, Unknown

# A description of some hundred pods; what is larger is a log.
_MOST = 16 << 20
_HEAD = 4096
# YAML takes a hundred times as long to read as JSON.
_MOST_YAML = 1 << 20
# Of what comes through a pipe, which is kept in memory.
_MOST_PIPED = 4 << 20
# How what `docker inspect`, kubectl and scontrol print begins.
_DESCRIBES = Pattern(
    r"\s{0,100}(?:\[\s{0,100})?\{\s{0,100}\"(?:Id|Name|apiVersion|kind|items|metadata)\"|(?:apiVersion|kind|items): "
    r"|Name: +\S|JobId="
)
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".py")
# What Kubernetes makes pods of, which has no state of one.
_WORKLOAD = Pattern(r"^kind: {0,10}(?:Deployment|StatefulSet|DaemonSet|Job|LeaderWorkerSet)\s{0,10}$", re.MULTILINE)
_COMPOSE = Pattern(r"(?:\s*#[^\n]*\n|\s*\n)*+(?:services|version|name|x-[\w-]{1,40}|include|networks|volumes)[ ]?:")


class Documents(msgspec.Struct, frozen=True):
    """The files by what they hold; `logs` are what is no description, `launches` start a vLLM."""

    logs: tuple[str, ...]
    launches: tuple[str, ...] = ()
    containers: tuple[Inspected, ...] = ()
    events: tuple[Event, ...] = ()


def sort(names: Sequence[str]) -> Documents:
    """`docker inspect`, `kubectl get pod -o json` (or yaml), `kubectl describe pod`, `kubectl get events -o json`,
    `scontrol show job`, and what starts a vLLM (compose, a script); all others are logs."""
    logs: list[str] = []
    launches: list[str] = []
    seen: list[Inspected] = []
    told: list[Event] = []
    for name in (_of_a_pipe() or name if name == STDIN else name for name in names):
        if job := _jobs(name):
            seen += job
            continue
        if (whole := _described(name)) is not None:
            seen += [one for item in described.pods(whole) for one in pod.containers(item)]
            told += pod.events(described.events(whole))
            continue
        if _starts_vllm(name):
            launches.append(name)
            continue
        value = _value(name)
        if value is None:
            logs.append(name)
            continue
        found, events = _taken(value.value)
        seen += found
        told += events
    return Documents(
        tuple(logs), tuple(launches), pod.with_events(seen, tuple(told)) if told else tuple(seen), tuple(told)
    )


def _of_a_pipe() -> str | None:
    """The description that is piped in, as a file in memory; None where it is a log, which is then read as it comes."""
    data, ended = b"", False
    with opened(STDIN) as source:
        if isinstance(source, Unknown):
            return None
        try:
            data = source.read1(_HEAD)
            while data and not ended and len(data) <= _MOST_PIPED and _begins_as_one(data):
                block = source.read1(CHUNK)
                data, ended = data + block, not block
        except OSError:
            ended = False  # its reader meets the same, and says so
    name = _in_memory(data) if ended else None
    if name is None or not sort([name]).containers:
        put_back(data)
        return None
    return name


def _begins_as_one(data: bytes) -> bool:
    return _DESCRIBES.match(data[:_HEAD].decode(errors="replace")) is not None


def _in_memory(data: bytes) -> str | None:
    """A file that no folder has, open for as long as this process runs; None on a system that has none."""
    if not hasattr(os, "memfd_create"):
        return None
    handle = os.memfd_create("description")
    os.write(handle, data)
    return f"/proc/self/fd/{handle}"


def _starts_vllm(name: str) -> bool:
    """Is it a compose file or a script with a launch in it? A pod's description has a state, and is told as one."""
    size = None if name == STDIN else _size(name)
    if size is None or size > _MOST_YAML:
        return False
    head = (start(name, _HEAD) or b"").decode(errors="replace")
    if not (name.endswith(_SCRIPTS) or head.startswith("#!") or _COMPOSE.match(head) or _WORKLOAD.search(head)):
        return False
    from vllm_doctor.launch.command import parse_line
    from vllm_doctor.launch.line import LaunchError

    try:
        parse_line((start(name, _MOST_YAML) or b"").decode(errors="replace"))
    except (ValueError, LaunchError):
        return False
    return True


def _jobs(name: str) -> list[Inspected]:
    """What `scontrol show job` printed, kept in a file."""
    size = None if name == STDIN else _size(name)
    if size is None or size > _MOST_YAML:
        return []
    text = (start(name, _HEAD) or b"").decode(errors="replace")
    if not slurm.holds(text):
        return []
    whole = (start(name, _MOST_YAML) or b"").decode(errors="replace")
    return [slurm.seen(one) for one in slurm.jobs(whole)[:256] if "JobState" in one]


def _described(name: str) -> str | None:
    """What `kubectl describe pod` printed, kept in a file."""
    size = None if name == STDIN else _size(name)
    if size is None or size > _MOST_YAML or not (start(name, 64) or b"").lstrip().startswith(b"Name:"):
        return None
    whole = (start(name, _MOST_YAML) or b"").decode(errors="replace").replace("\r\n", "\n")
    return whole if described.holds(whole) else None


def _taken(value: object) -> tuple[tuple[Inspected, ...], tuple[Event, ...]]:
    listed = value if isinstance(value, list) else [value]
    if listed and inspected.is_one(listed[0]):
        return tuple(inspected.seen(one, "docker") for one in listed[:256] if inspected.is_one(one)), ()
    if pod.holds(value) == "pod":
        return tuple(one for item in pod.pods(value) for one in pod.containers(item)), ()
    return (), pod.events(value)


def _value(name: str) -> Known[object] | None:
    """The JSON or YAML of a description; None for anything else, which is a log."""
    size = None if name == STDIN else _size(name)
    if size is None:
        return None
    head = (start(name, _HEAD) or b"").lstrip()
    is_yaml = head.startswith((b"apiVersion:", b"kind:", b"items:"))
    most = _MOST_YAML if is_yaml else _MOST
    if not (is_yaml or head[:1] in {b"{", b"["}) or size > most:
        return None
    data = start(name, _MOST) or b""
    if is_yaml:
        return _yaml(data, name)
    read = json_value(data, name, "")
    return read if isinstance(read, Known) and _describes(read.value) else None


def _size(name: str) -> int | None:
    """Bytes of a plain file; None for all else, and for a name that no disk has: the log's reader tells of it."""
    try:
        state = Path(name).stat()
    except (OSError, ValueError):
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) else None


def _describes(value: object) -> bool:
    """Is it of a container, a pod or an event? A log of one JSON line is none of them."""
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and (inspected.is_one(listed[0]) or bool(pod.holds(value)))


def _yaml(data: bytes, name: str) -> Known[object] | None:
    import yaml

    from vllm_doctor.launch import bounded_yaml

    try:
        value = bounded_yaml.value(data)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return Known(value, name) if _describes(value) else None
