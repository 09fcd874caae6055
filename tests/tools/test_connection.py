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


def test_runs_share_what_they_packed_as_long_as_the_code_is_the_same(connection: ModuleType, tmp_path: Path) -> None:
    """Ansible packs a module with all that it imports at its first use in a run: 0.3 s of processor time each."""
    first, second, packed = tmp_path / "run-1", tmp_path / "run-2", tmp_path / "packed"
    for run in (first, second):
        run.mkdir()
        connection.share_packed(run, packed)
    (first / "ansiballz_cache" / "ansible.modules.stat").write_text("packed by the first")
    assert (second / "ansiballz_cache" / "ansible.modules.stat").read_text() == "packed by the first"
    connection.share_packed(first, packed)  # the next task of the same run
    assert (first / "ansiballz_cache").is_symlink()


def test_changed_code_of_a_module_or_of_what_it_imports_or_other_locks_are_packed_anew(
    connection: ModuleType, tmp_path: Path
) -> None:
    files = ["plugins/modules/b.py", "plugins/module_utils/c.py", "tools/lock/dev.txt"]
    seen = {connection.code_of_modules(tmp_path)}
    for number, name in enumerate(2 * files, start=2):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(number))
        seen.add(connection.code_of_modules(tmp_path))
        assert len(seen) == number


def test_a_run_that_has_begun_to_pack_goes_on_alone(connection: ModuleType, tmp_path: Path) -> None:
    own = tmp_path / "ansiballz_cache"
    own.mkdir()
    connection.share_packed(tmp_path, tmp_path / "packed")
    assert not own.is_symlink()
    assert not (tmp_path / "packed").exists()
