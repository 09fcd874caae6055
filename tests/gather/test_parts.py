"""The small readers behind a picture of a live host, each on figures that tell one from another."""

import os
import stat
import time
from pathlib import Path

import pytest

from vllm_doctor.gather import launch, live, look, nvml, place, probe, procfs, target, trust
from vllm_doctor.gather.http_config import Wrong, in_plain_text
from vllm_doctor.gather.http_config import read as read_config
from vllm_doctor.gather.systemd import Found
from vllm_doctor.gather.target import Target
from vllm_doctor.records.host import Gpu, GpuProcess, Machine, Probe, Process, Unit
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.reading import Absent, Known, Unknown
from vllm_doctor.records.sample import CardUse

TICK = os.sysconf("SC_CLK_TCK")


def _process(folder: Path, pid: int, *, user: int, system: int, anonymous: int, began: int = 50) -> None:
    """stat(5): field 14 is utime, 15 stime, 22 starttime; status' RssAnon is in KiB."""
    rest = ["S", "1", *("0" for _ in range(9)), str(user), str(system), *("0" for _ in range(6)), str(began), "0", "0"]
    (folder / str(pid)).mkdir(exist_ok=True)
    (folder / str(pid) / "stat").write_text(f"{pid} (VLLM::Engine ) x) {' '.join(rest)}\n")
    (folder / str(pid) / "status").write_text(f"VmRSS:\t99999 kB\nRssAnon:\t{anonymous} kB\nRssFile:\t7 kB\n")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/proc and a control group of a unit with three processes; 12 GiB are left."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    (proc / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {12 << 20} kB\n")
    for pid, user, system, anonymous in ((10, 100, 20, 1 << 20), (11, 300, 40, 2 << 20), (12, 500, 60, 4 << 20)):
        _process(proc, pid, user=user * TICK, system=system * TICK, anonymous=anonymous)
    unit = groups / "system.slice" / "vllm.service"
    unit.mkdir(parents=True)
    (unit / "cgroup.procs").write_text("10\n11\n12\n")
    monkeypatch.setattr(procfs, "PROC", proc)
    monkeypatch.setattr(look, "_GROUPS", (tmp_path / "none", groups))
    return proc


def _found(**more: object) -> Found:
    unit = Unit("vllm.service", "loaded", "activating", "start", "success", main_pid=10, **more)  # type: ignore[arg-type]
    return Found(unit, ("vllm", "serve", "m"), {}, "/system.slice/vllm.service", None)


def test_a_look_counts_the_unit_s_own_processes(host: Path) -> None:
    """Three processes: 7 GiB that no file backs, and the main one's processor time is not the engine's."""
    cards = Gpu(
        0, "H100", uuid="GPU-0", total_bytes=80, free_bytes=30,
        processes=(GpuProcess(11, 20), GpuProcess(12, 15), GpuProcess(99, 5), GpuProcess(98, 4)),
    )  # fmt: skip
    others = Gpu(1, "H100", total_bytes=80, free_bytes=70, processes=(GpuProcess(99, 5),))
    unsaid = Gpu(2, "H100", processes=(GpuProcess(11, None), GpuProcess(12, 3), GpuProcess(99, 6)))
    seen = look._look(
        _found(restarts=4, invocation_id="ab"), Known((cards, others, unsaid), "NVML"), (1.0, 2.0, 3.0), "x", None
    )
    assert (seen.unit, seen.at, seen.up, seen.awake, seen.active) == ("vllm.service", 1.0, 2.0, 3.0, "activating")
    assert (seen.invocation, seen.restarts, seen.drained, seen.held) == ("ab", 4, False, "x")
    assert seen.host == 7 << 30
    assert seen.host_limit == 19 << 30  # what they have and what the host has left
    assert (seen.engine_cpu, seen.engine_processes) == (900.0, 2)
    assert seen.cards == (CardUse("GPU-0", 35, 9, 80, 30), CardUse("GPU 2", None, 6, None, None))
    assert (seen.health, seen.why, seen.counters) == (0, "", None)


@pytest.mark.parametrize(("most", "limit"), [(8 << 30, 8 << 30), (30 << 30, 19 << 30), (None, 19 << 30), (0, 19 << 30)])
def test_a_unit_has_no_more_room_than_its_limit(host: Path, most: int | None, limit: int) -> None:
    seen = look._look(_found(memory_max=most), Absent("not asked"), (0.0, 0.0, 0.0), "", None)
    assert (seen.host_limit, seen.cards) == (limit, ())


def test_what_the_kernel_does_not_show_is_none(host: Path) -> None:
    for pid in (10, 11, 12):
        (host / str(pid) / "status").write_text("VmRSS: 1 kB\n")
        (host / str(pid) / "stat").write_text("")
    seen = look._look(_found(), Absent("not asked"), (0.0, 0.0, 0.0), "", None)
    assert (seen.host, seen.host_limit, seen.engine_cpu, seen.engine_processes) == (None, None, None, 2)


def test_a_unit_of_one_process_has_no_engine_beside_it(host: Path, tmp_path: Path) -> None:
    (tmp_path / "cgroup/system.slice/vllm.service/cgroup.procs").write_text("10\n")
    seen = look._look(_found(), Absent("not asked"), (0.0, 0.0, 0.0), "", None)
    assert (seen.engine_cpu, seen.engine_processes, seen.host) == (None, 1, 1 << 30)
    starting = Unit("vllm.service", "loaded", "activating", "start-pre", "success")  # its main process is to come
    seen = look._look(Found(starting, (), {}, _found().control_group, None), Absent(""), (0.0, 0.0, 0.0), "", None)
    assert (seen.engine_cpu, seen.engine_processes) == (None, 1)


def test_of_two_processes_one_is_the_engine(host: Path, tmp_path: Path) -> None:
    (tmp_path / "cgroup/system.slice/vllm.service/cgroup.procs").write_text("10\n11\n")
    seen = look._look(_found(), Absent("not asked"), (0.0, 0.0, 0.0), "", None)
    assert (seen.engine_cpu, seen.engine_processes) == (340.0, 1)


def test_without_its_control_group_a_unit_s_processes_are_found_by_their_own(host: Path, tmp_path: Path) -> None:
    (tmp_path / "cgroup/system.slice/vllm.service/cgroup.procs").unlink()
    (host / "11" / "cgroup").write_text("0::/system.slice/vllm.service\n")
    (host / "12" / "cgroup").write_text("0::/system.slice/other.service\n")
    assert look.pids_of(_found()) == (11,)
    nothing = Found(_found().unit, (), {}, "", None)
    assert look.pids_of(nothing) == ()


def test_a_system_began_when_its_first_process_did(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's first process is younger than the kernel."""
    monkeypatch.setattr(time, "time", lambda: 5000.0)
    monkeypatch.setattr(time, "clock_gettime", lambda _: 1000.0)
    assert procfs.booted() == 4000.0
    _process(host, 1, user=0, system=0, anonymous=0, began=300 * TICK)
    assert procfs.booted() == 4300.0


@pytest.mark.parametrize(
    ("age_s", "lines", "told"),
    [
        (0, "a\n", look.HostChange("a")),
        (4 * 3600 - 1, "a\n", look.HostChange("a")),
        (4 * 3600, "a\n", None),
        (0, "", look.HostChange("somebody")),
        (0, "a\n10 50\nvllm.service\n", look.HostChange("a", "vllm.service")),
        (0, "a\n10 51\nvllm.service\n", None),  # another process has its number now
        (0, "a\n77 50\n", None),
        (0, f"{'a' * 301}\n\n{'b' * 301}\n", look.HostChange("a" * 300, "b" * 300)),
    ],
)
def test_who_changes_a_host_says_so_for_four_hours_while_it_runs(
    host: Path, tmp_path: Path, age_s: int, lines: str, told: look.HostChange | None
) -> None:
    (tmp_path / "changing").write_text(lines)
    os.utime(tmp_path / "changing", (1e9, 1e9))
    assert look.changing(1e9 + age_s, tmp_path / "changing") == told


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"port": "9000", "host": "10.0.0.7"}, "http://10.0.0.7:9000"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:8000"),  # noqa: S104
        ({"host": "::"}, "http://127.0.0.1:8000"),
        ({"host": "fd00::7"}, "http://[fd00::7]:8000"),
        ({"ssl-certfile": "/c"}, "https://127.0.0.1:8000"),
        ({"ssl-keyfile": "/k"}, "https://127.0.0.1:8000"),
        ({"uds": "/s"}, None),
        ({"uds": True, "host": True, "ssl-certfile": True}, "http://127.0.0.1:8000"),
        ({"port": "0"}, "http://127.0.0.1:8000"),
        ({"port": "1"}, "http://127.0.0.1:1"),
        ({"port": "65535"}, "http://127.0.0.1:65535"),
        ({"port": "65536"}, "http://127.0.0.1:8000"),
        ({"port": "x"}, "http://127.0.0.1:8000"),
        ({"port": True}, "http://127.0.0.1:8000"),
    ],
)
def test_where_a_launch_listens(flags: dict[str, str | bool], url: str | None) -> None:
    assert probe.base_url(flags) == url


_BAD = "needed: http://HOST:PORT, without a user and a password"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("vllm.log", None),
        ("pid:7", Target("pid", "7")),
        ("pid:07", "pid:07: needed: pid:NUMBER"),
        ("docker:llm", Target("docker", "llm")),
        ("podman:-x", "podman:-x: this is not the name of a container"),
        ("slurm:42_7", Target("slurm", "42_7")),
        ("slurm:x", "slurm:x: needed: slurm:JOBID or slurm:JOBID_TASK"),
        ("pod/llm", Target("pod", "llm")),
        ("pods/ns/llm", Target("pod", "llm", "ns")),
        ("pod/ns/llm/vllm", Target("pod", "llm", "ns")),
        ("pod/ns/llm/vllm/x", "pod/ns/llm/vllm/x: needed: pod/NAME or pod/NAMESPACE/NAME"),
        ("pod/A", "pod/A: needed: pod/NAME or pod/NAMESPACE/NAME"),
        ("http://h:1/metrics?x", Target("url", "http://h:1")),
        ("https://h", Target("url", "https://h")),
        ("http://h:0", f"http://h:0: {_BAD}"),
        ("http://u@h:1", f"http://u@h:1: {_BAD}"),
        ("http://:1", f"http://:1: {_BAD}"),
        ("http://h:70000", "http://h:70000: this is not a URL"),
        ("http://[" + "x" * 400, ("http://[" + "x" * 400)[:300] + ": this is not a URL"),
    ],
)
def test_a_target_by_its_name(word: str, told: Target | str | None) -> None:
    assert target.target(word) == told


@pytest.mark.parametrize(
    ("argv", "names", "itself"),
    [
        ("vllm serve m", True, True),
        ("/opt/v/bin/vllm serve m", True, True),
        ("vllm bench serve", False, False),
        ("sudo vllm serve m", True, False),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", True, True),
        ("python3 -u -X dev /opt/v/bin/vllm serve m", True, False),
        ("python3 -u /opt/v/bin/vllm serve m", True, True),
        ("python3.12 /opt/v/bin/vllm bench", False, False),
        ("python3 /srv/vllm/entrypoints/api_server.py", True, True),
        ("python3 other.py vllm serve m", True, False),
        ("python3 -a -b -c -d -e -f", False, False),
        ("nano vllm.entrypoints.api_server", True, False),
        ("bash", False, False),
        ("", False, False),
    ],
)
def test_a_server_and_what_was_given_its_command_line(argv: str, *, names: bool, itself: bool) -> None:
    assert launch.is_vllm(argv.split()) is names
    assert launch.serves(argv.split()) is itself


@pytest.mark.skipif(os.geteuid() != 0, reason="owners can be set by root alone")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "refused"),
    [
        (0, 0, 0o644, ""),
        (0, 0, 0o664, ""),  # root's own group
        (0, 1234, 0o664, "can be written by others (mode 664)"),
        (0, 1234, 0o644, ""),
        (0, 0, 0o646, "can be written by others (mode 646)"),
        (1234, 0, 0o644, "belongs to user 1234"),
    ],
)
def test_a_file_that_others_can_change_is_not_trusted(
    tmp_path: Path, owner: int, group: int, mode: int, refused: str
) -> None:
    file = tmp_path / "f"
    file.touch()
    os.chown(file, owner, group)
    file.chmod(mode)
    assert trust.why_not(file) == (f"{file} {refused}" if refused else None)


@pytest.mark.skipif(os.geteuid() != 0, reason="owners can be set by root alone")
@pytest.mark.parametrize(
    ("mode", "refused"),
    [(0o755, ""), (0o777 | stat.S_ISVTX, ""), (0o777, "can be written by others (mode 777)"),
     (0o775, "can be written by others (mode 775)")],
)  # fmt: skip
def test_a_folder_on_the_way_counts_unless_it_is_sticky(tmp_path: Path, mode: int, refused: str) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "f").touch(mode=0o644)
    os.chown(folder, 0, 1234)
    folder.chmod(mode)
    assert trust.why_not(folder / "f") == (f"{folder} {refused}" if refused else None)
    assert (trust.why_not(folder) is None) is (mode == 0o755)  # what is used itself gains nothing by being sticky


def test_nothing_is_trusted_that_is_not_there(tmp_path: Path) -> None:
    assert trust.why_not(tmp_path / "none") == f"{tmp_path}/none: No such file or directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="owners can be set by root alone")
@pytest.mark.parametrize(
    ("user", "owner", "group", "mode", "closed"),
    [
        ("1234", 1234, 0, 0o400, False),
        ("1234", 1234, 0, 0o044, True),  # the owner's bits count for the owner
        ("1234", 0, 0, 0o004, False),
        ("1234", 0, 0, 0o440, True),
        ("0", 1234, 0, 0o000, False),
        ("nobody-of-this-name", 0, 0, 0o640, True),
        ("nobody-of-this-name", 0, 0, 0o644, False),
    ],
)
def test_root_tells_a_user_what_the_user_may_read(
    tmp_path: Path, user: str, owner: int, group: int, mode: int, *, closed: bool
) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o001)
    file = tmp_path / "f"
    file.touch()
    os.chown(file, owner, group)
    file.chmod(mode)
    with file.open() as opened:
        assert trust.closed_to(user, opened.fileno()) is closed
        tmp_path.chmod(0o700)
        assert trust.closed_to(user, opened.fileno()) is (user != "0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("basic_auth: {username: u, password: p}", ""),
        ("authorization: {credentials: p}", ""),
        ("basic_auth: {username: u, password: p}\nauthorization: {credentials: p}",
         "it has both basic_auth and authorization; needed: one of them"),
        ("basic_auth: {username: u}", "basic_auth needs either password or password_file"),
        ("basic_auth: {username: u, password: p, password_file: f}",
         "basic_auth needs either password or password_file"),
        ("authorization: {credentials_file: none}",
         "authorization names a file that cannot be read ({0}/none: no such file)"),
        ("authorization: {credentials_file: raw}", "authorization names a file that is not text ({0}/raw)"),
        ("tls_config: {ca_file: none}", "tls_config: ca_file: {0}/none cannot be read"),
        ("tls_config: {ca_file: raw, server_name: s, insecure_skip_verify: true}", ""),
    ],
)  # fmt: skip
def test_how_a_site_s_server_is_asked(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    (tmp_path / "c.yml").write_text(text)
    told = read_config(str(tmp_path / "c.yml"))
    assert (told.why if isinstance(told, Wrong) else "") == (why and f"{tmp_path}/c.yml: {why.format(tmp_path)}")
    if not isinstance(told, Wrong):
        sent = "Basic dTpw" if "basic" in text else "Bearer p" if "authorization" in text else None
        assert told.authorization == sent
        assert (told.server_name, told.verify) == (("s", False) if "server_name" in text else (None, True))
        assert told.ca_file == (f"{tmp_path}/raw" if "ca_file" in text else None)
        assert in_plain_text("http://mon:9090", told) is ("tls_config" not in text)
        assert not in_plain_text("https://mon:9090", told)
        assert not in_plain_text("http://localhost:9090", told)


def _log(number: int) -> Known[Log]:
    lines = [LogLine(n, "x") for n in range(number - 1)]
    lines.append(LogLine(number, "(APIServer pid=7) INFO vLLM API server version 0.11.0"))
    return Known(Log("journal", RunLines(tuple(lines))), "journal")


def test_the_release_is_said_in_the_first_lines_of_a_run() -> None:
    assert live._version(_log(400), (), None) == Known("0.11.0", "journal")
    assert isinstance(live._version(_log(401), (), None), Unknown)


def _server(pid: int, **more: object) -> Process:
    return Process(pid, 1, "vllm", ("vllm", "serve"), **more)  # type: ignore[arg-type]


def test_a_process_of_the_unit_that_does_not_run_is_named() -> None:
    mine, frozen = _server(7, unit="vllm.service", state="T"), _server(8, unit="vllm.service", frozen=True)
    others = (_server(5, unit="vllm.service", state="S"), _server(6, unit="x.service", state="T"))
    assert live._halted(None, "vllm.service") is None
    assert live._halted(Machine("h", processes=others), "vllm.service") is None
    assert live._halted(Machine("h", processes=(*others, mine)), "vllm.service") == mine
    assert live._halted(Machine("h", processes=(*others, frozen)), "vllm.service") == frozen


def test_a_plain_process_is_one_that_nobody_keeps_a_log_of() -> None:
    assert live._is_plain(_server(7))
    assert not live._is_plain(_server(7, unit="x.service"))
    assert not live._is_plain(_server(7, container=("docker", "ab")))
    assert not live._is_plain(_server(7, user_unit=(1000, "x.service")))


@pytest.mark.parametrize(
    ("answered", "base", "running", "told"),
    [
        (None, None, True, Absent("the server listens on a Unix socket only")),
        (None, "http://h", True, Known(Probe(health_error="no answer in time"), "http://h")),
        (Probe(health_error="x"), "http://h", False, Absent("the unit is not running")),
        (Probe(health_error="x"), "http://h", True, Known(Probe(health_error="x"), "http://h")),
        (Probe(health_status=200), "http://h", False, Known(Probe(health_status=200), "http://h")),
    ],
)
def test_what_a_unit_s_server_answered(
    answered: Probe | None, base: str | None, told: object, *, running: bool
) -> None:
    assert live._probe(answered, base, running=running) == told


def test_the_processes_that_one_started_are_its_family() -> None:
    """Eight generations; a server has an engine, workers, and what those start."""
    line = tuple(Process(pid, pid - 1, "p", ()) for pid in range(7, 20))
    assert {p.pid for p in place._family(7, tuple(reversed(line)))} == set(range(7, 16))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.08  Thu Oct\n", "580.105.08"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54  Release\n", "535.54"),
        ("nothing\n", None),
    ],
)
def test_the_version_of_the_loaded_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, version: str | None
) -> None:
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(nvml, "_MODULE", tmp_path / "version")
    assert nvml.module_version() == version


def test_gpus_are_devices_of_nvidia_that_show_or_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, vendor, kind in (("3", "0x10de", "0x030200"), ("1", "0x10de", "0x030000"), ("2", "0x10de", "0x020000"),
                               ("4", "0x1002", "0x030000")):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "5").mkdir()
    monkeypatch.setattr(nvml, "_PCI", tmp_path)
    assert nvml.devices() == ["1", "3"]
    monkeypatch.setattr(nvml, "_PCI", tmp_path / "none")
    assert nvml.devices() == []
