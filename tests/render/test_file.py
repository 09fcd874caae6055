"""A report's file: whole or not at all, and what is no file is written into, never replaced."""

import os
import threading
from pathlib import Path

import pytest

from vllm_doctor.render.file import put


def test_it_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("before")
    put(path, "après", mode=0o640)
    assert path.read_text(encoding="utf-8") == "après"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "report", tmp_path / "link"
    link.symlink_to(path)
    put(link, "text")
    assert link.is_symlink()
    assert path.read_text() == "text"


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    put(pipe, "text")
    reader.join(60)
    assert heard == ["text"]
    assert pipe.is_fifo()


def test_a_file_laid_where_ours_is_made_is_not_written_into(tmp_path: Path) -> None:
    """In a folder that others may write, it could be a link of theirs to a file of ours."""
    theirs, path = tmp_path / "theirs", tmp_path / "report"
    theirs.write_text("kept")
    (tmp_path / f".report.{os.getpid()}").symlink_to(theirs)
    put(path, "text")
    assert (theirs.read_text(), path.read_text()) == ("kept", "text")


@pytest.mark.parametrize("target", [".", "none/report"])
def test_what_cannot_be_written_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=r"Is a directory|No such file"):
        put(target, "text")
    assert list(tmp_path.iterdir()) == []
