"""Whatever a command was given: it ends, within so much processor time and memory, and says so."""

import subprocess
import sys

import pytest

from vllm_doctor.cli.limits import SECONDS

# The command's own entry; only what it is asked to do stands for an input that no reader's bound has stopped.
START = """
import resource, sys
from vllm_doctor.cli import limits, main
limits.SECONDS = limits._DEAF_S = 1
{before}
def asked(argv):
    {work}
main._answered = asked
sys.argv = ["vllm-doctor", "{command}"]
main.entry()
"""


def ended(work: str, command: str = "diagnose", before: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", START.format(work=work, command=command, before=before)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "work",
    [
        "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
        # A rule that takes every failure for its own does not swallow it.
        """
    while True:
        try:
            while True: pass
        except Exception: pass""",
    ],
)
def test_processor_time_is_bounded(work: str) -> None:
    code, said = ended(work)
    assert code == 3
    assert said.startswith("vllm-doctor: not judged: the input takes more than 1 s of processor time")


def test_one_that_hears_nothing_is_killed() -> None:
    code, _ = ended("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU})\n    while True: pass")
    assert code == -9


def test_memory_is_bounded() -> None:
    # A busy machine may need more than a second to give that much.
    code, said = ended("held = [bytearray(1 << 20) for _ in range(1000)]", before="limits.SECONDS = 100")
    assert code == 3
    assert said.startswith("vllm-doctor: not judged: the input takes more than 280 MiB of memory")


def test_a_lower_limit_of_the_user_s_own_stays() -> None:
    before = "limits.SECONDS = 100; resource.setrlimit(resource.RLIMIT_CPU, (50, 70))"
    work = "print(resource.getrlimit(resource.RLIMIT_CPU), file=sys.stderr); return 0"
    assert ended(work, before=before) == (0, "(50, 70)\n")


def test_a_load_test_may_take_its_time() -> None:
    work = "print(resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY, file=sys.stderr); return 0"
    assert ended(work, "tune") == (0, "True\n")


def test_the_limit_is_within_what_is_promised() -> None:
    assert SECONDS <= 15
