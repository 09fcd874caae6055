"""A warning that a library writes into a traceback is none of its lines: neither its exception nor a part of what it
says."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log import match
from vllm_doctor.log.traceback import tracebacks
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.verdict import Confidence

# How torch, glog, Ray's, logrus, Transformers', Python's and NCCL's loggers write a warning.
WARNERS = tuple(sample.line for sample in match.catalogue()["signed-as-warning"].samples)
LOST = "libcuda.so.1: cannot open shared object file: No such file or directory"
ENDED = """\
Traceback (most recent call last):
  File "/x/vllm/v1/worker/gpu_worker.py", line 374, in load_model
    param = params_dict[name]
KeyError: 'layers.0.self_attn.q_norm.weight'
"""
NO_DEVICE = """\
Traceback (most recent call last):
  File "/x/vllm/config/device.py", line 56, in __post_init__
    raise RuntimeError(
RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`
"""
CRASH = (
    "Traceback (most recent call last):",
    '  File "/x/vllm/engine/arg_utils.py", line 9, in make',
    "    return f(x)",
    "ValueError: no such schema",
    "known are: a, b",
)
WARNINGS = ("FutureWarning: The pynvml package is deprecated.", "UserWarning: x", "Warning: y")


@pytest.mark.parametrize("at", range(2, len(CRASH)))
@pytest.mark.parametrize("warning", WARNINGS)
def test_it_is_passed_over(warning: str, at: int) -> None:
    lines = (*CRASH[:at], warning, *CRASH[at:])
    (crash,) = tracebacks([LogLine(number, text) for number, text in enumerate(lines, 1)])
    assert (crash.root.name, crash.root.message) == ("ValueError", "no such schema\nknown are: a, b")
    assert [frame.function for frame in crash.root.frames] == ["make"]


IMPORT_WARNED = (
    "(pid=9) /x/site-packages/vllm/version.py:8: RuntimeWarning: Failed to read commit hash:",
    "(pid=9) No module named 'vllm._version'",
    "(pid=9)   from vllm.version import __version__",
)


def test_a_warning_of_several_lines_ends_with_the_code_that_warned() -> None:
    assert not judged_text("\n".join(IMPORT_WARNED)).findings


def test_the_same_line_without_the_code_below_it_is_an_import_that_failed() -> None:
    (found, *_) = judged_text("\n".join((*IMPORT_WARNED[2:], *IMPORT_WARNED[1:2]))).findings
    assert found.code == "VD514"


@pytest.mark.parametrize("warner", WARNERS)
def test_what_fails_behind_a_warning_comes_before_it(warner: str) -> None:
    warning = warner.replace("something", LOST)
    (found, *_) = judged_text(f"{warning}\n{ENDED}").findings
    assert "KeyError" in found.evidence[0].excerpt
    assert not any(LOST in line.excerpt for line in found.evidence)


def test_what_is_written_as_a_warning_may_be_the_reason_and_is_not_certain() -> None:
    warned = "node4:279:279 [1] misc/ipcsocket.cc:1 NCCL WARN Cuda failure 'invalid argument'"
    assert "nccl-warning" in match.said_as_warning()
    (found, *_) = judged_text(f"{warned}\n{ENDED}").findings
    assert found.confidence is not Confidence.CONFIRMED


def test_why_there_is_no_device_is_told_by_torch_as_a_warning() -> None:
    warned = (
        "/x/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old "
        "(found version 12020)."
    )
    (found, *_) = judged_text(f"{warned}\n  return torch._C._cuda_getDeviceCount() > 0\n{NO_DEVICE}").findings
    assert (found.code, found.confidence) == ("VD701", Confidence.CONFIRMED)
