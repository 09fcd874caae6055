"""Docker and podman themselves: which containers of vLLM there are, what each is, what it wrote."""

import datetime
import os
import pwd
import re
import shutil
from collections.abc import Iterable, Sequence
from heapq import merge
from pathlib import Path

from vllm_doctor.gather import inspected, trust
from vllm_doctor.gather import processes as programs
from vllm_doctor.gather.bounded import text_of_start
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.processes import NotRun, Ran, run
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records import excerpt
from vllm_doctor.records.log import Log, RunLines
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

RUNTIMES = ("docker", "podman")
HEAD_BYTES, TAIL_LINES, MAX_BYTES = 1 << 20, 4000, 24 << 20
# Containers of one host that are looked at; a host has a server or two for each card.
_MOST = 32
# One that ended longer ago is not what somebody asks about now.
_RECENT_S = 24 * 3600
_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
_SYSTEM_STORE = Path("/var/lib/containers/storage")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*(?:Z|[+-]\d\d:?\d\d)? ")


def environment() -> dict[str, str]:
    """What the runtimes' programs need of the caller: whose containers they are, and where their socket is. A file of
    settings names programs that they start, so it has to be one that nobody else can change."""
    env = {"HOME": _home()}
    for name in ("XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST"):
        value = os.environ.get(name, "")
        if value and (value.startswith("/") or "://" in value):
            env[name] = value
    settings = os.environ.get("CONTAINERS_CONF", "")
    if settings.startswith("/") and trust.why_not(settings) is None:
        env["CONTAINERS_CONF"] = settings
    return env


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def find(deadline_s: float) -> tuple[tuple[Inspected, ...], tuple[Unknown, ...]]:
    """The host's containers of vLLM, those that ended within a day too, and the runtimes that did not answer."""
    found: list[Inspected] = []
    problems: list[Unknown] = []
    for runtime in filter(_is_used, RUNTIMES):
        told = _listed(runtime, deadline_s)
        if isinstance(told, Unknown):
            problems.append(told)
        elif told:
            asked = inspect(runtime, told, deadline_s)
            found += asked.value if isinstance(asked, Known) else ()
            problems += [asked] if isinstance(asked, Unknown) else []
    # Where `docker` is podman under another name, each stands in both lists.
    each = {one.id: one for one in reversed(found) if one.serves and _is_current(one)}
    return tuple(sorted(each.values(), key=_trouble)), tuple(problems)


def _is_used(runtime: str) -> bool:
    """Is there anything to ask this runtime for? To hear of an empty store costs a tenth of a second."""
    if shutil.which(runtime, path=programs.PATH) is None:
        return False
    if runtime == "docker":
        return any(Path(socket).exists() for socket in _SOCKETS) or "DOCKER_HOST" in os.environ
    folders = (_SYSTEM_STORE, Path(_home(), ".local/share/containers/storage"))
    stores = [file for folder in folders for file in folder.glob("*-containers/containers.json")]
    return "CONTAINER_HOST" in os.environ or any(
        (text_of_start(file, 8) or "").strip() not in {"", "[]"} for file in stores
    )


def _listed(runtime: str, deadline_s: float) -> list[str] | Unknown:
    """The ids of those whose image or command speaks of vLLM."""
    shown = "{{.ID}}\t{{.Image}}\t{{.Command}}\t{{.Names}}"
    got = run([runtime, "ps", "-a", "--no-trunc", "--format", shown], deadline_s=deadline_s, env=environment())
    if isinstance(got, NotRun) or (got.code != 0 and not got.out):
        return _silent(runtime, got)
    rows = (line.split("\t") for line in got.out.decode(errors="replace").splitlines())
    return [row[0] for row in rows if "vllm" in "\t".join(row[1:]).lower()][:_MOST]


def inspect(runtime: str, names: Sequence[str], deadline_s: float) -> Reading[tuple[Inspected, ...]]:
    """What the runtime says of these containers; Absent where it has none of that name."""
    argv = [runtime, "inspect", *(["--type", "container"] if runtime == "docker" else ["--type=container"]), *names]
    got = run(argv, deadline_s=deadline_s, env=environment())
    if isinstance(got, NotRun) or (got.code != 0 and got.out.strip() in {b"", b"[]"}):
        if isinstance(got, Ran) and re.search("no such (container|object)", got.err, re.IGNORECASE):
            return Absent(f"{runtime} has no container {excerpt.name(' '.join(names))}")
        return _silent(runtime, got)
    return inspected.read(got.out, f"{runtime} inspect", runtime)


def names(runtime: str, deadline_s: float) -> tuple[str, ...]:
    """The containers that this user's runtime has, for a person who mistyped one."""
    got = run([runtime, "ps", "-a", "--format", "{{.Names}}"], deadline_s=deadline_s, env=environment())
    return tuple(got.out.decode(errors="replace").split()[:20]) if isinstance(got, Ran) else ()


def _silent(runtime: str, got: Ran | NotRun, command: str = "ps") -> Unknown:
    if isinstance(got, NotRun):
        return Unknown(f"{runtime}: {got.reason}", f"{runtime} {command}")
    said = excerpt.last_said(got.err, f"exit code {got.code}")
    if "permission denied" in got.err.lower():
        return Unknown(
            f"{runtime}: {said}",
            "run as root" + (", or as a member of the group docker" if runtime == "docker" else ""),
        )
    return Unknown(f"{runtime}: {said}", f"{runtime} {command}")


def log(seen: Inspected, deadline_s: float) -> Reading[Log]:
    """What the container wrote: its start and its end, both streams in the order of their stamps."""
    runtime = seen.container.runtime
    name = f"{runtime} logs {seen.container.name}"
    tail = _logs(runtime, ["--tail", str(TAIL_LINES), seen.id], deadline_s, MAX_BYTES)
    if isinstance(tail, Unknown):
        return tail
    if not tail:
        return Unknown(f"{name}: it wrote nothing", f"{name}; docker info --format '{{{{.LoggingDriver}}}}'")
    if len(tail) < TAIL_LINES:
        return Known(log_of_lines(tail, name), name)
    head = _logs(runtime, [seen.id], deadline_s, HEAD_BYTES)
    first = head if isinstance(head, list) else []
    before = [line for line in first if line < tail[0]]
    made = log_of_lines([*before, *tail], name)
    last = RunLines(made.last.lines, made.last.complete_head, made.last.skipped_bytes + (len(before) == len(first)))
    return Known(Log(made.source, last, made.earlier_runs, made.notes, made.earlier_kv_gib), name)


def _logs(runtime: str, arguments: Sequence[str], deadline_s: float, most: int) -> list[str] | Unknown:
    got = run([runtime, "logs", "--timestamps", *arguments], deadline_s=deadline_s, max_bytes=most, env=environment())
    if not got.out and (isinstance(got, NotRun) or got.code != 0):
        return _silent(runtime, got, f"logs --tail 100 {arguments[-1]}")
    return in_order(got.out, b"" if isinstance(got, NotRun) else got.err.encode())


def in_order(out: bytes, err: bytes) -> list[str]:
    """The lines of both streams by their stamps; a line without one goes with the line before it."""
    streams = [list(_stamped(stream)) for stream in (out, err)]
    return [line for _, line in merge(*streams, key=lambda pair: pair[0])]


def _stamped(stream: bytes) -> Iterable[tuple[str, str]]:
    at = ""
    for line in stream.splitlines():
        found = _STAMP.match(line)
        at = max(at, found[0].decode().strip()) if found else at
        yield at, line.decode(errors="replace")


def _is_current(seen: Inspected) -> bool:
    end = seen.container.end
    if seen.container.state in {"running", "paused", "restarting", "created"} or end is None or end.finished_at is None:
        return True
    try:
        ended = datetime.datetime.fromisoformat(end.finished_at[:19] + "+00:00")
    except ValueError:
        return True
    return (datetime.datetime.now(tz=datetime.UTC) - ended).total_seconds() < _RECENT_S


def _trouble(seen: Inspected) -> tuple[int, str]:
    order = {"restarting": 0, "exited": 1, "created": 1, "paused": 2, "running": 3}
    return order.get(seen.container.state, 4), seen.container.name
