"""A log of another inference server is none of vLLM's, whatever failed in it."""

from pathlib import Path

import pytest

from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

FAILED = """\
[2025-11-25 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "{file}", line 2748, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 23.64 GiB of \
which 512.00 MiB is free.
"""


def judged(file: str, folder: Path) -> Diagnosis:
    (folder / "log").write_text(FAILED.format(file=file))
    return diagnose(Snapshot(taken_at="2026-01-01T00:00:00+00:00", log=read_logs([str(folder / "log")])))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", "sglang"),
        ("/opt/py/site-packages/lmdeploy/pytorch/engine/engine.py", "lmdeploy"),
    ],
)
def test_what_failed_in_another_server_is_no_finding(tmp_path: Path, file: str, name: str) -> None:
    told = judged(file, tmp_path)
    assert (told.verdict, told.findings) == (Verdict.UNKNOWN, ())
    assert told.path[-1].because == f"this is a log of {name}, and no line in it is vLLM's; the doctor judges vLLM only"


def test_a_program_that_calls_vllm_is_judged(tmp_path: Path) -> None:
    assert judged("/opt/py/site-packages/vllm/v1/engine/core.py", tmp_path).findings
