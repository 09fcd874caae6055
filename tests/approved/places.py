"""What is read of a server where it runs (a container, a pod, a batch job, a process, a unit), and of its host.
The host is the /proc of `documents/proc`; its programs and servers answer as each world says.

Each place is put into each world, and the whole picture pinned in words: which server is asked and how, what its launch
is, whose processes are told, what is not read and why.
"""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from tests.approved import askers
from tests.approved.readings import DOCUMENTS, flat, proc
from tests.approved.strays import strays
from vllm_doctor.gather import containers, hub, journal, live, place, procfs, systemd
from vllm_doctor.gather.http import HttpOutcome, NoResponse, Response
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.gather.processes import NotRun, Ran
from vllm_doctor.records.container import Container
from vllm_doctor.records.host import Unit
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot

_ID = "0123456789abcdef" * 4
_SERVE = ("vllm", "serve", "org/m", "--port", "9000", "--api-key", "sk-not-to-be-shown")
_MORE = """
== 106/cmdline
VLLM::Worker_TP0␀
== 106/stat
106 (VLLM::Worker_TP) T 105 105 105 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7100 0 0
== 106/cgroup
0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service
== 107/cmdline
/opt/venv/bin/python3␀train.py␀
== 107/stat
107 (python3) S 1 107 107 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7100 0 0
== 107/maps
7f00-7f01 r-xp 00000000 08:01 1 /opt/venv/lib/python3.12/site-packages/vllm/_C.abi3.so
== 108/cmdline
bash␀run.sh␀
== 108/stat
108 (bash) S 1 108 108 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7100 0 0
== 108/cgroup
0::/user.slice/user-1000.slice/session-3.scope
== 109/cmdline
VLLM::EngineCore␀
== 109/stat
109 (VLLM::EngineCor) S 108 108 108 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7200 0 0
== 109/cgroup
0::/user.slice/user-1000.slice/session-3.scope
== 110/cmdline
VLLM::EngineCore␀
== 110/stat
110 (VLLM::EngineCor) S 104 104 104 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7200 0 0
== 110/cgroup
0::/user.slice/user-1000.slice/session-4.scope
== 111/cmdline
/usr/bin/python3.12␀serve.py␀
== 111/stat
111 (python3.12) S 1 111 111 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7300 0 0
== 112/cmdline
vllm␀serve␀org/q␀--port␀8443␀--host␀::1␀--ssl-certfile␀/etc/c.pem␀--ssl-keyfile␀/etc/k.pem␀
== 112/stat
112 (vllm) S 1 112 112 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7300 0 0
== 112/statm
1000 500 1 1 0 1 0
== 112/environ
VLLM_API_KEY=sk-not-to-be-shown␀HF_HOME=/c␀
== 112/cgroup
12:devices:/docker/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/libpod-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb/x
0::/docker/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
== 113/cmdline
vllm␀serve␀org/r␀--uds␀/run/s␀
== 113/stat
113 (vllm) D 112 113 113 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7300 0 0
== 113/cgroup
0::/kubepods.slice/cri-containerd-cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc.scope
"""


def _answers(health: HttpOutcome, metrics: HttpOutcome, *, text: str = "1") -> Callable[[str], HttpOutcome]:
    def reply(url: str) -> HttpOutcome:
        if url.endswith("/health"):
            return health
        if "/metrics" in url:
            return metrics
        body = (
            {"data": [{"id": "org/m"}]}
            if "/models" in url
            else {"choices": [{"text": text}], "usage": {"completion_tokens": len(text)}}
        )
        return Response(200, msgspec.json.encode(body), "application/json", "uvicorn")

    return reply


_OK = Response(200, b"", "text/plain", "uvicorn")
_PAGE = Response(200, b'vllm:num_requests_running{engine="0"} 2\n', "text/plain", "uvicorn")
_SILENT = NoResponse("it accepted the connection and sent nothing within 1 s", connected=True)
_AWAY = NoResponse("no connection: connection refused", connected=False)
_WORLDS = {
    "serves": _answers(_OK, _PAGE),
    "serves and gives no token": _answers(_OK, _PAGE, text=""),
    "is silent": _answers(_SILENT, _SILENT),
    "is away": _answers(_AWAY, _AWAY),
    "fails": _answers(Response(503, b"", "", ""), _PAGE),
}
_NOT_ASKED = {"not given", "no guard's records were given", "no container was named"}
_WROTE = b"2026-02-02T02:00:00Z INFO 02-02 02:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"


def _container(**more: object) -> Inspected:
    argv = more.pop("argv", _SERVE)
    ports, files = more.pop("ports", {}), more.pop("files", ())
    said: dict[str, Any] = {"name": "llm", "runtime": "docker", "image": "vllm/vllm-openai:v0.11.0", "state": "running",
                            "started_at": "2026-02-02T01:00:00Z", **more}  # fmt: skip
    env = {"VLLM_API_KEY": "sk-not-to-be-shown", "HF_HOME": "/c"}
    return Inspected(Container(**said), _ID, argv, env, ports=ports, files=files)  # type: ignore[arg-type]


@cache
def _containers() -> dict[str, Inspected]:
    return {
        "that publishes the port": _container(ports={9000: 19000, 8000: 18000}, pid=102),
        "with an address": _container(address="172.18.0.3", argv=("vllm", "serve", "org/m"), pid=102),
        "without either": _container(runtime="podman"),
        "that ended": _container(state="exited", address="172.18.0.3"),
        "that never started": _container(state="created", started_at=None),
        "with another program": _container(argv=("/usr/sbin/init",), address="172.18.0.3", pid=102),
        "with a certificate": _container(argv=(*_SERVE, "--ssl-certfile", "/c.pem"), address="172.18.0.3"),
        "of a pod": _container(name="llm/one/vllm", runtime="kubernetes", node="n1", unseen="events: denied"),
        "of a pod on no node": _container(name="llm/one/vllm", runtime="kubernetes", state="waiting", started_at=None),
        "of a job": _container(name="42", runtime="slurm", node="n2", files=("/nowhere/slurm-42.out",)),
    }


def _unit(
    state: str, *, pid: int | None, argv: tuple[str, ...] = _SERVE, env: Mapping[str, str] | None = None
) -> systemd.Found:
    unit = Unit("vllm@chat.service", "loaded", state, "x", "", invocation_id="ab12", main_pid=pid)
    return systemd.Found(unit, argv, {"HF_HOME": "/c", **(env or {})}, "/system.slice/vllm@chat.service", None)


_KEY = {"VLLM_API_KEY": "sk-not-to-be-shown"}


@cache
def _units() -> dict[str, systemd.Found]:
    states = ("active", "activating", "deactivating", "reloading", "failed", "inactive")
    return {
        **{f"that is {state}": _unit(state, pid=100) for state in states},
        "without a process": _unit("active", pid=None),
        "on a Unix socket": _unit("active", pid=None, argv=("vllm", "serve", "org/m", "--uds", "/run/s")),
        "without a program": _unit("failed", pid=None, argv=()),
        "with a certificate": _unit(
            "active", pid=None, argv=(*_SERVE, "--ssl-certfile", "/c.pem"), env={"VLLM_API_KEY": "k"}
        ),
        "of another program": _unit("active", pid=104, argv=("/opt/run.sh",)),
    }


@cache
def _kinds() -> dict[str, Callable[[], Iterator[str]]]:
    return {
        "containers": _of_containers,
        "units": _of_units,
        "processes": _of_processes,
        "host": _of_host,
        "strays": strays,
    }


@cache
def kinds() -> tuple[str, ...]:
    """What a server may run as, and the host itself."""
    return tuple(_kinds())


def answers(kind: str) -> str:
    """Each place in each world."""
    with _host():
        return "\n".join(_kinds()[kind]())


def _of_containers() -> Iterator[str]:
    for name, seen in _containers().items():
        yield from _in_worlds(f"a container {name}", partial(place.of_container, seen, 5))


def _of_units() -> Iterator[str]:
    for name, found in _units().items():
        yield from _in_worlds(f"a unit {name}", partial(live._snapshot, found, 5))


def _of_processes() -> Iterator[str]:
    for pid in (100, 102, 105, 107, 109, 112, 113):
        yield from _in_worlds(f"process {pid}", partial(place.of_process, pid))


def _in_worlds(what: str, read: Callable[..., tuple[Snapshot, tuple[str, ...]]]) -> Iterator[str]:
    """What is the same in another world is said once; who is asked for a token is asked in the first."""
    known: dict[str, str] = {}
    for world, reply in _WORLDS.items():
        for canary in (None, True, False) if world == "serves" else (None,):
            asked: list[str] = []
            with askers.replaced_get(reply, asked), askers.replaced_run(_ran, []):
                told = {k: v for k, v in flat(_told(read(canary=canary)[0])).items() if v not in _NOT_ASKED}
            told = {**{f"asks {line}": "" for line in sorted(set(asked))}, **told}
            yield f"{what}, {world}{'' if canary is None else ', asked for a token' if canary else ', not asked'}:"
            others = {where: value for where, value in told.items() if known.get(where) != value}
            yield from (f"  {where} = {value}" if value else f"  {where}" for where, value in others.items())
            yield from (f"  no {where}" for where in known if where not in told)
            known = told
    yield ""


def _ran(argv: str) -> Ran | NotRun:
    """Of the programs a container's runtime alone is there."""
    program, *words = argv.split()
    return Ran(0, _WROTE, "") if "logs" in words else NotRun(f"{program} is not installed", missing=True)


def _told(shot: Snapshot) -> object:
    """The picture in words: of the machine the processes, of what is read at length the source."""
    machine = shot.machine.value if isinstance(shot.machine, Known) else None
    apart = {"taken_at", "machine"}
    return {
        **{name: _short(getattr(shot, name)) for name in shot.__struct_fields__ if name not in apart},
        "processes": [p.pid for p in machine.processes] if machine is not None else shot.machine,
        "listeners": machine.listeners if machine is not None else (),
    }


# Of a record that other files pin: who it is, and what the place decides.
_KEPT = (
    "argv", "model", "health_status", "health_error", "completion", "completion_unknown", "untried", "models", "name",
    "url",
)  # fmt: skip


def _short(value: object) -> object:
    if isinstance(value, Known) and isinstance(value.value, msgspec.Struct):
        return {"of": value.source, **{n: getattr(value.value, n) for n in _KEPT if hasattr(value.value, n)}}
    return value


def _of_host() -> Iterator[str]:
    """Each process; what is vLLM's; what a runtime's program is given of each variable; the way to the hub."""
    for pid in procfs.pids():
        told = {
            "is vLLM's": procfs.is_of_vllm(pid),
            "unit": procfs.unit_of(pid),
            "user's unit": procfs.user_unit_of(pid),
            "containers": procfs.containers_of(pid),
            "serves": procfs.serves(procfs.cmdline(pid)),
            "stat": procfs.stat(pid),
        }
        yield f"process {pid}: {told}"
    whole = procfs.machine(main_pid=100, port=8000, folders=[])
    for units in ((), ("vllm@chat.service",)):
        yield f"beside {units}: {[p.pid for p in procfs.unexplained(whole.processes, units)]}"
    for p in whole.processes:
        held = f"{p.rss_bytes} bytes, {p.state}, {p.container}, {p.around}, {p.serves}"
        yield f"process {p.pid}: {p.name} of {p.ppid}, {held}"
    yield f"plain: {[p.pid for p in whole.processes if live._is_plain(p)]}"
    yield f"halted: {live._halted(whole, 'vllm@chat.service')}"
    yield f"locked: {whole.memlock_bytes}, {procfs.machine(main_pid=101, port=None, folders=[]).memlock_bytes}"
    for name in ("XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST", "CONTAINERS_CONF"):
        for value in ("", "/run/x", "tcp://h:1", "relative"):
            with patch.dict(os.environ, {name: value}, clear=True), patch.object(containers, "_home", lambda: "/h"):
                for why in (None, "it is another's"):
                    with patch.object(containers.trust, "why_not", lambda _, why=why: why):
                        yield f"{name}={value}{'' if why is None else f', {why}'}: docker {containers.environment()}"
    yield from _runtimes()
    yield from _ways_to_the_hub()


_VARIABLES = ("", "DOCKER_HOST", "CONTAINER_HOST")
_STORES = (None, "", "[]", "[{}]", " []\n")


def _runtimes() -> Iterator[str]:
    """Is there anything to ask a runtime for? By its program, its socket, its variable and what its stores hold."""
    for runtime, there, env, store in product(
        containers.RUNTIMES,
        (None, "/usr/bin/it"),
        ("", "DOCKER_HOST", "CONTAINER_HOST"),
        (None, "", "[]", "[{}]", " []\n"),
    ):
        with tempfile.TemporaryDirectory() as home, ExitStack() as changed:
            if store is not None:
                file = Path(home, ".local/share/containers/storage/overlay-containers/containers.json")
                file.parent.mkdir(parents=True)
                file.write_text(store)
            changed.enter_context(patch.dict(os.environ, {env: "x"} if env else {}, clear=True))
            for module, name, value in (
                (containers, "_home", lambda home=home: home),
                (containers, "_SOCKETS", ("/nowhere", home if store else "/nowhere")),
                (containers.shutil, "which", lambda *_, there=there, **__: there),
                (containers, "_SYSTEM_STORE", Path(home, "none")),
            ):
                changed.enter_context(patch.object(module, name, value))
            if containers._is_used(runtime):
                yield f"{runtime} is asked: {there}, {env or 'no variable'}, store {store!r}"


def _ways_to_the_hub() -> Iterator[str]:
    from huggingface_hub import constants

    asked: list[object] = []

    def connect(address: object, timeout: float) -> Any:
        asked.append((address, timeout))
        raise OSError

    proxies = ({}, {"https_proxy": "proxy:3128"}, {"https_proxy": "https://proxy"}, {"https_proxy": "http://u@proxy"},
               {"https_proxy": "proxy:3128", "no_proxy": "hub.example"}, {"http_proxy": "proxy:1"})  # fmt: skip
    for endpoint in ("https://hub.example", "http://hub.example", "https://hub.example:8443", "not a hub"):
        for env in proxies:
            asked.clear()
            with (
                patch.dict(os.environ, env, clear=True),
                patch.object(constants, "ENDPOINT", endpoint),
                patch.object(constants, "HF_HUB_OFFLINE", False),
                patch.object(hub.socket, "create_connection", connect),
            ):
                reached = hub._reached()
            yield f"hub {endpoint} {env}: {reached}, asks {asked}"


@contextmanager
def _host() -> Iterator[None]:
    soon = partial(scrape_twice, interval_s=0.01)
    text = (DOCUMENTS / "proc" / "host.txt").read_text(encoding="utf-8").rstrip("\n") + _MORE
    with ExitStack() as changed:
        for module, name, value in (
            (procfs, "PROC", proc(text)),
            (socket, "gethostname", lambda: "gpu1"),
            (place, "scrape_twice", soon),
            (live, "scrape_twice", soon),
            (journal, "silent_s", lambda *_: 12.0),
        ):
            changed.enter_context(patch.object(module, name, value))
        yield
