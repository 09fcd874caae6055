"""Whatever a launch has set already, no change sets it again, goes back, or names one option twice.

Each stage of a start and of serving in which memory runs out, as the newest release has its calls, is composed with
launches that are small, large or at the end of an option already.
"""

import pytest

from tests.rules.test_memory_by_stage import MESSAGES, STAGES, Stage
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.engine import judged

LAUNCHES: dict[str, dict[str, object]] = {
    "nothing set": {},
    "a high fraction": {"gpu_memory_utilization": 0.98},
    "a low fraction": {"gpu_memory_utilization": 0.3},
    "one sequence": {"max_num_seqs": 1},
    "a short step": {"max_num_batched_tokens": 512, "max_model_len": 512},
    "one graph": {"max_cudagraph_capture_size": 1},
    "one small adapter": {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8},
    "much offloaded": {"cpu_offload_gb": 200.0},
    "a cache in bytes": {"kv_cache_memory_bytes": 4 << 30},
    "all of it small": {
        "max_num_seqs": 1, "max_num_batched_tokens": 512, "max_model_len": 512, "gpu_memory_utilization": 0.5,
    },
}  # fmt: skip
NEWEST = {stage["stage"]: stage for stage in sorted(STAGES, key=lambda one: one["release"])}
ERROR = "(EngineCore_DP0 pid=70) ERROR 03-14 09:00:00 [core.py:1100] "


def _answer(stage: Stage, message: str, options: dict[str, object]) -> Finding:
    lines = [
        "(APIServer pid=1) INFO 03-14 08:59:00 [api_server.py:1351] vLLM API server version 0.19.1",
        f"(APIServer pid=1) INFO 03-14 08:59:00 [utils.py:233] non-default args: {options!r}",
        f"{ERROR}Traceback (most recent call last):",
    ]
    for file, function, code in stage["calls"]:
        lines += [f'{ERROR}  File "/opt/v/lib/python3.12/site-packages/{file}", line 210, in {function}']
        lines += [f"{ERROR}    {code}"]
    log = log_of_lines([*lines, ERROR + message], "log")
    return judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings[0]


def _goes_on(change: Change, now: object) -> bool:
    """Does it move a number that the launch has to the side that it names?"""
    numbers = isinstance(now, int | float) and isinstance(change.after, int | float)
    if not numbers or isinstance(now, bool) or isinstance(change.after, bool):
        return str(change.after) != str(now)
    moved = float(str(change.after)) - float(str(now))
    return moved < 0 if change.direction is Direction.LOWER else moved > 0


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("stage", sorted(NEWEST))
def test_a_change_goes_on_from_what_is_set(stage: str, launch: str) -> None:
    options = {"model": "acme/chat-8b", "max_model_len": 32768, **LAUNCHES[launch]}
    for message in (MESSAGES["figures"], MESSAGES["no figures"]):
        found = _answer(NEWEST[stage], message, options)
        names = [change.name for change in found.changes]
        assert names, found.code
        assert len(names) == len(set(names)), (found.code, names)
        for change in found.changes:
            now = options.get(change.name.replace("-", "_"))
            assert now is None or change.after is None or _goes_on(change, now), (found.code, change)
