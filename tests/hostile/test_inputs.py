"""The real command on what a stranger hands over: it answers, within 300 MiB and 15 s of processor time.

`make hostile` tries the long ones, too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.inputs import INPUTS, MOST_MIB, MOST_S, Input

LONG = bool(os.environ.get("VLLM_DOCTOR_HOSTILE_LONG"))
# A small process between: what a child took at most is at least what its parent had when it was made.
MEASURED = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_maxrss // 1024, used.ru_utime + used.ru_stime)
"""
DOCTOR = [sys.executable, "-I", "-c", "from vllm_doctor.cli.main import entry; entry()"]


@pytest.mark.parametrize("given", [one for one in INPUTS.values() if LONG or not one.long], ids=[
    name for name, one in INPUTS.items() if LONG or not one.long
])  # fmt: skip
def test_what_a_stranger_hands_over_is_answered(given: Input, tmp_path: Path) -> None:
    path = tmp_path / "given"
    given.make(path)
    after = ["--", "vllm", "serve", "acme/chat-8b"] if given.words[0] == "plan" else []
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURED, *DOCTOR, *given.words, str(path), *after],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=600,
    )  # fmt: skip
    code, mib, seconds = ran.stdout.split()
    assert int(code) in given.ends, ran.stderr[-500:]
    assert int(mib) <= MOST_MIB
    assert float(seconds) <= MOST_S
