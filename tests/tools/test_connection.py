"""The connection to test hosts enters namespaces where it may, and leaves the rest to podman."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import host
import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def connection() -> ModuleType:
    path = REPO / "tools" / "connection" / "podman_pipelined.py"
    spec = importlib.util.spec_from_file_location("podman_pipelined", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_looks_where_podman_was_told_to_write(connection: ModuleType) -> None:
    assert host.pid_file("vd-1-a") == connection.PIDS / "vd-1-a.pid"


@pytest.mark.parametrize("written", [None, "", "1x\n", "0", "this test's own"])
def test_what_is_not_the_first_process_of_a_host_is_left_to_podman(
    connection: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    """A file may be left from a host that was killed, and its number be another process's by now."""
    monkeypatch.setattr(connection, "PIDS", tmp_path)
    if written is not None:
        (tmp_path / "vd-1-a.pid").write_text(str(os.getpid()) if "own" in written else written)
    assert connection.running("vd-1-a") is None


def test_a_user_enters_as_one_who_logs_in_with_none_of_the_environment(connection: ModuleType) -> None:
    assert connection.words(7, None, ["id"]) == ["nsenter", "--all", "--target=7", "--", "id"]
    assert "--reset-env" in connection.words(7, "ops", ["id"])
    assert "--reuid=ops" in connection.words(7, "ops", ["id"])
