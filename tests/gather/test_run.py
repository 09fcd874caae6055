"""A program that does not end must not keep the doctor."""

import os
import sys
import time
from pathlib import Path

import pytest

from vllm_doctor.gather.processes import NotRun, Ran, python, run

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


def test_the_folder_and_the_shell_we_stand_in_have_no_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pwd").write_text("#!/bin/sh\necho trap")
    (tmp_path / "pwd").chmod(0o755)
    monkeypatch.setenv("PATH", f".:{tmp_path}")
    monkeypatch.chdir(tmp_path)
    done = run(["sh", "-c", "pwd; env"], deadline_s=60, env={"MORE": "1"})
    assert isinstance(done, Ran)
    folder, *variables = done.out.decode().splitlines()
    assert folder == "/"
    names = {line.split("=")[0] for line in variables} - {"PWD", "SHLVL", "_"}
    assert names == {"PATH", "LC_ALL", "SYSTEMD_COLORS", "SYSTEMD_PAGER", "MORE"}
    with pytest.raises(ValueError, match="absolute"):
        run(["./pwd"], deadline_s=1)


def test_input_is_given_whole() -> None:
    done = run(["cat"], deadline_s=60, stdin=b"x" * 3_000_000)
    assert isinstance(done, Ran)
    assert done.out == b"x" * 3_000_000


def test_a_module_that_computes_for_ever_ends_with_its_deadline() -> None:
    left = python("timeit", "-n", "1", "while True: pass", deadline_s=0.5)
    assert isinstance(left, NotRun)
    assert left.pid
    _ends(left.pid)


def test_a_module_gets_no_more_memory_than_it_may() -> None:
    done = python("timeit", "-n", "1", "b'x' * 900_000_000", deadline_s=60, memory_bytes=500 << 20)
    assert isinstance(done, Ran)
    assert "MemoryError" in done.err


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
