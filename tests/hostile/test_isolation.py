"""The doctor is run as root, wherever one stands: nothing there is imported, loaded or started."""

import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_diagnose import HEALTHY
from tests.hostile.traps import Traps
from vllm_doctor.cli.app import _MODULES

# Each command as it is run on a host, and as it is run on files.
COMMANDS = (
    "--version",
    "--help",
    "--show-completion",
    "diagnose",
    "diagnose --canary",
    "diagnose --unit vllm@main",
    "diagnose --log log",
    "diagnose --log log --format json --metrics metrics --kernel-log log --nvidia-smi log",
    "diagnose --log log --format html -o page",
    "diagnose --log log --model-config .",
    "diagnose --from nothing",
    "bundle -o bundle.tar.gz",
    "diagnose --from bundle.tar.gz",
    "fragmentation",
    "fragmentation --metrics metrics",
    "plan -- vllm serve m",
    "plan --help",
    "plan --learn log",
    "tune",
    "tune --unit vllm@main",
    "guard --once",
    "recover --unit vllm@main --dry-run",
    "debug status",
    "history",
    "watch --once",
    "export exported --vllm-version 0.32.0 --force",
    "fleet answer.json",
    "report",
    "report --prometheus http://127.0.0.1:9",
    "explain VD121",
    "explain --list",
    "flowchart",
)
ORDINARY = [False, True] if os.geteuid() == 0 else [False]


@pytest.fixture(scope="module")
def traps() -> Iterator[Traps]:
    """Not below pytest's own folder: that one is closed to an ordinary user."""
    with tempfile.TemporaryDirectory(prefix="vllm-doctor-test-") as folder:
        made = Traps(Path(folder))
        (made.folder / "log").write_text(HEALTHY)
        (made.folder / "answer.json").write_text("{}")
        (made.folder / "metrics").write_text('vllm:num_requests_running{engine="0"} 1.0\n')
        yield made


def test_the_traps_are_traps(traps: Traps) -> None:
    """What the doctor must not do springs them: an interpreter that is not isolated, a program by its mere name."""
    own = {"LD_LIBRARY_PATH": ""}  # an interpreter that the distribution links with libz and libexpat would not start
    traps.run("-c", "import sitecustomize, pynvml, vllm_doctor", program=sys.executable, **own)
    assert {"sitecustomize", "pynvml", "vllm_doctor.__init__"} <= set(traps.sprung())
    traps.run("-I", "-c", "import os; os.system('systemctl')", program=sys.executable, **own)
    assert "program-systemctl" in traps.sprung()
    traps.run("-I", "-c", "import ctypes; ctypes.CDLL('./libnvidia-ml.so.1')", program=sys.executable, **own)
    assert traps.sprung() == ["library"]


def test_every_command_is_tried() -> None:
    assert {line.split()[0] for line in COMMANDS} >= set(_MODULES)


@pytest.mark.parametrize("ordinary", ORDINARY)
@pytest.mark.parametrize("line", COMMANDS)
def test_nothing_of_the_folder_we_stand_in_runs(traps: Traps, line: str, ordinary: bool) -> None:
    done = traps.run(*line.split(), ordinary=ordinary)
    assert traps.sprung() == []
    for word in ("Traceback", "VD0001", "cannot start"):
        assert word not in done.stderr
    assert done.returncode in {0, 1, 2, 3}, done.stderr


def test_the_shell_s_completion_runs_nothing_either(traps: Traps) -> None:
    asked = {"_VLLM_DOCTOR_COMPLETE": "complete_bash", "COMP_WORDS": "vllm-doctor explain VD1", "COMP_CWORD": "2"}
    assert "VD101" in traps.run(**asked).stdout
    traps.run(**asked | {"COMP_WORDS": "vllm-doctor diagnose --unit vllm", "COMP_CWORD": "3"})
    assert traps.sprung() == []


@pytest.mark.parametrize("ordinary", ORDINARY)
def test_the_driver_s_own_library_was_asked_all_the_while(traps: Traps, ordinary: bool) -> None:
    done = traps.run("bundle", "-o", f"driver-{ordinary}.tar.gz", ordinary=ordinary)
    assert done.returncode == 0, done.stderr
    with tarfile.open(traps.folder / f"driver-{ordinary}.tar.gz") as bundle:
        kept = b"".join(file.read() for member in bundle if (file := bundle.extractfile(member)) is not None)
    assert b"NVIDIA H100 80GB HBM3" in kept
    assert traps.sprung() == []
