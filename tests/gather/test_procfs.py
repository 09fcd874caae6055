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
