"""make up says in one line what is in the way, before anything is built."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import machine
import pytest

REPO = Path(__file__).resolve().parents[2]


def make_up(**settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPO / "tools" / "up.py")],
        env={**os.environ, "SANDBOX": "never-started", **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_port_in_use_stops_before_anything_is_built() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = make_up(PORT=str(port))
    assert done.returncode == 2
    assert done.stdout == "[1/6] checking this machine\n"
    (line,) = done.stderr.splitlines()
    assert f"port {port} on 127.0.0.1 cannot be had" in line
    assert f"make up PORT={port + 1}" in line


@pytest.mark.parametrize("port", ["http", "0", "65536", "80 80"])
def test_what_is_no_port_is_refused(port: str) -> None:
    done = make_up(PORT=port)
    assert done.returncode == 2
    assert f"PORT={port} is not a port" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_podman_and_no_right_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "have", lambda command: command == "apt-get")
    monkeypatch.setattr(machine, "is_root", lambda: False)
    monkeypatch.setattr(machine, "sudo", lambda: None)
    line = machine.packages_can_be_installed()
    assert line is not None
    assert "neither root nor sudo" in line
    assert "apt-get install podman" in line


def test_elsewhere_than_on_debian_podman_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "have", lambda _command: False)
    assert "podman is not installed" in (machine.packages_can_be_installed() or "")


def test_a_complete_machine_has_nothing_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "have", lambda _command: True)
    monkeypatch.setattr(machine, "have_venv_module", lambda: True)
    assert machine.missing_packages() == []
    assert machine.packages_can_be_installed() is None


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user's machine: podman is there and complete, and what root would have to grant lies in a folder."""
    monkeypatch.setattr(machine, "is_root", lambda: False)
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    tables = (tmp_path / "subuid", tmp_path / "subgid")
    for table in tables:
        table.write_text("grace:100000:65536\nada:165536:65536\n")
    monkeypatch.setattr(machine, "SUBORDINATE_IDS", tables)
    (tmp_path / "tun").touch()
    monkeypatch.setattr(machine, "TUNNEL", tmp_path / "tun")
    (tmp_path / "cgroup" / "session").mkdir(parents=True)
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "cgroup")
    (tmp_path / "self").write_text("1:cpu:/\n0::/session\n")
    monkeypatch.setattr(machine, "OWN_CGROUP", tmp_path / "self")
    return tmp_path


def test_a_laptop_that_grants_what_rootless_podman_needs_has_no_problem(laptop: Path) -> None:
    assert machine.user_has_subordinate_ids() is None
    assert machine.user_has_a_tunnel() is None
    assert machine.user_owns_a_cgroup() is None


@pytest.mark.parametrize("table", ["subuid", "subgid"])
def test_a_user_without_subordinate_ids_is_told_the_command(laptop: Path, table: str) -> None:
    (laptop / table).write_text("grace:100000:65536\n")
    line = machine.user_has_subordinate_ids() or ""
    assert f"{table} grants ada no ids" in line
    assert "usermod --add-subuids" in line
    (laptop / table).unlink()
    assert "grants ada no ids" in (machine.user_has_subordinate_ids() or "")


def test_a_machine_without_a_tunnel_is_told_the_command(laptop: Path) -> None:
    (laptop / "tun").unlink()
    assert "sudo modprobe tun" in (machine.user_has_a_tunnel() or "")


def test_a_session_without_a_cgroup_of_its_own_is_told_how_to_get_one(laptop: Path) -> None:
    (laptop / "self").write_text("0::/somebody/elses\n")
    assert "the cgroup /somebody/elses is not yours to divide" in (machine.user_owns_a_cgroup() or "")
    (laptop / "run" / "systemd").mkdir(parents=True)
    (laptop / "run" / "systemd" / "private").touch()
    assert machine.user_owns_a_cgroup() is None, "systemd's user instance divides it for us"


def test_an_old_cgroup_hierarchy_is_named_with_the_remedy(laptop: Path) -> None:
    line = machine.cgroups_are_unified() or ""
    assert "cgroup v2 is needed" in line
    assert "systemd.unified_cgroup_hierarchy=1" in line


def test_a_laptop_whose_podman_lacks_its_helpers_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_root", lambda: False)
    monkeypatch.setattr(machine, "have_venv_module", lambda: True)
    monkeypatch.setattr(machine, "have", lambda command: command in {"apt-get", "podman"})
    assert machine.missing_packages() == ["uidmap", "slirp4netns"]
    monkeypatch.setattr(machine, "have", lambda command: command in {"apt-get", "podman", "newuidmap", "pasta"})
    assert machine.missing_packages() == []


def test_podmans_own_complaint_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "podman"
    broken.write_text("#!/bin/sh\necho 'level=warning msg=noise' >&2\necho 'Error: no such driver' >&2\nexit 125\n")
    broken.chmod(0o755)
    monkeypatch.setattr(machine, "missing_packages", list)
    monkeypatch.setattr(machine, "PODMAN", str(broken))
    assert "podman does not work here (Error: no such driver)" in (machine.podman_works() or "")


def test_too_little_disk_is_said_with_both_figures() -> None:
    line = machine.disk_has_room(1_000_000)
    assert line is not None
    assert "GiB free" in line
    assert "GiB are needed" in line
    assert machine.disk_has_room(0) is None


def test_too_little_memory_is_said_with_both_figures() -> None:
    assert "1000000 are needed" in (machine.memory_suffices(1_000_000) or "")
    assert machine.memory_suffices(0) is None


def test_an_index_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        monkeypatch.setenv("PIP_INDEX_URL", address)
        monkeypatch.setattr(machine, "REPO", tmp_path)
        line = machine.package_index_answers()
    assert line is not None
    assert address in line
    assert "PIP_INDEX_URL" in line


def test_every_problem_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "machine_is_supported", lambda: "first")
    monkeypatch.setattr(machine, "user_has_subordinate_ids", lambda: "second")
    found = machine.problems(None, "none", disk_gib=0, memory_gib=1_000_000)
    assert found[0] == "first"
    assert "second" in found
    assert any("1000000 are needed" in line for line in found)
