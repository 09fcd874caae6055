"""/proc of this very machine, which always has one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_doctor.gather import procfs

SLEEPER = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"VLLM::Worker ) x", 0, 0, 0)
print(1, flush=True)
time.sleep(60)
"""


@pytest.fixture
def engine() -> "subprocess.Popen[bytes]":
    """A process that calls itself what vLLM's workers call themselves, with a bracket and a space in its name."""
    child = subprocess.Popen(["VLLM::Worker", "-c", SLEEPER], executable=sys.executable, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()


def test_a_process_of_vllm_with_a_difficult_name(engine: "subprocess.Popen[bytes]") -> None:
    mine = [p for p in procfs.processes() if p.pid == engine.pid]
    assert len(mine) == 1
    assert mine[0].name == "VLLM::Worker ) "[:15]
    assert mine[0].ppid == os.getpid()
    assert mine[0].state in {"S", "R"}
    assert (mine[0].rss_bytes or 0) > 1 << 20


def test_who_listens_on_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        found = procfs.listener(port)
        assert found.pid == os.getpid()
        assert procfs.machine(main_pid=None, port=port, folders=[]).listeners == (found,)
    with socket.socket() as bound:  # nobody else gets its port, and it does not listen
        bound.bind(("127.0.0.1", 0))
        assert procfs.machine(main_pid=None, port=bound.getsockname()[1], folders=[]).listeners == ()


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")],  # noqa: S104
)
def test_on_which_address(family: socket.AddressFamily, address: str) -> None:
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server((address, 0), family=family) as listening:
        assert procfs.listener(listening.getsockname()[1]).address == address


def test_the_machine() -> None:
    found = procfs.machine(main_pid=os.getpid(), port=None, folders=["/", "/no/such/folder"])
    assert found.memory_total is not None
    assert (found.memory_available or 0) <= found.memory_total
    assert (found.shm_total or 0) > 0
    assert set(found.disk_free) == {"/"}


def test_a_process_that_is_gone_is_none() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert procfs.stat(gone.pid) is None
    assert procfs.cmdline(gone.pid) == ()
    assert procfs.environ(gone.pid) is None
    assert procfs.unit_of(gone.pid) is None


def test_what_the_kernel_counts_in_kib_is_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal:       65536000 kB\nHugePages_Total:       3\nMemAvailable:          1 kB\n"
    )
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    assert procfs.meminfo() == {"MemTotal": 65536000 * 1024, "MemAvailable": 1024}


@pytest.mark.parametrize(
    ("comm", "argv", "name"),
    [
        ("VLLM::EngineCor", ("VLLM::EngineCore",), "VLLM::EngineCore"),
        ("VLLM::EngineCor", ("VLLM::EngineCore_DP0 rank 0",), "VLLM::EngineCore_DP0"),
        ("VLLM::Worker", ("VLLM::Worker_TP1",), "VLLM::Worker"),
        ("a-name-of-15-ch", ("/usr/bin/a-name-of-15-characters",), "a-name-of-15-ch"),
    ],
)
def test_a_title_that_the_kernel_cut_is_told_whole(comm: str, argv: tuple[str, ...], name: str) -> None:
    assert procfs._named(comm, argv) == name


def test_the_output_of_a_process_is_read_from_a_file_alone(tmp_path: Path) -> None:
    """What is taken out of a pipe, its own reader never has."""
    os.mkfifo(tmp_path / "pipe")
    outputs = {
        "file": os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT),
        "pipe": os.open(tmp_path / "pipe", os.O_RDWR),
    }
    outputs["device"] = os.open("/dev/null", os.O_WRONLY)
    found = {}
    for name, descriptor in outputs.items():
        with subprocess.Popen(["sleep", "60"], stdout=descriptor) as child:
            found[name] = procfs.output_of(child.pid)
            child.kill()
        os.close(descriptor)
    assert found == {"file": str(tmp_path / "log"), "pipe": None, "device": None}


_ID = "0123456789ab" + "c" * 52


def _made(proc: Path, pid: int, *, state: str = "S", parent: int = 1, group: str = "") -> None:
    """A process as the kernel shows it: the numbers of stat(5) in their places, field 22 is when it began."""
    folder = proc / str(pid)
    folder.mkdir()
    fields = " ".join(str(n) for n in range(5, 23))
    (folder / "stat").write_text(f"{pid} (VLLM::Worker ) 0) {state} {parent} {fields} 23 24\n")
    (folder / "statm").write_text("900 70 3 4 0 6 0\n")
    (folder / "cmdline").write_bytes(b"VLLM::Worker_TP1\0")
    (folder / "cgroup").write_text(group)


def test_what_the_kernel_shows_of_a_process_is_read_from_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    monkeypatch.setattr(procfs, "CGROUPS", tmp_path / "groups")
    _made(tmp_path, 42, parent=7, group="0::/system.slice/vllm@main.service\n")
    _made(tmp_path, 43, state="Z", group="0::/system.slice/vllm@main.service\n")
    assert procfs.stat(42) == ("VLLM::Worker ) 0", "S", 7)
    assert procfs.started(42) == 22
    (found,) = procfs.processes()
    assert (found.pid, found.ppid, found.unit, found.state) == (42, 7, "vllm@main.service", "S")
    assert found.rss_bytes == 70 * os.sysconf("SC_PAGE_SIZE")
    assert (found.container, found.around, found.user_unit, found.frozen) == (None, (), None, False)
    events = tmp_path / "groups" / "system.slice" / "vllm@main.service" / "cgroup.events"
    events.parent.mkdir(parents=True)
    events.write_text("populated 1\nfrozen 1\n")
    assert procfs.frozen(42)


@pytest.mark.parametrize(
    ("group", "unit", "of_user", "within"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service", None, ()),
        ("0::/system.slice/vllm.service/engine\n", "vllm.service", None, ()),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service\n",
            None,
            (1000, "vllm.service"),
            (),
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", None, None, ()),
        (f"0::/system.slice/docker-{_ID}.scope\n", None, None, (("docker", _ID[:12]),)),
        (f"0::/machine.slice/libpod-{_ID}.scope/container\n", None, None, (("podman", _ID[:12]),)),
        (
            f"0::/docker/{_ID}/kubelet/kubepods/pod1/{_ID.replace('0', 'f')}\n",
            None,
            None,
            (("docker", _ID[:12]), ("crictl", "f" + _ID[1:12])),
        ),
        ("0::/init.scope\n", None, None, ()),
    ],
)
def test_a_control_group_names_unit_user_and_containers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    group: str,
    unit: str | None,
    of_user: tuple[int, str] | None,
    within: tuple[tuple[str, str], ...],
) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    _made(tmp_path, 42, group=group)
    assert procfs.unit_of(42) == unit
    assert procfs.user_unit_of(42) == of_user
    assert procfs.containers_of(42) == within
    assert procfs.container_of(42) == (within[-1] if within else None)


def test_a_listening_socket_is_found_by_its_port_and_its_address_in_the_processor_s_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    (tmp_path / "net").mkdir()
    row = "00000000:00000000 00:00000000 00000000     0        0"
    (tmp_path / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        f"   0: 0100007F:1F40 00000000:0000 0A {row} 51 1\n"
        f"   1: 0100007F:1F41 00000000:0000 0A {row} 52 1\n"
        f"   2: 0100007F:1F40 00000000:0000 01 {row} 53 1\n"
    )
    (tmp_path / "net" / "tcp6").write_text(f"  sl\n   0: {'0' * 32}:1F40 {'0' * 32}:0000 0A {row} 54 1\n")
    assert procfs._inodes(8000) == {"51": "127.0.0.1", "54": "::"}
    assert procfs._inodes(8001) == {"52": "127.0.0.1"}
    assert procfs._inodes(8002) == {}
