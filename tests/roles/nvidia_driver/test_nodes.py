"""The nodes of nvidia_uvm, made from the number that the kernel shows."""

import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "roles" / "nvidia_driver" / "files" / "nvidia-uvm-nodes"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_nodes_follow_the_number_and_are_made_once(tmp_path: Path) -> None:
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n195 nvidia\n509 nvidia-uvm\n")
    text = PROGRAM.read_text().replace("/proc/devices", f"{tmp_path}/devices").replace("/dev/", f"{tmp_path}/")

    def run() -> str:
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True).stdout

    assert run().split() == [f"{tmp_path}/nvidia-uvm", f"{tmp_path}/nvidia-uvm-tools"]
    assert run() == ""
    for minor, name in enumerate(("nvidia-uvm", "nvidia-uvm-tools")):
        found = (tmp_path / name).stat()
        assert (os.major(found.st_rdev), os.minor(found.st_rdev), found.st_mode & 0o777) == (509, minor, 0o666)
    (tmp_path / "devices").write_text("511 nvidia-uvm\n")
    assert len(run().split()) == 2
    assert os.major((tmp_path / "nvidia-uvm").stat().st_rdev) == 511


def test_a_module_that_is_not_loaded_is_said(tmp_path: Path) -> None:
    (tmp_path / "devices").write_text("195 nvidia\n")
    text = PROGRAM.read_text().replace("/proc/devices", f"{tmp_path}/devices")
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "nvidia-uvm-nodes: nvidia_uvm is not loaded\n")
