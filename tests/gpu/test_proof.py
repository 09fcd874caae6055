"""The kernel that role nvidia_driver lets every GPU compute after a change, on a real card."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles" / "nvidia_driver" / "files" / "gpu_proof.py"


@pytest.mark.parametrize("way", ["driver", "torch"])
def test_every_gpu_computes(way: str) -> None:
    done = subprocess.run([sys.executable, "-I", PROGRAM, way], capture_output=True, text=True, check=True, cwd="/")
    answer = json.loads(done.stdout)
    if answer["outcome"] == "not run":
        pytest.skip(answer["why"])
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert (answer["outcome"], answer["gpus"]) == ("ok", len(listed)), answer
