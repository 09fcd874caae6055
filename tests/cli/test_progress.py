"""A line for who waits: on a terminal alone, and gone before the answer."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

CLI = str(Path(sys.executable).with_name("vllm-doctor"))
SLOW = """
import sys, time
from vllm_doctor.cli.progress import waiting
with waiting("reading"):
    end = time.monotonic() + 30
    while not SAID():
        time.sleep(0.01)
        assert time.monotonic() < end
print("answer")
"""


def told(code: str, stderr: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=stderr, text=True, check=True
    ).stdout


def _whole(terminal: int) -> str:
    """All that was written: a terminal whose other end is closed ends in an error of reading."""
    said = b""
    with suppress(OSError):
        while piece := os.read(terminal, 4096):
            said += piece
    return said.decode()


def test_on_a_terminal_it_is_said_and_taken_away() -> None:
    ours, theirs = pty.openpty()
    code = SLOW.replace("SAID()", "time.monotonic() > end - 28.4")
    assert told(code, theirs) == "answer\n"
    os.close(theirs)
    said = _whole(ours)
    assert "reading (1 s)" in said
    assert said.endswith("\r\x1b[2K")
    os.close(ours)


def test_in_a_pipe_nothing_is_said() -> None:
    code = SLOW.replace("SAID()", "True")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("answer\n", "")
