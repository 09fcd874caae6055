"""A GPU computes, or what is said instead: the program of the role against a simulated driver, as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml_sim.build import build_cuda

REPO = Path(__file__).parents[3]
PROGRAM = REPO / "roles" / "nvidia_driver" / "files" / "gpu_proof.py"
CARDS = "driver = 580.105.08\ncuda = 13000\ngpu.0.name = NVIDIA A10\ngpu.1.name = NVIDIA A10\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("driver")
    build_cuda(built)
    return built


def ask(folder: Path, fault: str, *words: str) -> dict[str, object]:
    """The program's answer with these lines added to the description of the machine."""
    (folder / "nvml-sim").write_text(CARDS + fault)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(REPO / "tests" / "stub_vllm")}
    command = [sys.executable, PROGRAM, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/")
    return dict(json.loads(done.stdout))


def test_a_kernel_computes_on_every_card(folder: Path) -> None:
    assert ask(folder, "", "driver") == {"outcome": "ok", "gpus": 2, "cuda": 13000}


def test_torch_computes_on_every_card(folder: Path) -> None:
    assert ask(folder, "", "torch") == {"outcome": "ok", "gpus": 2, "torch": "2.13.0+stub", "cuda": "13.0"}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("rc.cuInit = 802", "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802)"),
        ("rc.cuInit = 803", "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        ("rc.cuModuleLoadData.1 = 222", "GPU 1: cuModuleLoadData: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
        ("rc.cuCtxSynchronize.0 = 719", "GPU 0: cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)"),
        ("cuda.wrong = 1", "GPU 1: 1 of 1024 results are wrong, the first at 0"),
        ("crash.cuCtxSynchronize = 1", "ended by signal 11"),
    ],
)
def test_a_card_that_does_not_compute_is_said_in_the_words_of_cuda(folder: Path, fault: str, why: str) -> None:
    assert ask(folder, fault, "driver") == {"outcome": "failed", "why": why}


def test_a_driver_that_hangs_is_not_waited_for(folder: Path) -> None:
    answer = ask(folder, "hang.cuCtxSynchronize = 1", "driver", "1")
    assert answer == {"outcome": "failed", "why": "no answer within 1 s: the driver hangs"}


def test_no_library_of_the_driver_is_a_failure(tmp_path: Path) -> None:
    answer = ask(tmp_path, "", "driver")
    assert answer["outcome"] == "failed"
    assert "libcuda.so.1: cannot open shared object file" in str(answer["why"])


def test_a_python_without_torch_has_not_failed() -> None:
    done = subprocess.run([sys.executable, "-I", PROGRAM, "torch"], capture_output=True, text=True, check=True, cwd="/")
    assert json.loads(done.stdout) == {"outcome": "not run", "why": "this Python has no torch"}
