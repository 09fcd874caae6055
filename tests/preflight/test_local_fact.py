"""The local fact: the same file, run by the host itself, with what NVML says, through a library at the real ABI."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DESCRIPTION = """driver = 580.105.08
cuda = 13000
gpu.0.name = NVIDIA H100 80GB HBM3
gpu.0.uuid = GPU-0
gpu.0.total = 85520809984
gpu.0.free = 85000000000
gpu.0.mig_mode = 0 0
gpu.0.pci = 00000000:1B:00.0
gpu.1.name = NVIDIA H100 80GB HBM3
gpu.1.uuid = GPU-1
"""
SLICED = """driver = 580.105.08
gpu.0.name = NVIDIA H100 80GB HBM3
gpu.0.uuid = GPU-0
gpu.0.mig_mode = 1 1
gpu.0.mig.0.uuid = MIG-a
gpu.0.mig.0.name = NVIDIA H100 80GB HBM3 MIG 3g.40gb
gpu.0.mig.2.uuid = MIG-b
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([sys.executable, REPOSITORY / "tests/nvml_sim/build.py", folder], check=True)
    return folder


def nvml(library: Path | None, folder: Path, description: str) -> dict[str, object]:
    fact = folder / "gpu.fact"
    shutil.copy(REPOSITORY / "plugins/modules/preflight_facts.py", fact)
    (folder / "sim").write_text(description)
    environment = {**os.environ, "NVML_SIM": str(folder / "sim")}
    if library is not None:
        environment["LD_LIBRARY_PATH"] = str(library)
    done = subprocess.run([sys.executable, fact], capture_output=True, text=True, check=True, env=environment)
    answer: dict[str, object] = json.loads(done.stdout)["nvml"]
    return answer


def test_what_the_driver_says(library: Path, tmp_path: Path) -> None:
    answer = nvml(library, tmp_path, DESCRIPTION)
    assert (answer["driver"], answer["cuda"]) == ("580.105.08", 13000)
    assert answer["gpus"] == [
        {
            "index": 0,
            "address": "0000:1b:00.0",
            "uuid": "GPU-0",
            "name": "NVIDIA H100 80GB HBM3",
            "memory_bytes": 85520809984,
            "mig": False,
            "slices": [],
        },
        {
            "index": 1,
            "address": None,
            "uuid": "GPU-1",
            "name": "NVIDIA H100 80GB HBM3",
            "memory_bytes": None,
            "mig": None,
            "slices": [],
        },
    ]


def test_the_slices_of_a_card_are_there_by_their_uuids(library: Path, tmp_path: Path) -> None:
    gpus = nvml(library, tmp_path, SLICED)["gpus"]
    assert isinstance(gpus, list)
    assert gpus[0]["mig"] is True
    assert gpus[0]["slices"] == [
        {"uuid": "MIG-a", "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb"},
        {"uuid": "MIG-b", "name": None},
    ]


def test_a_lost_card_does_not_hide_the_others(library: Path, tmp_path: Path) -> None:
    answer = nvml(library, tmp_path, DESCRIPTION + "rc.nvmlDeviceGetHandleByIndex_v2.0 = 15\n")
    gpus = answer["gpus"]
    assert isinstance(gpus, list)
    assert [gpu["uuid"] for gpu in gpus] == [None, "GPU-1"]


def test_a_driver_that_is_not_loaded_is_an_error_code(library: Path, tmp_path: Path) -> None:
    assert nvml(library, tmp_path, DESCRIPTION + "rc.nvmlInit_v2 = 9\n") == {"error": 9}


def test_a_driver_that_hangs_is_given_up(library: Path, tmp_path: Path) -> None:
    answer = nvml(library, tmp_path, DESCRIPTION + "hang.nvmlInit_v2 = 1\n")
    assert "did not answer" in str(answer["error"])


def test_a_host_without_the_library_says_so(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this host has a driver")
    assert nvml(None, tmp_path, "") == {"error": "no NVIDIA library"}
