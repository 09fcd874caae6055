"""A program that does not end must not keep the doctor."""

import os
import sys
import time
from pathlib import Path

from vllm_doctor.gather.run import NotRun, Ran, run

DEAF = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(600)"


def test_gives_output_errors_and_exit_code() -> None:
    done = run(
        [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], deadline_s=60
    )
    assert done == Ran(3, b"out\n", "err\n")


def test_missing_program_is_said() -> None:
    assert run(["no-such-program-here"], deadline_s=1) == NotRun("no-such-program-here is not installed", missing=True)


def test_a_deaf_child_is_left_behind_within_the_deadline() -> None:
    left = run([sys.executable, "-c", DEAF], deadline_s=0.5)
    assert isinstance(left, NotRun)
    assert "did not answer within 0.5 s" in left.reason
    assert left.pid
    _ends(left.pid)


def test_grandchildren_of_the_group_die_too() -> None:
    cut = run(["sh", "-c", "sleep 600 & echo $!; wait"], deadline_s=60, max_bytes=1)
    assert isinstance(cut, Ran)
    assert cut.cut, "it is killed as soon as it has said which one its child is"
    _ends(int(cut.out))


def test_endless_output_is_cut() -> None:
    cut = run(["yes"], deadline_s=60, max_bytes=100_000)
    assert isinstance(cut, Ran)
    assert cut.cut
    assert 100_000 <= len(cut.out) < 300_000


def _ends(pid: int) -> None:
    """What was killed is gone in a moment; nobody waits for it."""
    end = time.monotonic() + 60
    while _lives(pid):
        assert time.monotonic() < end, f"process {pid} lives on"
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z" and os.getpid() != pid
