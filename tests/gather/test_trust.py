"""Who can change what root will load."""

import os
from pathlib import Path

import pytest

from vllm_doctor.gather import nvml, trust
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.records.reading import Known, Unknown

ROOT = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Below /tmp, which everybody writes and which is sticky."""
    made = tmp_path / "lib"
    made.mkdir(mode=0o755)
    return made


def test_what_only_root_and_we_can_change_is_trusted(folder: Path) -> None:
    assert trust.why_not("/usr/lib") is None
    assert trust.why_not(folder) is None


def test_a_folder_that_others_write_is_not(folder: Path) -> None:
    folder.chmod(0o777)
    assert trust.why_not(folder) == f"{folder} can be written by others (mode 777)"
    folder.chmod(0o1777)
    assert trust.why_not(folder), "sticky keeps what is there, and lets others add"
    assert trust.why_not("/tmp")


def test_every_folder_on_the_way_counts(folder: Path) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    folder.chmod(0o777)
    assert str(folder) in (trust.why_not(below) or "")


def test_a_link_is_followed_before_it_is_judged(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (folder / "link").symlink_to(tmp_path / "open")
    assert "open" in (trust.why_not(folder / "link") or "")


@pytest.mark.skipif(not ROOT, reason="only root can give a file away")
def test_what_belongs_to_somebody_else_is_not_trusted(folder: Path) -> None:
    os.chown(folder, NOBODY, -1)
    assert trust.why_not(folder) == f"{folder} belongs to user {NOBODY}"


def test_the_loader_gets_trusted_folders_and_never_the_one_we_stand_in(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("LD_LIBRARY_PATH", f":lib:.;{folder}:{tmp_path}/open:$ORIGIN/x:")
    assert trust.library_folders() == [str(folder)]


def test_a_driver_s_library_that_anybody_could_have_put_there_is_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "libnvidia-ml.so.1").touch()
    folder.chmod(0o777)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setattr(nvml, "_LIBRARIES", ())
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Unknown)
    assert gpus.reason == (
        f"NVML: {folder}/libnvidia-ml.so.1 was not loaded: {folder} can be written by others (mode 777)"
    )


@pytest.mark.skipif(not ROOT, reason="makes links of another user's")
def test_a_service_s_log_is_read_where_no_link_but_root_s_leads_to_it(tmp_path: Path) -> None:
    secret, log = tmp_path / "secret", tmp_path / "log"
    secret.write_text("nobody else's line\n")
    log.write_text("INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.11.0\n")
    theirs, roots, folder = tmp_path / "theirs.log", tmp_path / "roots.log", tmp_path / "folder"
    theirs.symlink_to(secret)
    roots.symlink_to("log")
    folder.symlink_to(tmp_path)
    for link in (theirs, folder):
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    os.mkfifo(tmp_path / "pipe")
    assert isinstance(read_logs([str(log)], theirs=True), Known)
    assert isinstance(read_logs([str(roots)], theirs=True), Known)
    for name in (theirs, folder / "secret", folder / "log", tmp_path / "pipe"):
        told = read_logs([str(name)], theirs=True)
        assert isinstance(told, Unknown), name
        assert "is not read for a service" in told.reason
    assert isinstance(read_logs([str(folder / "log")]), Known)  # a person may name what he likes


def test_a_file_that_cannot_be_looked_at_is_one_that_the_user_may_not_read() -> None:
    closed = os.open("/dev/null", os.O_RDONLY)
    os.close(closed)
    assert trust.closed_to(str(NOBODY), closed)
    assert trust.led_astray("/dev/null", closed)
