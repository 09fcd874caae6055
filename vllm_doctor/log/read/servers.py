"""Takes a text apart into which several servers wrote: two pods, two process numbers, two ports in turn."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from vllm_doctor.log.clock import second_of_year
from vllm_doctor.log.match import says
from vllm_doctor.log.read.dates import of_their_days
from vllm_doctor.log.read.runs import announces, launched_with, printed_launch, start_failed, starts
from vllm_doctor.records.log import LogLine

_API = "APIServer"
# What tells replicas of one workload apart: Kubernetes' random letters after a Deployment's name, the number of a
# StatefulSet's pod or of a Compose service's container.
_REPLICA = re.compile(r"(?:-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}$|[-_.]\d{1,5}$")

# Seconds by which lines of one server may stand out of order. A clock that goes back by more than half a year tells of
# a year's turn. Lines in which a server that begins says when it does. More starts than so many whose clocks go back
# are no pods, but one text over and over.
_LATE, _HALF_A_YEAR, _HEAD, _PODS = 5, 183 * 86_400, 20, 32


def servers(lines: Sequence[LogLine], *, turns: bool = True) -> dict[str, list[LogLine]]:
    """The lines of each server by its name; a text of one server, or of one that starts again, is one part.

    Pods and services are told apart by their names in front of the lines, processes of one host by their numbers, and
    servers that were started in turn by their launches; without `turns` all is what one unit or container wrote, whose
    last launch alone still counts.
    """
    days = of_their_days(lines, in_place=not turns or _of_a_unit(lines)) if turns else [list(lines)]
    if len(days) > 1:
        parts = (servers(day, turns=turns) for day in days)
        return {
            f"the {number}. log{f', {name}' if name else ''}": own
            for number, part in enumerate(parts, 1)
            for name, own in part.items()
        }
    announced = {line.stream for line in lines if _announces(line)} - {None}
    if len(announced) > 1:
        return _by_stream(lines)
    if announced and (silent := set(_silent(lines, announced.pop() or ""))):
        rest = [line for line in lines if line.stream not in silent]
        return servers(rest, turns=turns) | {
            name: [line for line in lines if line.stream == name] for name in sorted(silent)
        }
    if not announced and (replicas := _replicas(lines)):
        return _by_stream(lines, replicas)
    alone = not turns or _of_a_unit(lines)  # its own lines stand in their order
    if not alone and len(pods := _one_below_another(lines)) > 1:
        return pods
    lanes = _lanes(lines)
    if len(set(lanes.values())) < 2:
        return {"": list(lines)} if alone else _in_turn(lines)
    found: dict[str, list[LogLine]] = {}
    homes = _homes(lines, lanes)
    names = {lane: f"process {pid}" for pid, lane in lanes.items()}
    speaking = 0
    for line in lines:
        if line.pid is not None:
            speaking = homes.get(line.pid, speaking)
        found.setdefault(names[speaking], []).append(line)
    return found


def _one_below_another(lines: Sequence[LogLine]) -> dict[str, list[LogLine]]:
    """Servers that ran at the same time, and of which one text follows the other (`kubectl logs -l`, `cat a b`): the
    second one announces itself before the first one's last line was written."""
    marks = starts(lines)
    begins = sorted({0, *marks, *_clock_goes_back(lines, marks[0] if marks else len(lines)), len(lines)})
    found: list[list[LogLine]] = []
    for run in (lines[a:b] for a, b in pairwise(begins) if a < b):
        before, now = (_last_time(found[-1]) if found else None), _last_time(run[:_HEAD][::-1])
        if not found or (_is_earlier(now, before) and any(map(_announces, run))):
            found.append([])
        found[-1].extend(run)
    return {f"the {number}. server": part for number, part in enumerate(found, 1)} if len(found) <= _PODS else {}


def _clock_goes_back(lines: Sequence[LogLine], end: int) -> Iterator[int]:
    """Where it does so above the first mark of another run: of a text without its own beginning, that one's mark tells
    of no other."""
    last: int | None = None
    for index, line in enumerate(lines[:end]):
        now = second_of_year(line.at) if line.module not in {None, "uvicorn"} else None
        if _is_earlier(now, last):
            yield index
        last = now if now is not None else last


def _is_earlier(now: int | None, before: int | None) -> bool:
    return before is not None and now is not None and _LATE < before - now < _HALF_A_YEAR


def _last_time(lines: Sequence[LogLine]) -> int | None:
    """The time of the last line that vLLM's logger wrote: others' clocks may have another zone."""
    told = (second_of_year(line.at) for line in reversed(lines) if line.module not in {None, "uvicorn"})
    return next((at for at in told if at is not None), None)


def _of_a_unit(lines: Sequence[LogLine]) -> bool:
    """Does systemd speak of the unit that started them? Then one server took the other's place."""
    return any(line.process == "systemd" for line in lines)


def _in_turn(lines: Sequence[LogLine]) -> dict[str, list[LogLine]]:
    """Each server's lines by its port: who serves another model at another port can run beside the one before it.

    The same port, or the same model elsewhere, is a server that was started again. Another model at the same port takes
    the place of one that served. A start that failed left no place to take: that another model serves mends nothing.
    """
    begins = [0, *starts(lines), len(lines)]
    found: dict[str, list[LogLine]] = {}
    of_model: dict[str | None, str] = {}
    failed: dict[str, str] = {}
    speaking = ""
    for run in (lines[a:b] for a, b in pairwise(begins) if a < b):
        told = printed_launch(run)
        if told is not None:
            port, model = told
            speaking = port if port in found else of_model.get(model, port)
            if model is not None and failed.get(speaking, model) != model:
                speaking = of_model.get(model, f"{port}, {model}")
            of_model[model] = speaking
            if "" in found:  # what stands above the first launch is its own
                found = {speaking: found.pop("")}
            if model is not None and start_failed(run) and not any(line.stream for line in run):
                failed[speaking] = model
            else:
                failed.pop(speaking, None)
        found.setdefault(speaking, []).extend(run)
    return {f"port {port}": part for port, part in found.items()} if len(found) > 1 else {"": list(lines)}


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


def _replicas(lines: Sequence[LogLine]) -> frozenset[str]:
    """The streams of one workload in which vLLM speaks, where the text has the beginning of none (`logs --tail`); empty
    where it is one stream. The pods of one engine's ranks have names of their own, and so has a proxy."""
    streams = {line.stream for line in lines if line.stream is not None}
    if len(streams) < 2:
        return frozenset()
    speaks = next((line.stream for line in lines if line.stream is not None and _of_vllm(line)), None)
    alike = {stream for stream in streams if speaks is not None and _workload(stream) == _workload(speaks)}
    return frozenset(alike) if len(alike) > 1 else frozenset()


def _of_vllm(line: LogLine) -> bool:
    return "/vllm/" in line.text or says(line.excerpt, "header-of-vllm")


def _by_stream(lines: Sequence[LogLine], wanted: Collection[str] = ()) -> dict[str, list[LogLine]]:
    """Each stream's lines, or each wanted one's with those of others that stand below them."""
    found: dict[str, list[LogLine]] = {}
    speaking = next(line.stream for line in lines if line.stream is not None and (not wanted or line.stream in wanted))
    for line in lines:
        speaking = line.stream if line.stream and (not wanted or line.stream in wanted) else speaking
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
