"""In whichever stage GPU memory runs out, the answer is its cause, and the first change is one that helps there.

`logs/memory_stages.json` has the calls of each stage, as the sources of four releases have them, with the causes and
the changes that follow from how the stage allocates. They are composed with what torch and CUDA print and with what
stands before a line, whole and with only the innermost calls left, as people cut them.
"""

import json
from pathlib import Path
from typing import TypedDict

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import judged


class Stage(TypedDict):
    """One stage of one release."""

    release: str
    stage: str
    causes: list[str]
    changes: list[str]
    calls: list[tuple[str, str, str]]


STAGES: list[Stage] = json.loads(Path(__file__).with_name("logs").joinpath("memory_stages.json").read_text("utf-8"))
MESSAGES = {
    "figures": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.18 GiB. GPU 0 has a total capacity of "
        "39.38 GiB of which 613.56 MiB is free. Including non-PyTorch memory, this process has 38.78 GiB memory in "
        "use. Of the allocated memory 37.61 GiB is allocated by PyTorch, and 301.20 MiB is reserved by PyTorch but "
        "unallocated."
    ),
    "no figures": "torch.OutOfMemoryError: CUDA out of memory.",
    "figures left out": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...",
    "the driver": "torch.AcceleratorError: CUDA error: out of memory",
}
HEADS = {
    "bare": "",
    "V1": "(EngineCore_DP0 pid=902) ERROR 03-01 10:00:00 [core.py:842] ",
}
# In a forward pass the innermost calls do not tell the profile run from a step: what helps in both is right.
PASSES = {"profile", "sampler", "step", "warm"}
EITHER = {"utilization-too-high", "batched-tokens-too-large"}, {"gpu-memory-utilization", "max-num-batched-tokens"}


def _answer(stage: Stage, message: str, head: str, kept: int | None) -> Finding | None:
    lines = ["Traceback (most recent call last):"] if kept is None else []
    for file, function, code in stage["calls"][-kept if kept else 0 :]:
        lines += [f'  File "/opt/v/lib/python3.12/site-packages/{file}", line 210, in {function}', f"    {code}"]
    log = log_of_lines([head + line for line in (*lines, message)], "log")
    found = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings
    return found[0] if found else None


@pytest.mark.parametrize("kept", [None, 3, 2])
@pytest.mark.parametrize("stage", STAGES, ids=lambda one: f"{one['release']}-{one['stage']}")
def test_the_stage_decides(stage: Stage, kept: int | None) -> None:
    causes, changes = set(stage["causes"]), set(stage["changes"])
    if kept is not None and stage["stage"] in PASSES:
        causes, changes = causes | EITHER[0], changes | EITHER[1]
    for name, message in MESSAGES.items():
        for where, head in HEADS.items():
            found = _answer(stage, message, head, kept)
            assert found is not None, (name, where)
            assert found.cause.value in causes, (name, where, found.code)
            assert found.changes, (name, where, found.code)
            assert found.changes[0].name in changes, (name, where, found.code)


DUMPED = (
    "(EngineCore_DP0 pid=902) ERROR 03-01 10:00:01 [dump_input.py:81] Dumping scheduler stats: "
    "SchedulerStats(num_running_reqs=190, num_waiting_reqs=0)"
)
SORTED = [
    '  File "/v/site-packages/vllm/v1/sample/ops/topk_topp_sampler.py", line 190, in apply_top_k_top_p',
    "    logits_sort, logits_idx = logits.sort(dim=-1, descending=False)",
    MESSAGES["figures"],
]


@pytest.mark.parametrize("lines", [[DUMPED, *SORTED], [*SORTED, DUMPED]], ids=["before", "after"])
def test_a_step_that_the_engine_wrote_down_is_no_start(lines: list[str]) -> None:
    """The sampler alone would be its dummy batch: an engine dumps only what it runs for requests."""
    found = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]
    assert (found.code, found.phase.value) == ("VD201", "runtime-prefill-burst")
