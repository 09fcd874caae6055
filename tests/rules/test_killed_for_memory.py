"""A process that was killed (SIGKILL) and that nobody tells more of: when that is the host's memory, and how sure.

Reading weights takes more of the host's memory every second, and a shell prints `Killed` of what nobody in it ended. A
probe, a time limit or a person ends a pod or a job with the same code, and a log may count more free memory than the
whole checkpoint needs.
"""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Confidence, Phase
from vllm_doctor.rules.engine import judged

STARTS = "(EngineCore pid=9) INFO 10-01 10:00:20 [gpu_model_runner.py:2338] Starting to load model acme/chat-32b..."
LOADS = "Loading safetensors checkpoint shards:  33% Completed | 10/30 [00:41<01:22,  4.1s/it]"
SERVES = (
    "INFO:     Application startup complete.",
    'INFO:     10.2.0.4:50110 - "POST /v1/chat/completions HTTP/1.1" 200',
)
ROOM = "Filesystem type for checkpoints: EXT4. Checkpoint size: 62.10 GiB. Available RAM: {} GiB."
LIKELY = {
    "a shell, while weights load": (STARTS, LOADS, "Killed"),
    "a script's shell": (STARTS, "./serve.sh: line 12: 20931 Killed                  vllm serve acme/chat-32b"),
    "a container, while weights load": (STARTS, LOADS, "vllm-1 exited with code 137"),
    "the parent, while weights load": (STARTS, LOADS, "  exitcode  : -9 (pid: 4242)"),
    "a shell, of a server": (*SERVES, "Killed"),
    "who saw the signal names its reason": ("[7] [ERROR] Worker (pid:25134) was sent SIGKILL! Perhaps out of memory?",),
    "too little room for the checkpoint": (ROOM.format("41.00"), STARTS, LOADS, "Killed"),
}
OPEN = {
    "a probe may have done it": (STARTS, LOADS, "      Exit Code:    137"),
    "a container after its start": (*SERVES, "vllm-1 exited with code 137"),
    "room for twice the checkpoint": (ROOM.format("190.00"), STARTS, LOADS, "Killed"),
}


def _first(lines: tuple[str, ...]) -> Finding | None:
    found = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings
    return found[0] if found else None


@pytest.mark.parametrize("name", LIKELY)
def test_the_memory_of_the_host_is_the_likely_cause(name: str) -> None:
    found = _first(LIKELY[name])
    assert found is not None
    assert (found.code, found.phase, found.confidence) == ("VD603", Phase.HOST_RAM, Confidence.LIKELY)
    assert found.changes[0].name == "host-ram"


@pytest.mark.parametrize("name", OPEN)
def test_what_else_may_have_done_it_is_left_open(name: str) -> None:
    found = _first(OPEN[name])
    assert found is not None
    assert (found.code, found.confidence, found.changes) == ("VD601", Confidence.POSSIBLE, ())


def test_the_default_swap_space_of_every_rank_counts_where_v0_makes_it() -> None:
    found = _first(
        (
            (
                "INFO 03-01 10:00:01 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: "
                "model='acme/chat-72b', tensor_parallel_size=8, pipeline_parallel_size=1"
            ),
            "INFO 03-01 10:03:01 distributed_gpu_executor.py:57] # GPU blocks: 12012, # CPU blocks: 6553",
            "Killed",
        )
    )
    assert found is not None
    assert (found.code, found.confidence) == ("VD603", Confidence.LIKELY)
    assert [(change.name, change.after) for change in found.changes][:1] == [("swap-space", 0)]
    assert found.arithmetic[0].value == 32.0
