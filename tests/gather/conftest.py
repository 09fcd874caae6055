"""The simulated driver, a small HTTP server with bad manners, and programs on PATH that replay what was recorded."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.idle_host import no_processes
from tests.nvml_sim.build import build
from vllm_doctor.gather import processes, procfs

PROFILES = Path(__file__).parents[1] / "nvml_sim" / "profiles"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the simulated libnvidia-ml.so.1."""
    return build(tmp_path_factory.mktemp("nvml")).parent


class Nvml:
    """A simulated machine for the child process; `say` appends lines to its description."""

    def __init__(self, folder: Path, description: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._description = description
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))

    def say(self, *lines: str) -> None:
        with self._description.open("a") as file:
            file.write("\n".join(lines) + "\n")


@pytest.fixture
def nvml_machine(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Nvml]:
    def make(profile: str) -> Nvml:
        (tmp_path / "nvml").mkdir()
        (tmp_path / "nvml" / "libnvidia-ml.so.1").symlink_to(nvml_library / "libnvidia-ml.so.1")
        description = tmp_path / "nvml" / "nvml-sim"
        description.write_text((PROFILES / f"{profile}.txt").read_text())
        return Nvml(tmp_path / "nvml", description, monkeypatch)

    return make


class Server:
    """Answers every connection with what `reply` writes to the socket, in threads that end with the test."""

    def __init__(self, reply: Callable[[socket.socket, threading.Event], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._reply = reply
        self.over = threading.Event()
        self.base = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                self._reply(connection, self.over)
            except OSError:
                return

    def close(self) -> None:
        self.over.set()
        # A thread that still waits in accept() goes on with the descriptor's number when a signal interrupts it, and
        # by then the number is another test's server.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._serving.join()
        self._listening.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket, threading.Event], None]], Server]]:
    open_ones: list[Server] = []

    def start(reply: Callable[[socket.socket, threading.Event], None]) -> Server:
        open_ones.append(Server(reply))
        return open_ones[-1]

    yield start
    for server in open_ones:
        server.close()


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a shell script of this name first where programs are looked up, in place of the host's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(processes, "PATH", f"{folder}:{processes.PATH}")
    monkeypatch.setattr(procfs, "PROC", no_processes(tmp_path / "proc-of-an-idle-host"))

    def put(name: str, script: str) -> None:
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    for runtime in ("docker", "podman"):  # the host's own containers are none of the test's
        put(runtime, "exit 0")
    return put
