"""Takes a text apart into which several servers wrote at the same time: two pods, two process numbers."""

import re
from collections.abc import Iterator, Sequence

from vllm_doctor.log.read.runs import announces, launched_with
from vllm_doctor.records.log import LogLine

_API = "APIServer"
# What tells replicas of one workload apart: Kubernetes' random letters after a Deployment's name, the number of a
# StatefulSet's pod or of a Compose service's container.
_REPLICA = re.compile(r"(?:-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}$|[-_.]\d{1,5}$")


def servers(lines: Sequence[LogLine]) -> dict[str, list[LogLine]]:
    """The lines of each server by its name; a text of one server, or of servers one after another, is one part.

    Pods and services are told apart by their names in front of the lines, processes of one host by their numbers.
    """
    announced = {line.stream for line in lines if _announces(line)} - {None}
    if len(announced) > 1:
        return _by_stream(lines)
    if announced and (silent := set(_silent(lines, announced.pop() or ""))):
        rest = [line for line in lines if line.stream not in silent]
        return servers(rest) | {name: [line for line in lines if line.stream == name] for name in sorted(silent)}
    lanes = _lanes(lines)
    if len(set(lanes.values())) < 2:
        return {"": list(lines)}
    found: dict[str, list[LogLine]] = {}
    homes = _homes(lines, lanes)
    names = {lane: f"process {pid}" for pid, lane in lanes.items()}
    speaking = 0
    for line in lines:
        if line.pid is not None:
            speaking = homes.get(line.pid, speaking)
        found.setdefault(names[speaking], []).append(line)
    return found


def _announces(line: LogLine) -> bool:
    return announces(line.text) or launched_with(line.text)


def _silent(lines: Sequence[LogLine], announced: str) -> Iterator[str]:
    """Replicas of the one that announces itself. A proxy or a client beside it has another name."""
    streams = {line.stream for line in lines if line.stream not in {None, announced}}
    return (name for name in streams if name and _workload(name) == _workload(announced))


def _workload(stream: str) -> str:
    """`pod/NAME/CONTAINER` and `SERVICE` without what tells one replica from another."""
    kind, slash, rest = stream.partition("/")
    if not slash:
        return _REPLICA.sub("", stream)
    name, _, container = rest.partition("/")
    return f"{kind}/{_REPLICA.sub('', name)}/{container}"


def _by_stream(lines: Sequence[LogLine]) -> dict[str, list[LogLine]]:
    found: dict[str, list[LogLine]] = {}
    speaking = next(line.stream for line in lines if line.stream is not None)
    for line in lines:
        speaking = line.stream or speaking
        found.setdefault(speaking or "", []).append(line)
    return found


def _lanes(lines: Sequence[LogLine]) -> dict[int, int]:
    """Each API server's number with its place: who begins after another's last line follows it in its place."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    spoke: dict[int, int] = {}
    named: set[int] = set()
    for index, line in enumerate(lines):
        if line.process == _API and line.pid is not None:
            first.setdefault(line.pid, index)
            last[line.pid] = index
            spoke[line.pid] = spoke.get(line.pid, 0) + 1
            if _announces(line):
                named.add(line.pid)
    ends: list[int] = []
    lanes: dict[int, int] = {}
    for pid in sorted(named, key=first.__getitem__):  # a number that a torn line makes up announces nothing
        lane = next((n for n, end in enumerate(ends) if end < first[pid]), len(ends))
        ends[lane : lane + 1] = [last[pid]]
        lanes[pid] = lane
    return lanes


def _homes(lines: Sequence[LogLine], lanes: dict[int, int]) -> dict[int, int]:
    """The place of every process: a child has a higher number than its server, and the nearest one's."""
    homes = dict(lanes)
    begun: list[int] = []
    for line in lines:
        if line.pid is None or line.pid in begun:
            continue
        if line.pid in lanes:
            begun.append(line.pid)
        elif line.pid not in homes and begun:
            below = [pid for pid in begun if pid < line.pid]
            homes[line.pid] = lanes[max(below) if below else begun[-1]]
    return homes
