"""A program that does not end must not keep the doctor."""

import os
import sys
import time
from pathlib import Path

from vllm_doctor.gather.run import NotRun, Ran, run

DEAF = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(60)"


def test_gives_output_errors_and_exit_code() -> None:
    done = run(
        [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], deadline_s=10
    )
    assert done == Ran(3, b"out\n", "err\n")


def test_missing_program_is_said() -> None:
    assert run(["no-such-program-here"], deadline_s=1) == NotRun("no-such-program-here is not installed", missing=True)


def test_a_deaf_child_is_left_behind_within_the_deadline() -> None:
    began = time.monotonic()
    left = run([sys.executable, "-c", DEAF], deadline_s=0.5)
    assert time.monotonic() - began < 2
    assert isinstance(left, NotRun)
    assert "did not answer within 0.5 s" in left.reason


def test_grandchildren_of_the_group_die_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], deadline_s=0.5)
    grandchild = int(pid_file.read_text())
    end = time.monotonic() + 5
    while time.monotonic() < end and _lives(grandchild):
        time.sleep(0.01)
    assert not _lives(grandchild)


def test_endless_output_is_cut() -> None:
    cut = run(["yes"], deadline_s=10, max_bytes=100_000)
    assert isinstance(cut, Ran)
    assert cut.cut
    assert 100_000 <= len(cut.out) < 300_000


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z" and os.getpid() != pid
