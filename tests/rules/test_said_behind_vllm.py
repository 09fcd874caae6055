"""Failures whose own words stand outside vLLM's lines: in another program's log, in prose, lost between processes."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.log.read.assemble import parse_lines
from vllm_doctor.log.read.pieces import Piece, Read
from vllm_doctor.records.verdict import Verdict

LOADS = """INFO 08-02 08:16:00 llm_engine.py:176] Initializing an LLM engine (v0.5.3.post1) with config: model='/m'
INFO 08-02 08:16:01 model_runner.py:680] Starting to load model /models/seven...
"""
MARLIN = (
    "[2024-08-02 08:16:02,424] [WARN] /srv/app/router.py(115):__init__: Weight input_size_per_partition = 704 is not "
    "divisible by min_thread_k = 128. Consider reducing tensor_parallel_size or running with --quantization gptq."
)
UNPICKLED = """Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 367, in get
    return _ForkingPickler.loads(res)
TypeError: {}
"""


def code_title(text: str) -> tuple[str, str]:
    found = diagnosed(text).findings[0]
    return found.code, found.title


def test_whoever_started_the_engine_writes_its_exception_into_a_log_of_his_own_form() -> None:
    assert code_title(LOADS + MARLIN)[0] == "VD527"


def test_behind_a_server_that_serves_such_a_line_is_no_failure() -> None:
    served = LOADS + "INFO:     Application startup complete.\nINFO 08-02 08:17:01 metrics.py:7] idle\n"
    assert diagnosed(served + MARLIN).verdict is not Verdict.FINDING


def test_pythons_sentence_on_a_call_of_vllm_is_read_in_prose() -> None:
    call, key = "resolve_chat_template_content_format", "trust_remote_code"
    told = diagnosed(f"with vllm it fails: `{call}() got an unexpected keyword argument '{key}'`")
    assert told.findings[0].detail == f"{call}({key}=…) is of vLLM 0.8.2 to 0.10.0"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        (
            "BackendCompilerFailed.__init__() missing 1 required positional argument: 'inner_exception'",
            "torch.compile fails on this model's code",
        ),
        (
            "_extractNVMLErrorsAsClasses.<locals>.gen_new.<locals>.new() takes 1 positional argument but 2 were given",
            "A worker's query of its GPU was refused; which, was lost on the way",
        ),
    ],
)
def test_an_exception_that_was_not_built_again_is_the_workers(said: str, title: str) -> None:
    assert code_title(LOADS + UNPICKLED.format(said)) == ("VD527", title)


def test_the_same_words_without_pickle_are_a_calls_own() -> None:
    assert (
        code_title(
            LOADS
            + UNPICKLED.replace("_ForkingPickler.loads(res)", "make(res)").format(
                "RoomFailed.__init__() missing 1 required positional argument: 'a'"
            )
        )[1]
        != "RoomFailed"
    )


def test_a_keys_message_ends_with_its_line() -> None:
    text = "KeyError: layers.7.mlp.experts.w2_weight_quantizer._double_scale\n\n- Image: seven\n- vLLM: 0.15.1\n"
    assert code_title(text) == ("VD523", "The checkpoint holds ModelOpt's own state, which its export leaves out")


BODY = """{
  "object": "error",
  "message": "1 validation error for ChatCompletionRequest\\nrooms\\n  Extra inputs are not permitted",
  "type": "BadRequestError",
  "param": null,
  "code": 400
}
"""


def test_a_body_with_a_key_a_line_is_one_answer() -> None:
    lines = parse_lines(Read((Piece(0, BODY.encode()),), 0))
    (answer,) = (line.text for line in lines if "Error code" in line.text)
    assert answer.startswith(
        "openai.BadRequestError: Error code: 400 - 1 validation error for ChatCompletionRequest rooms"
    )


def test_its_evidence_is_the_line_as_it_stands_in_the_text() -> None:
    lines = parse_lines(Read((Piece(0, BODY.encode()),), 0))
    (shown,) = (line.excerpt for line in lines if "Error code" in line.text)
    assert shown.startswith('"message": "1 validation error')


def test_a_configuration_with_a_message_is_no_answer() -> None:
    text = '{\n  "message": "seven rooms",\n  "type": "house",\n  "rooms": 7\n}\n'
    assert not any("Error code" in line.text for line in parse_lines(Read((Piece(0, text.encode()),), 0)))


def test_a_hung_watchdog_is_a_hang_and_no_slow_step() -> None:
    text = (
        "[rank0]:[F ProcessGroupNCCL.cpp:1169] [PG 2 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds "
        "without making progress in monitoring enqueued collectives.\n"
        "asyncio.exceptions.TimeoutError: Engine iteration timed out. This should never happen!\n"
    )
    assert code_title(text) == ("VD801", "A call of NCCL or CUDA hangs: its watchdog made no step for 480 s")


def test_operators_that_vllm_said_it_could_not_load_are_not_a_defect_that_was_reported() -> None:
    text = (
        "WARNING 08-14 09:01:11 [interface.py:255] Failed to import from vllm._C: ImportError('/x/vllm/_C.abi3.so: "
        "undefined symbol: _ZNK3c1010TensorImpl7roomsEv')\n"
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'get_cuda_view_from_cpu_tensor'\n"
    )
    assert code_title(text) == ("VD514", "vLLM's compiled operators do not fit the torch beside them")


def test_a_pool_below_the_longest_request_explains_what_waits_after_two_lines() -> None:
    waits = (
        "INFO 04-14 22:06:{:02} [loggers.py:87] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
        "throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 1 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: "
        "0.0%\n"
    )
    pool = (
        "INFO 04-14 22:03:31 [kv_cache_utils.py:578] GPU KV cache size: 7,168 tokens\n"
        "INFO 04-14 22:03:31 [kv_cache_utils.py:581] Maximum concurrency for {} tokens per request: {}x\n"
        "INFO:     Application startup complete.\n"
    )
    two = waits.format(5) + waits.format(15)
    told = diagnosed(pool.format("71,680", "0.10") + two).findings[0]
    assert (told.code, told.changes[0].name, told.changes[0].after) == ("VD309", "max-model-len", 7168)
    assert diagnosed(pool.format("3,584", "2.00") + two).verdict is not Verdict.FINDING


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("httpx.LocalProtocolError: Illegal header value b'Bearer '", "client-key"),
        ("httpx.UnsupportedProtocol: Request URL is missing an 'http://' or 'https://' protocol.", "server-address"),
        ("httpx.ConnectError: [Errno -2] Name or service not known", "server-address"),
    ],
)
def test_a_client_that_sends_nothing_is_set_right_and_not_the_server(line: str, name: str) -> None:
    told = diagnosed(f"vllm serve runs on gpu7\n{line}\nopenai.APIConnectionError: Connection error.\n").findings[0]
    assert (told.code, told.changes[0].name) == ("VD521", name)
    assert not any(change.name == "server-log" for change in told.changes)


def test_a_tensor_s_class_is_read_whole_however_long_the_message_is() -> None:
    said = "ValueError: There is no module or parameter named 'mm_whisper_embeddings' in ExampleOfALongNameForCausalLM"
    told = diagnosed(f"vllm serve /models/rooms\n{said}\n").findings[0]
    assert (told.code, told.changes[0].name) == ("VD523", "vllm-version")


@pytest.mark.parametrize(
    ("code", "name", "after"),
    [
        ("if total_num_attention_heads % tensor_parallel_size != 0:", "tensor-parallel-size", 1),
        ("share = total // self.parallel_config.pipeline_parallel_size", "pipeline-parallel-size", 1),
        ("share = total // number_of_rooms", "vllm-version", "0.33.0"),
    ],
)
def test_the_option_that_a_line_divides_by_is_raised_from_0(code: str, name: str, after: str | int) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/usr/local/lib/python3.10/dist-packages/vllm/config.py", line 402, in verify_with_parallel_config\n'
        f"    {code}\n"
        "ZeroDivisionError: integer division or modulo by zero\n"
    )
    change = diagnosed(text).findings[0].changes[0]
    assert (change.name, str(change.after)) == (name, str(after))


def test_what_the_background_task_of_v0_raises_is_a_request_s() -> None:
    text = (
        "ERROR 03-20 04:18:14 async_llm_engine.py:68] Engine background task failed\n"
        "ERROR 03-20 04:18:14 async_llm_engine.py:68] Traceback (most recent call last):\n"
        'ERROR 03-20 04:18:14 async_llm_engine.py:68]   File "/x/site-packages/transformers/models/qwen2_5_vl/'
        'processing_qwen2_5_vl.py", line 139, in __call__\n'
        "ERROR 03-20 04:18:14 async_llm_engine.py:68]     raise ValueError(\n"
        "ERROR 03-20 04:18:14 async_llm_engine.py:68] ValueError: The length of fps (3) must be equal to the length of "
        "video_grid_thw (1) or fps should be a single number.\n"
    )
    told = diagnosed(text).findings[0]
    assert (told.title, told.changes[0].name) == (
        "The request gives other frame rates (fps) than it has videos",
        "client-input",
    )
