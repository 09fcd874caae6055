"""What is said of each kind of process beside what was judged: by what started it, who owns it and how many."""

from collections.abc import Iterator

from vllm_doctor.records.host import Machine, Process
from vllm_doctor.records.reading import Absent, Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.strays import unjudged

_LINES = (
    ("vllm", "serve", "acme/chat"),
    ("/opt/v/bin/python3.12", "/opt/v/bin/vllm", "serve", "acme/chat", "--port", "8001"),
    ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/srv/models/chat"),
    ("python3",),
    ("VLLM::EngineCore",),
)
_STARTED: dict[str, dict[str, object]] = {
    "nothing known": {},
    "a user": {"user": "ann"},
    "a unit": {"unit": "vllm@a b.service", "user": "ann"},
    "a user's unit": {"user_unit": (1001, "llm's.service"), "user": "ann"},
    "a user's unit, no name": {"user_unit": (1001, "llm.service")},
    "a file": {"output": "/var/log/my vllm.log", "user": "ann"},
    "a unit and a file": {"output": "/var/log/vllm.log", "unit": "vllm.service"},
    "docker": {"container": ("docker", "0a1b2c"), "unit": "docker.service"},
    "podman": {"container": ("podman", "0a1b2c")},
    "containerd": {"container": ("nerdctl", "0a1b2c")},
    "some runtime": {"container": ("", "0a1b2c")},
    "within two": {"container": ("docker", "0a1b2c"), "around": (("docker", "ff00"), ("", "ee11"))},
    "within one, some runtime": {"container": ("", "0a1b2c"), "around": (("podman", "ff00"),)},
}


def strays() -> Iterator[str]:
    """A line each: the process by itself in each spelling, then ten that share what is to be run."""
    for what, of in _STARTED.items():
        yield f"{what}: {_told(_process(100, _LINES[0], of))}"
    for line in _LINES:
        yield f"{' '.join(line)}: {_told(_process(100, line, {}))}"
    for count in (2, 3, 10, 11, 14):
        yield f"{count} of them: {_told(*(_process(100 + at, _LINES[0], {}) for at in range(count)))}"
    yield f"its worker: {_told(_process(100, _LINES[0], {}), _process(101, _LINES[4], {}, ppid=100))}"
    yield f"no server: {_told(_process(100, _LINES[0], {'serves': False}))}"
    for count in (20, 21):
        units = (_process(100 + at, _LINES[0], {"unit": f"u{at}.service"}) for at in range(count))
        yield f"{count} units: {len(unjudged(_snapshot(*units)))} told"


def _process(pid: int, line: tuple[str, ...], of: dict[str, object], *, ppid: int = 1) -> Process:
    return Process(**{"pid": pid, "ppid": ppid, "name": "vllm", "cmdline": line, "serves": True, **of})  # type: ignore[arg-type]


def _snapshot(*processes: Process) -> Snapshot:
    machine = Machine("h", processes=processes)
    return Snapshot(taken_at="", live=True, unit=Absent("no unit"), machine=Known(machine, "/proc"))


def _told(*processes: Process) -> str:
    return "; ".join(f"{one.reason} -> {one.remedy}" for one in unjudged(_snapshot(*processes))) or "nothing"
