"""What each reading asks of a program or a server, word for word, and what it says where the answer is none.

The programs and servers are worlds of a few lines: not installed, silent, denied, empty, another program. Each reading
is put into each, and its whole answer pinned: the reason, what to do, how long and how much is waited for.
"""

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import msgspec

from tests.approved.readings import DOCUMENTS, flat, proc
from vllm_doctor import gather
from vllm_doctor.gather import (
    containers,
    http,
    inspected,
    journal,
    kernel,
    kubectl,
    look,
    metrics,
    place,
    pod,
    probe,
    processes,
    procfs,
    prometheus,
    slurm,
    systemd,
    unit_line,
)
from vllm_doctor.gather.http import HttpOutcome, NoResponse, Pass, Response
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.processes import NotRun, ProgramOutcome, Ran
from vllm_doctor.records.host import Gpu, GpuProcess, Launch, Metrics, Probe, Unit
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot

# 2026-02-02T02:40:00Z; every clock says so.
_NOW = 1770000000.0
_LONG = "what it says " * 40
_URL = "http://10.0.0.7:8000"
_Answer = Callable[[str], ProgramOutcome]
_Reply = Callable[[str], HttpOutcome]


def _program(argv: str) -> str:
    return argv.split(" ", 1)[0]


# What every program can do.
_WORLDS: dict[str, _Answer] = {
    "not installed": lambda argv: NotRun(f"{_program(argv)} is not installed", missing=True),
    "hangs": lambda argv: NotRun(f"{_program(argv)} did not answer within 5 s", pid=7),
    "hangs in its answer": lambda argv: NotRun(
        f"{_program(argv)} did not answer within 5 s", pid=7, out=b"2026-02-02T02:00:00Z half\n"
    ),
    "denies": lambda _: Ran(1, b"", "see the manual\nGot permission denied while trying to connect"),
    "fails at length": lambda _: Ran(2, b"", f"{_LONG}\n{_LONG}"),
    "fails without a word": lambda _: Ran(3, b"", ""),
    "fails with an empty list": lambda _: Ran(1, b"[]\n", "Error: no such object: one"),
    "says nothing": lambda _: Ran(0, b"", ""),
    "says nothing, and why": lambda _: Ran(0, b"", "No journal files were found."),
    "says what is no answer": lambda _: Ran(0, b"<html>\xff {\n", ""),
}
# What every server can do.
_REPLIES: dict[str, _Reply] = {
    "is not there": lambda url: NoResponse(f"no connection to {url}: connection refused", connected=False),
    "is silent": lambda url: NoResponse(f"{url} accepted the connection and sent nothing within 1 s", connected=True),
    **{
        f"answers {status}": partial(lambda status, _: Response(status, b"no", "text/plain", "nginx"), status)
        for status in (204, 301, 400, 401, 403, 404, 500, 503)
    },
    "answers with a page": lambda _: Response(200, b"<html>hello</html>", "text/html", ""),
    "answers with an empty page": lambda _: Response(200, b"", "text/plain", "uvicorn"),
    "answers with another JSON": lambda _: Response(200, b'{"status": "error", "error": "bad query"}', "", "x"),
}


def _of(kind: str, name: str) -> bytes:
    return (DOCUMENTS / kind / name).read_bytes()


def _by_words(*rows: tuple[str, ProgramOutcome]) -> _Answer:
    """The first row whose words are all in the command answers it."""
    return lambda argv: next((told for words, told in rows if set(words.split()) <= set(argv.split())), Ran(0, b"", ""))


def _by_path(*rows: tuple[str, HttpOutcome]) -> _Reply:
    return lambda url: next((told for path, told in rows if path in url), Response(404, b"", "", ""))


def _json(value: object) -> Response:
    return Response(200, msgspec.json.encode(value), "application/json", "uvicorn")


def _rows(*messages: str, more: int = 0) -> bytes:
    told = [*messages, *(f"line {number}" for number in range(more))]
    return b"".join(
        msgspec.json.encode(
            {
                "MESSAGE": text,
                "_PID": "7",
                "SYSLOG_IDENTIFIER": "vllm",
                "INVOCATION_ID": "ab12" if number < 2 else "cd34",
                "__REALTIME_TIMESTAMP": str(1769999000000000 + number * 1000000),
                "__CURSOR": str(number),
            }
        )
        + b"\n"
        for number, text in enumerate(told)
    )


def _listed(count: int) -> bytes:
    return "".join(f"id{n:02}\tvllm/vllm-openai:v0.11.0\tserve m\tname{n:02}\n" for n in range(count)).encode()


def _in_each_state() -> bytes:
    program = "{ path=/opt/vllm/bin/vllm ; argv[]=/opt/vllm/bin/vllm serve org/m ; ignore_errors=no }"
    states = ("inactive", "active", "deactivating", "activating", "failed", "reloading")
    return "\n\n".join(
        f"Id=vllm@{at}.service\nLoadState=loaded\nActiveState={state}\nSubState=x\nExecStart={program}"
        for at, state in enumerate((*states, *states[:2]))
    ).encode()


# Processes 100 (the server) and 101 of the documents' host hold two cards; process 7 is another's.
_CARDS = tuple(
    Gpu(
        at, "card", f"GPU-{at}" if at else None, total_bytes=80 << 30, free_bytes=at << 30,
        processes=(GpuProcess(100, 3 << 30), GpuProcess(101, at or None), GpuProcess(7, 5 << 30)),
    )
    for at in range(2)
)  # fmt: skip


def _looked(state: str, canary_s: float | None) -> object:
    """A unit's look at its processes, cards and server."""
    unit = Unit("vllm@main.service", "loaded", state, "x", "", invocation_id="ab12", main_pid=100, restarts=2,
                memory_max=96 << 30)  # fmt: skip
    argv = ("/opt/vllm/bin/vllm", "serve", "org/m", "--port", "9000", "--api-key", "k")
    found = systemd.Found(unit, argv, {}, "/system.slice/vllm@main.service", None)
    files = (DOCUMENTS / "proc" / "host.txt").read_text(encoding="utf-8")
    with (
        patch.object(procfs, "PROC", proc(files)),
        patch.object(look, "pids_of", lambda _: (100, 101, 102)),
        patch.object(journal, "silent_s", lambda *_: 12.0),
    ):
        return look._look(found, Known((*_CARDS, Gpu(2, "another's")), "NVML"), (_NOW, 3600.0, 0.0), "", canary_s)


_WROTE = "\n".join(f"2026-02-02T02:{n // 60:02}:{n % 60:02}Z line {n}" for n in range(3)).encode()
_POD = Ran(0, _of("pod", "restarting.json"), "")
_ERROR = Ran(1, b"", "Error from server (Forbidden): you cannot list this")
_GONE = Ran(1, b"", 'Error from server (NotFound): pods "one" not found')


def _seen(kind: str) -> Inspected:
    """A container, or a pod's, of the documents."""
    read = inspected.read if kind == "inspect" else pod.read
    found = read(_of(kind, "killed.json" if kind == "inspect" else "restarting.json"), "the document")
    assert isinstance(found, Known)
    return found.value[0]


_Asks = tuple[dict[str, Callable[[], object]], dict[str, _Answer]]


@cache
def _programs() -> dict[str, _Asks]:
    """By room: its readings, and worlds of its own."""
    return {
        "containers": (
            {
                "find": lambda: _brief(containers.find(5)),
                "inspect": lambda: _brief(containers.inspect("docker", ["one"], 5)),
                "inspect of podman": lambda: _brief(containers.inspect("podman", ["one", "two"], 5)),
                "names": partial(containers.names, "docker", 5),
                "log": lambda: _short(containers.log(_seen("inspect"), 5)),
            },
            {
                "lists forty and inspects one": _by_words(
                    ("ps -a --no-trunc", Ran(0, _listed(40) + b"\nid\n", "")),
                    ("inspect", Ran(0, _of("inspect", "killed.json"), "")),
                    ("--tail", Ran(0, _WROTE, "")),
                    ("ps", Ran(0, "\n".join(f"n{n}" for n in range(30)).encode(), "")),
                ),
                "lists and inspects nothing": _by_words(("ps --no-trunc", Ran(0, _listed(1), ""))),
                "lists others": _by_words(("ps", Ran(0, b"id\tnginx\tserve\tweb\nvllm\n", ""))),
                "wrote a long log": _by_words(
                    ("--tail", Ran(0, b"".join(b"2026-02-02T03:00:00Z end %d\n" % n for n in range(4000)), "")),
                    ("logs", Ran(0, _WROTE, "2026-02-02T02:00:01Z beside")),
                ),
            },
        ),
        "journal": (
            {
                "invocations": lambda: _runs(journal.invocations("vllm.service", 5)),
                "invocations since": lambda: _runs(journal.invocations("vllm.service", 5, since=_NOW - 3600.4)),
                "entries": lambda: _short(journal.entries("ab12", 5)),
                "head": lambda: _short(journal.head("ab12", 5)),
                "silent for": partial(journal.silent_s, "ab12", _NOW, 5),
            },
            {
                "tells of two runs": lambda _: Ran(
                    0, _rows("Started.", "Started.", "vllm.service: Failed with result 'signal'.", "Stopped."), ""
                ),
                "tells as much as is asked for": lambda _: Ran(0, _rows(more=journal.TAIL_LINES), ""),
                "tells one less": lambda _: Ran(0, _rows(more=journal.TAIL_LINES - 1), ""),
                "denies with a hint": lambda _: Ran(
                    0, b"\n", "Hint: You are currently not seeing messages from other users"
                ),
            },
        ),
        "kernel": (
            {"read": partial(kernel.read, 5), "since": partial(kernel.since, _NOW - 60, 5)},
            {
                "has them in the journal": _by_words(
                    ("--grep", Ran(0, _rows("Out of memory: Killed process 7", "eth0 up", "NVRM: Xid 79"), ""))
                ),
                "has them in the ring": _by_words(
                    ("dmesg", Ran(0, b"2026-02-02T02:00:00,1+00:00 NVRM: Xid 79\n", "")),
                    ("cat", Ran(0, b"-- No entries --\n", "")),
                ),
                "has none of them": _by_words(("cat", Ran(0, b"Linux version 6\n", "")), ("dmesg", Ran(1, b"x", ""))),
            },
        ),
        "kubectl": (
            {
                "read": lambda: _brief(kubectl.read("one", "llm", 5)),
                "read of no namespace": lambda: _brief(kubectl.read("one", None, 5)),
                "log": lambda: _short(kubectl.log(_seen("pod"), 5)),
            },
            {
                "has it": _by_words(
                    ("get pod", _POD),
                    ("get events", Ran(0, _of("events", "probe.json"), "")),
                    ("get node", Ran(0, b'{"status": {"allocatable": {"memory": "64Gi"}}}', "")),
                    ("logs --previous", Ran(0, b"before\n", "")),
                    ("logs", Ran(0, b"now\n", "")),
                ),
                "has it and denies the rest": _by_words(("get pod", _POD), ("", _ERROR)),
                "has only what was before": _by_words(("--previous", Ran(0, b"before\n", "")), ("", _ERROR)),
                "has no such pod": lambda _: _GONE,
                "has something else": lambda _: Ran(0, b'{"kind": "Node"}', ""),
            },
        ),
        "slurm": (
            {"read": lambda: _brief(slurm.read("42", 5))},
            {
                "has it": _by_words(
                    ("show", Ran(0, _of("scontrol", "two-nodes.txt"), "")),
                    ("write", Ran(0, b"#!/bin/bash\nvllm serve org/m\n", "")),
                ),
                "has many of it": _by_words(
                    ("show", Ran(0, b"".join(b"JobId=%d JobState=RUNNING\n" % n for n in range(1, 20)), ""))
                ),
                "has forgotten it": _by_words(
                    ("show", Ran(1, b"", "slurm_load_jobs error: Invalid job id specified")),
                    ("sacct", Ran(0, _of("sacct", "ended.txt"), "")),
                ),
                "never had it": lambda _: Ran(1, b"", "slurm_load_jobs error: Invalid job id specified"),
            },
        ),
        "systemd": (
            {
                "every": partial(systemd.find, None, 5),
                "one": partial(systemd.find, "vllm@main", 5),
                "no name": partial(systemd.find, "a*" + "b" * 200, 5),
                "the line": partial(unit_line.line, "vllm@main.service"),
            },
            {
                "has one": _by_words(
                    ("list-unit-files", Ran(0, b"vllm.service enabled\nvllm@.service enabled\n\n", "")),
                    ("show", Ran(0, _of("systemctl", "show.txt"), "")),
                ),
                "has one in each state": _by_words(
                    ("list-unit-files", Ran(0, b"vllm@.service enabled\n", "")),
                    ("show", Ran(0, _in_each_state(), "")),
                ),
                "was not booted": lambda _: Ran(1, b"", "System has not been booted with systemd as init system"),
                "has none": _by_words(("show", Ran(0, b"Id=vllm@main.service\nLoadState=not-found\n", ""))),
                "fails in its answer": lambda _: Ran(1, b"Id=vllm@main.service\nLoadState=loaded\n", "odd"),
            },
        ),
    }


_METRICS = "".join(
    f'vllm:num_requests_{kind}{{engine="{engine}"}} {engine + 1}\n'
    for kind in ("running", "waiting")
    for engine in (0, 1)
) + (
    'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75\n'
    'vllm:generation_tokens_total{engine="0"} 700\nvllm:generation_tokens_total{engine="1"} 11\n'
    'vllm:prompt_tokens_total{engine="0"} 60\nvllm:request_success_total{engine="1",finished_reason="stop"} 5\n'
    "vllm:num_preemptions_total 3\nprocess_start_time_seconds 1769990000\n"
    "vllm:time_to_first_token_seconds_sum 12.5\nvllm:time_to_first_token_seconds_count 50\n"
    "vllm:inter_token_latency_seconds_sum 7\nvllm:inter_token_latency_seconds_count 1400\n"
)
_KEYED, _LAUNCH = Pass("k"), Launch(("vllm", "serve", "m"), "m", {})
_MODELS = _json({"data": [{"id": f"m{n}"} for n in range(30)]})
_FOUND = Probe(health_status=200, models=("m",))


def _text(status: int, body: str) -> Response:
    return Response(status, body.encode(), "text/plain; version=0.0.4", "uvicorn")


def _completed(**choice: object) -> Response:
    return _json({"choices": [choice], "usage": {"completion_tokens": choice.pop("tokens", 1)}})


def _series(name: str, *values: object) -> list[dict[str, object]]:
    return [
        {"metric": {"__name__": name, "instance": f"gpu{n}:8000", "model_name": "m"}, "value": [_NOW, str(value)]}
        for n, value in enumerate(values)
    ]


def _prometheus(**by_name: list[dict[str, object]]) -> _Reply:
    """Healthy; each query is answered by the first name that stands in it."""

    def reply(url: str) -> HttpOutcome:
        if "/-/healthy" in url:
            return _text(200, "Prometheus Server is Healthy.\n")
        rows = next((rows for name, rows in by_name.items() if name in url), [])
        return _json({"status": "success", "data": {"result": rows}})

    return reply


_Gets = tuple[dict[str, Callable[[], object]], dict[str, _Reply]]


@cache
def _servers() -> dict[str, _Gets]:
    """By room: its readings, and replies of its own."""
    return {
        "probe": (
            {
                "probe": partial(probe.probe, _URL, deadline_s=1),
                "one token": partial(probe.one_token, _URL, _LAUNCH, _FOUND, asked=False, deadline_s=15),
                "one token that was asked for": partial(
                    probe.one_token, _URL, _LAUNCH, Probe(health_status=200), asked=True, deadline_s=15, given=_KEYED
                ),
                "one token of no model": partial(
                    probe.canary, _URL, Launch((), None, {}), Probe(health_status=200), deadline_s=15
                ),
                "served": partial(probe.served, _URL, deadline_s=1, given=_KEYED),
            },
            {
                "serves": _by_path(
                    ("/health", _text(200, "")), ("/models", _MODELS), ("/completions", _completed(text="1"))
                ),
                "is closed": _by_path(("/health", _text(200, "")), ("", _text(401, ""))),
                "aborts": _by_path(("/completions", _completed(text="x", finish_reason="abort"))),
                "makes no token": _by_path(("/completions", _completed(text="", tokens=0))),
                "makes one that is nothing": _by_path(("/completions", _completed(text="", tokens=1))),
                "works and gives nothing back": _by_path(
                    ("/metrics", _text(200, _METRICS)), ("/completions", NoResponse("silent", connected=True))
                ),
            },
        ),
        "metrics": (
            {
                "twice": lambda: _brief(metrics.scrape_twice(_URL, deadline_s=2, interval_s=0.01)),
                "once": lambda: _brief(metrics.scrape_twice(_URL, deadline_s=0.04, interval_s=0.01, given=_KEYED)),
                "few": partial(metrics.scrape_few, _URL, ("num_requests_running",), deadline_s=1),
                "look": lambda: msgspec.structs.replace(look.look_at(_URL), awake=0.0),
                "look at a unit": partial(_looked, "active", None),
                "look at a unit, and ask it for a completion": partial(_looked, "active", 20.0),
                "look at a unit that does not run": partial(_looked, "failed", None),
            },
            {
                "serves": _by_path(("/health", _text(200, "")), ("/metrics", _text(200, _METRICS))),
                "sleeps": _by_path(
                    ("/health", _text(200, "")),
                    ("/metrics", _text(200, _METRICS + 'vllm:engine_sleep_state{sleep_state="discard_all"} 1\n')),
                ),
                "has one engine": _by_path(("/metrics", _text(200, _METRICS.replace('engine="1"', 'engine="0"')))),
                "tells what cannot be": _by_path(("/metrics", _text(200, "vllm:num_requests_running 1000000\n"))),
            },
        ),
        "prometheus": (
            {"read": lambda: _brief(prometheus.read("http://mon:9090", "2026-02-02T02:40:00+00:00"))},
            {
                "tells of two": _prometheus(
                    avg_over_time=_series("", 2, 7.5), __name__=_series("vllm:num_requests_running", 1, 8)
                ),
                "tells of one and not of its load": _prometheus(
                    __name__=[*_series("vllm:num_requests_running", 1), *_series("vllm:odd", "NaN", "x")]
                ),
                "tells of nothing": _prometheus(),
                "tells of ninety": _prometheus(__name__=_series("vllm:num_requests_running", *range(90))),
            },
        ),
        "url": (
            {"read": lambda: _asked_by_url(place.of_url(_URL, canary=True)[0])},
            {
                "serves": _by_path(
                    ("/health", _text(200, "")),
                    ("/models", _MODELS),
                    ("/completions", _completed(text="1")),
                    ("/version", _json({"version": "0.11.0"})),
                    ("/metrics", _text(200, _METRICS)),
                )
            },
        ),
    }


@cache
def kinds() -> tuple[str, ...]:
    """The rooms of readings that ask somebody."""
    return tuple(sorted({*_programs(), *_servers()}))


def answers(kind: str) -> str:
    """Each reading of a room in each world: what was asked, and what it says."""
    if kind in _programs():
        asks, own = _programs()[kind]
        return "\n".join(_told(asks, {**_WORLDS, **own}, replaced_run))
    gets, replies = _servers()[kind]
    return "\n".join(_told(gets, {**_REPLIES, **replies}, replaced_get))


def _told(
    asks: dict[str, Callable[[], object]],
    worlds: dict[str, Callable[[str], object]],
    replaced: Callable[[Any, list[str]], AbstractContextManager[None]],
) -> Iterator[str]:
    for name, ask in asks.items():
        known: set[str] = set()
        alike: dict[str, list[str]] = {}  # by what is asked and said: the worlds
        for world, answer in worlds.items():
            asked: list[str] = []
            with replaced(answer, asked):
                said = flat(ask())
            lines = [f"  asks {line}" for line in dict.fromkeys(sorted(asked)) if line not in known]
            known.update(asked)
            lines += (f"  {where or 'says'} = {value}" for where, value in said.items())
            alike.setdefault("\n".join(lines), []).append(world)
        for body, found in alike.items():
            yield f"{name} of who {', or who '.join(found)}:\n{body or '  says nothing'}"
        yield ""


@contextmanager
def replaced_run(answer: _Answer, asked: list[str]) -> Iterator[None]:
    """In here programs answer so; `asked` takes what they were asked."""

    def one(argv: list[str], *, deadline_s: float, max_bytes: int = 16 << 20, **_: object) -> ProgramOutcome:
        asked.append(f"{' '.join(argv)} (within {deadline_s:g} s, at most {max_bytes} bytes)")
        return answer(" ".join(argv))

    with ExitStack() as changed:
        _instead(changed, "run", processes.run, one)
        # What is of this host, and of who runs the tests.
        for module, name, value in (
            (containers, "_is_used", lambda _: True),
            (containers, "environment", dict),
            (containers, "_is_current", lambda _: True),
            (journal, "_user", lambda: "somebody"),
            (journal, "_hidden", lambda: False),
            (journal, "_HOST", "gpu1"),
            (kernel, "_in_container", lambda: False),
            (kernel, "boot_id", lambda: "b00t"),
            (kubectl, "_refused", lambda: None),
            (slurm, "_environment", dict),
        ):
            changed.enter_context(patch.object(module, name, value))
        yield


@contextmanager
def replaced_get(reply: _Reply, asked: list[str]) -> Iterator[None]:
    """In here servers answer so, and every clock says one time."""

    def one(
        url: str,
        *,
        deadline_s: float,
        max_bytes: int = 16 << 20,
        body: bytes | None = None,
        given: http.Pass | http.Login = http.NO_PASS,
        method: str | None = None,
    ) -> HttpOutcome:
        words = [method or ("POST" if body is not None else "GET"), url, *([body.decode()] if body is not None else [])]
        key = " with the key" if isinstance(given, Pass) and given.key else ""
        key += f" to whom {given.certificate} shows" if isinstance(given, Pass) and given.certificate else ""
        # What is left of a deadline is of the clock.
        limit = f"{deadline_s:g}" if deadline_s == int(deadline_s) else "what is left of"
        asked.append(f"{' '.join(words)}{key} (within {limit} s, at most {max_bytes} bytes)")
        return reply(url)

    with ExitStack() as changed:
        _instead(changed, "get", http.get, one)
        changed.enter_context(patch.object(place, "WINDOW_S", 0.01))
        changed.enter_context(patch.object(time, "time", lambda: _NOW))
        changed.enter_context(patch.object(time, "clock_gettime", lambda _: 3600.0))
        yield


def _instead(changed: ExitStack, name: str, old: object, new: object) -> None:
    """In every module of the room that has it."""
    for module in _rooms():
        if getattr(module, name, None) is old:
            changed.enter_context(patch.object(module, name, new))


@cache
def _rooms() -> tuple[object, ...]:
    return tuple(
        importlib.import_module(f"{gather.__name__}.{found.name}")
        for found in pkgutil.iter_modules(gather.__path__)
        if found.name != "nvml_child"
    )


def _asked_by_url(shot: Snapshot) -> object:
    """What is read of the server; the rest is of the host, which a URL does not show."""
    return {"subject": shot.subject, "version": shot.version, "probe": shot.probe, "metrics": _brief(shot.metrics)}


def _brief(reading: object) -> object:
    """A record of many fields by those that its reading alone decides: readings/ has the others."""
    match reading:
        case Known(value, source):
            return {"of": source, "told": _brief(value)}
        case (first, _, _, _, _, *_, last):
            return {"count": len(reading), "first": _brief(first), "last": _brief(last)}
        case tuple():
            return [_brief(one) for one in reading]
        case Inspected():
            of = reading.container
            beside = {one.name: one.wrote for one in of.beside if one.wrote}
            told = {"name": of.name, "state": of.state, "argv": reading.argv, "events": len(of.events), "wrote": beside}
            return told | {"node's memory": of.host_memory, "unseen": of.unseen, "runtime": of.runtime}
        case Metrics():
            scrapes = [{"at": one.at, "samples": len(one.samples), "last": one.samples[-1]} for one in reading.scrapes]
            return {"url": reading.url, "scrapes": scrapes, "loads": reading.loads}
        case Snapshot():
            others = {"log": reading.log, "unit": reading.unit, "probe": reading.probe}
            return {"subject": reading.subject, "metrics": _brief(reading.metrics), **others}
    return reading


def _runs(reading: object) -> object:
    """How often each run spoke, where it did so more than a few times."""
    if not isinstance(reading, Known):
        return reading
    return [
        {"run": one.invocation, "failed": one.failed, "began": one.began, "last": one.last}
        | ({"said": one.said} if len(one.said) < 5 else {"lines": len(one.said)})
        for one in reading.value
    ]


def _short(reading: object) -> object:
    """Of a log its ends: the lines in between are the world's."""
    value = reading.value if isinstance(reading, Known) else reading
    lines = getattr(getattr(value, "last", value), "lines", value if isinstance(value, tuple) else ())
    if len(lines) <= 4:
        return reading
    told = [str(getattr(line, "text", line)) for line in lines]
    last = getattr(value, "last", None)
    skipped = {"skipped": last.skipped_bytes, "whole head": last.complete_head} if last is not None else {}
    return {"lines": len(told), "first": told[0], "last": told[-1], "gap": getattr(value, "gap", None), **skipped}
