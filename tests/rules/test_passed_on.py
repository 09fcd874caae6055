"""What one process tells of another's failure, and which of a program's calls the failure belongs to.

Composed of lines as vLLM, NCCL and Python print them, with names and figures of our own.
"""

import pytest

from tests.log.judging import judged_text
from tests.rules.test_other_programs import SITE, _crash, _first
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction

CLIENT = (
    (f"{SITE}/vllm/v1/engine/llm_engine.py", "collective_rpc", "return self.engine_core.collective_rpc(m, t, a, k)"),
    (f"{SITE}/vllm/v1/engine/core_client.py", "call_utility", "return future.result()"),
    ("/usr/lib/python3.12/concurrent/futures/_base.py", "__get_result", "raise self._exception"),
)
DEAD = "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. "
ORIGINAL = f"{DEAD}Inspect the stacktrace to find the original error: "
DUMPED = "Error in model execution (input dumped to /tmp/err_execute_model_input_20250211-101500.pkl): "


def test_what_the_engine_answers_of_a_method_is_what_its_worker_raised() -> None:
    raised = "Exception: Call to collective_rpc method failed: 'Worker' object has no attribute 'set_rows'"
    found = _first(_crash(raised, *CLIENT))
    assert found.title == "AttributeError: 'Worker' object has no attribute 'set_rows'"
    assert not any(change.direction is Direction.DOWNGRADE for change in found.changes)


def test_the_words_before_a_step_s_error_are_no_part_of_it() -> None:
    found = _first(f"{ORIGINAL}RuntimeError('{DUMPED}a batch of 12 rows is too wide').")
    assert "a batch of 12 rows" in found.title
    assert "input dumped" not in found.title


def test_a_check_without_words_whose_calls_are_gone_is_looked_for_above() -> None:
    found = _first(f"{ORIGINAL}AssertionError('{DUMPED}').")
    assert (found.code, found.title) == ("VD601", "The engine failed with an error that is not in this log")


def test_who_asks_an_object_for_a_name_failed_and_not_the_library_that_answers() -> None:
    found = _first(
        _crash(
            "AttributeError: 'LoraModel' object has no attribute 'row_engine'",
            ("/srv/train/RowTrainer.py", "__init__", "self.llm = model.row_engine"),
            (f"{SITE}/peft/tuners/lora/model.py", "__getattr__", "return getattr(self.model, name)"),
        )
    )
    assert found.title == "The code reads .row_engine, which LoraModel lacks"
    assert [change.name for change in found.changes] == ["program-settings"]
    assert "RowTrainer.py" in found.changes[0].why


def test_a_library_that_reads_its_own_object_is_still_named() -> None:
    found = _first(
        _crash(
            "AttributeError: 'Rows' object has no attribute 'count'",
            (f"{SITE}/rowtrainer/rows.py", "made", "return self.rows.count"),
        )
    )
    assert found.changes[0].direction is Direction.UPGRADE


NCCL_CONNECT = (
    "gpu-3:33:206 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.16.9.25<43163> failed : "
    "Software caused connection abort"
)
NCCL_PEER = "gpu-3:33:206 [0] transport/p2p.cc:136 NCCL WARN Cuda failure 'operation not supported'"
NCCL_RAISED = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, "
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3"
)


@pytest.mark.parametrize(
    ("last", "title"),
    [
        ("Cuda failure 'operation not supported'", "NCCL cannot copy directly between GPUs"),
        (NCCL_CONNECT.partition("WARN ")[2], "The NCCL ranks cannot reach each other over the network"),
    ],
)
def test_the_warning_that_torch_quotes_last_is_what_nccl_stopped_at(last: str, title: str) -> None:
    head = "Traceback (most recent call last):"
    found = _first(f"{NCCL_CONNECT}\n{NCCL_PEER}\n{head}\n{NCCL_RAISED}\nLast error:\n{last}")
    assert (found.title, found.confidence) == (title, Confidence.CONFIRMED)


def test_the_folder_of_an_adapter_is_no_model() -> None:
    found = _first("ValueError: No supported config format found in rows_lora_r16. Please check it.")
    assert found.title == "The folder of an adapter is given as the model"
    assert (found.changes[0].kind, found.changes[0].name) == (ChangeKind.FLAG, "model")
    other = _first("ValueError: No supported config format found in rows-8b. Please check it.")
    assert other.title == "The model has no configuration in a known format"


def test_an_engine_that_a_trainer_copies() -> None:
    found = _first("RuntimeError: LLMEngine should not be pickled!")
    assert found.title == "A program copies vLLM's engine, or sends it to another process"
    assert [change.name for change in found.changes] == ["program-settings"]


def test_a_model_type_that_transformers_does_not_know() -> None:
    said = "ValueError: The checkpoint you are trying to load has model type `rows_moe` but Transformers does not "
    found = _first(f"vllm==0.11.0\n{said}recognize this architecture.")
    assert found.title == "The installed Transformers does not know this type of model"
    newer = {change.name: change.after for change in found.changes}
    assert newer["transformers"] == "transformers>=4.55.2,<5"
    assert "vllm-version" in newer


def test_arguments_of_a_tool_call_that_are_no_json() -> None:
    answer = "\"Expecting ',' delimiter: line 1 column 62 (char 61)\""
    found = _first(f"openai.BadRequestError: Error code: 400 - {{'message': {answer}, 'type': 'BadRequestError'}}")
    assert found.title == "A tool call in the request has arguments that are no JSON"


def test_a_start_that_ends_where_lmcache_takes_its_pool() -> None:
    lines = (
        "(VllmWorker rank=0 pid=247) INFO 06-07 20:32:58 [gpu_model_runner.py:1347] Model loading took 12.5 GiB",
        "(VllmWorker rank=0 pid=247) LMCache INFO: Creating LMCacheEngine instance vllm-instance",
    )
    assert "LMCACHE_MAX_LOCAL_CPU_SIZE" in str(judged_text("\n".join(lines)))


def test_an_image_without_the_program_that_it_starts() -> None:
    podman = "ERROR (catatonit:2): failed to exec pid1: No such file or directory"
    found = _first(f"$ podman run IMAGE vllm serve rows-8b\n{podman}")
    assert found.title == "The image lacks the program that the container starts"
    triton = (
        "E0314 09:26:59.624700 1 model_lifecycle.cc:654] failed to load 'vllm_model' version 1: Invalid argument: "
        "unable to find 'libtriton_vllm.so' for model 'vllm_model', searched: /opt/tritonserver/backends/vllm"
    )
    assert _first(triton).title == "Triton has no such backend in its image"


def test_a_class_of_the_program_s_own_is_no_matter_of_vllm_s_release() -> None:
    raised = "TypeError: VllmRoomConfig.__init__() got an unexpected keyword argument 'door'"
    found = _first(_crash(raised, ("/srv/agent/models/vllm_model.py", "__init__", "self.c = VllmRoomConfig(**kw)")))
    assert found.title == "The program's own VllmRoomConfig does not take the argument door"
    assert [change.name for change in found.changes] == ["program-settings"]
    of_vllm = raised.replace("VllmRoomConfig", "SamplingParams")
    other = _first(_crash(of_vllm, ("/srv/agent/models/vllm_model.py", "__init__", "p = SamplingParams(**kw)")))
    assert "fit each other" in other.title


def test_a_package_that_vllm_does_not_ask_for_is_not_cured_by_another_vllm() -> None:
    found = _first("vllm serve\nModuleNotFoundError: No module named 'llama_index.core.llms.rooms'")
    assert [(change.name, change.direction) for change in found.changes] == [("foreign-package", Direction.UPGRADE)]


@pytest.mark.parametrize(
    ("left", "title"),
    [
        ("'GPU': 0.1", "Ray has only a part of a GPU left on the node where vLLM starts"),
        ("'memory': 36000000000.0", "Ray offers no GPU on the node where vLLM starts"),
    ],
)
def test_a_part_of_a_gpu_that_a_replica_left(left: str, title: str) -> None:
    said = f"ValueError: Current node has no GPU available. current_node_resource={{{left}}}. vLLM engine cannot start"
    assert _first(said).title == title


def test_a_library_s_word_for_a_connection_that_was_not_made() -> None:
    said = "litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.. Received Model"
    found = _first(f"gradio.exceptions.Error: 'Error: {said} Group=vllm-rooms'")
    assert (found.code, found.changes[0].name) == ("VD521", "server-address")


def test_of_callers_that_set_their_words_before_the_reason_comes_last() -> None:
    said = "Failed to load model: preload failed: waiting for the runner: the door of room 12 is shut"
    found = _first(f"docker model run vllm-rooms\n{said}")
    assert found.title.endswith("the door of room 12 is shut")


EVENT = (
    "  Warning  Unhealthy  3m (x{times} over 12m)  kubelet  {probe} probe failed: Get "
    '"http://10.9.1.33:8000/health": context deadline exceeded'
)
ANSWERS = 'INFO:     10.9.2.7:40128 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
STOPS = "INFO:     Shutting down\nINFO:     Application shutdown complete."


@pytest.mark.parametrize(
    ("lines", "times", "probe", "told"),
    [
        ((ANSWERS, STOPS), 9, "Liveness", True),
        ((ANSWERS, STOPS), 2, "Liveness", False),
        ((ANSWERS, STOPS), 9, "Readiness", False),
        ((ANSWERS,), 9, "Liveness", False),
    ],
)
def test_a_server_that_stopped_while_its_liveness_probe_failed(
    lines: tuple[str, ...], times: int, probe: str, told: bool
) -> None:
    found = judged_text("\n".join((*lines, EVENT.format(times=times, probe=probe)))).findings
    assert [one.title for one in found if one.code == "VD002"] == (
        ["The liveness probe ended a server that had become ready"] if told else []
    )
