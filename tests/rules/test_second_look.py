"""What a text offers against its failure where the rule that names it has no change: its title, its part, its calls."""

import pytest

from tests.log.judging import judged_text

SCHEDULES = """\
(EngineCore_DP0 pid=71) ERROR 10-28 20:10:56 [core.py:710]   File "/opt/v/lib/python3.12/site-packages/vllm/v1/engine/\
core.py", line 754, in _process_engine_step
(EngineCore_DP0 pid=71) ERROR 10-28 20:10:56 [core.py:710]     outputs, model_executed = self.step_fn()
(ApiServer_3 pid=72) INFO:     127.0.0.1:45516 - "POST /v1/completions HTTP/1.1" 200 OK
(EngineCore_DP0 pid=71) ERROR 10-28 20:10:56 [core.py:710]   File "/opt/v/lib/python3.12/site-packages/vllm/v1/engine/\
core.py", line 325, in step_with_batch_queue
(EngineCore_DP0 pid=71) ERROR 10-28 20:10:56 [core.py:710]     scheduler_output = self.scheduler.schedule()
(ApiServer_3 pid=72) INFO:     127.0.0.1:45520 - "POST /v1/completions HTTP/1.1" 200 OK
(ApiServer_3 pid=72) INFO:     127.0.0.1:45522 - "POST /v1/completions HTTP/1.1" 200 OK
"""
KERNEL = """\
(VllmWorker rank=0 pid=7) ERROR 05-13 16:11:49 [multiproc_executor.py:522]     kernel_unified_attention_2d[(
(VllmWorker rank=0 pid=7) ERROR 05-13 16:11:49 [multiproc_executor.py:522]   File "/opt/v/lib/python3.12/site-packages/\
triton/runtime/jit.py", line 569, in run
(VllmWorker rank=0 pid=7) ERROR 05-13 16:11:49 [multiproc_executor.py:522]     kernel = self.compile(src, target=target)
"""
PARSER = """\
ERROR 07-03 11:30:24 [mistral_tool_parser.py:365]   File "/usr/lib/python3.12/json/decoder.py", line 356, in raw_decode
ERROR 07-03 11:30:24 [mistral_tool_parser.py:365]     raise JSONDecodeError("Expecting value", s, err.value) from None
ERROR 07-03 11:30:24 [mistral_tool_parser.py:365] json.decoder.JSONDecodeError: Expecting value: line 1 column 1
"""
DRAWN = """\
    |   File "/opt/v/lib/python3.12/site-packages/starlette/middleware/base.py", line 175, in __call__
    |     response = await self.dispatch_func(request, call_next)
    |   File "/opt/v/lib/python3.12/site-packages/vllm/entrypoints/openai/api_server.py", line 765, in authentication
    |     return await call_next(request)
"""
HEAD_SIZE = """\
  File "/opt/v/lib/python3.12/site-packages/vllm/{where}", line 803, in forward
    flash_attn_varlen_func(
RuntimeError: This flash attention build does not support headdim not being a multiple of 32.
"""


def _told(text: str) -> tuple[str, list[tuple[str, object]]]:
    found = judged_text(text).findings[0]
    return found.title, [(change.name, change.after) for change in found.changes]


def test_the_loop_of_the_engine_ends_it_though_other_requests_are_answered() -> None:
    assert judged_text(SCHEDULES).findings[0].title == "A step of the engine failed, and the exception is cut off"


def test_a_title_names_the_switch_that_the_message_does_not() -> None:
    text = "# [Bug]: the draft model method fails\n\nRuntimeError: The expanded size of the tensor (1024) must match\n"
    assert ("speculative-config", None) in _told(text)[1]


def test_a_title_that_names_a_backend_is_offered_another() -> None:
    text = "# [Bug]: cannot run a model with the FlashInfer backend\n\nRuntimeError: Expect (1 <= rooms <= 4)\n"
    assert ("attention-backend", "TRITON_ATTN") in _told(text)[1]


def test_a_title_that_asks_offers_nothing() -> None:
    text = "# [Usage]: which cards does the FlashInfer backend take?\n\nRuntimeError: Expect (1 <= rooms <= 4)\n"
    assert _told(text)[1] == []


def test_a_title_that_says_what_works_is_offered_where_the_engine_died() -> None:
    text = "# [Bug]: it fails with v0.10.2 (works fine on v0.10.1)\n\n" + SCHEDULES.replace("_DP0", "_DP1")
    assert ("vllm-version", "0.10.1") in _told(text)[1]


def test_the_code_above_a_headless_call_tells_the_kernel() -> None:
    assert _told(KERNEL)[1] == [("attention-backend", "FLASHINFER")]
    assert _told("# [Bug]: Triton fails on ROCm\n\n" + KERNEL)[1] == [("attention-backend", "ROCM_ATTN")]


def test_who_signs_a_record_tells_the_part_where_only_pythons_calls_are_left() -> None:
    assert _told(PARSER)[0] == "The tool parser failed on the model's answer"


def test_a_drawn_group_of_exceptions_is_read_without_its_head() -> None:
    title = "# [Bug]: Error running a guard model: 'guideline' is undefined\n\n"
    assert _told(title + DRAWN) == ("The chat template fails on this request", [("chat-template", None)])


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("attention/backends/flash_attn.py", ("VLLM_ATTENTION_BACKEND", "XFORMERS")),
        ("v1/attention/backends/flash_attn.py", ("attention-backend", "TRITON_ATTN")),
    ],
)
def test_a_head_size_is_given_to_a_backend_that_takes_any(where: str, change: tuple[str, str]) -> None:
    assert change in _told(HEAD_SIZE.format(where=where))[1]


def test_a_title_that_names_a_head_size_is_offered_a_backend_that_takes_it() -> None:
    title = "# [Bug]: Cannot use FlashAttention-2 backend for head size 88\n\n"
    v0 = "vllm==0.8.4\n(VllmWorkerProcess pid=33) INFO 04-17 20:54:26 [multiproc_worker_utils.py:225] Worker ready\n"
    assert _told(title + v0)[1][:1] == [("VLLM_ATTENTION_BACKEND", "XFORMERS")]
    assert _told(title)[1][:1] == [("attention-backend", "TRITON_ATTN")]


def test_a_title_with_the_tag_of_a_bug_fails_whatever_its_words() -> None:
    told = _told("# [Bug]: issue with the reasoning parser of a model\n\nno log\n")
    assert told == ("The parser of reasoning failed, as the title of this report says", [("reasoning-parser", None)])


def test_a_cache_of_prepared_images_is_left_out() -> None:
    assert ("mm-processor-cache-gb", 0) in _told("# [Bug]: MM cache crashes the engine\n\nno log\n")[1]


def test_a_model_that_transformers_runs_has_code_of_its_own_in_a_later_release() -> None:
    text = (
        "vLLM version: 0.10.1\nINFO 10-02 06:06:01 [transformers.py:400] Using Transformers backend.\n"
        "AttributeError: 'Qwen3VLMoeModel' object has no attribute 'language_model.embed_tokens'\n"
    )
    assert _told(text)[1][:1] == [("vllm-version", "0.33.0")]


def test_the_key_of_a_title_may_lack_its_end() -> None:
    text = "# KeyError: 'model.layers.1.block_sparse_moe.experts.4.w3.weight\n\nvLLM does not start\n"
    assert _told(text)[0] == "The checkpoint has weights that the model's code does not know"


@pytest.mark.parametrize(
    ("title", "change"),
    [
        ("wrong output when using kv cache fp8", ("kv-cache-dtype", None)),
        ("FP8 dynamic quantization = gibberish output", ("quantization", None)),
        ("Prefix caching gives incorrect results", ("enable-prefix-caching", False)),
    ],
)
def test_wrong_text_is_a_failure_and_what_rounds_is_left_out_first(title: str, change: tuple[str, object]) -> None:
    told, changes = _told(f"# [Bug]: {title}\n\nvllm version 0.9.2, GPU H100\n")
    assert (told, changes[0]) == ("The model writes wrong text, as the title of this report says", change)


def test_the_old_engine_is_a_setting_that_people_name() -> None:
    text = "# [Bug]: wrong output\n\nvllm==0.8.5\nThe answer is fine with V0.\n"
    assert ("VLLM_USE_V1", "0") in _told(text)[1]


def test_a_title_tells_the_release_alone_that_it_fails_with() -> None:
    told = judged_text("# [Bug]: EAGLE3 fails with v0.9.2, works on v0.9.1\n\nno log\n")
    assert [c.after for c in told.findings[0].changes if c.name == "vllm-version"] == ["0.9.1"]


def test_eager_mode_is_offered_on_a_cpu_where_compiling_failed() -> None:
    assert ("enforce-eager", True) in _told("# [Bug]: torch.compile fails for an MoE model on CPU\n\nno log\n")[1]


def test_what_is_left_of_a_failing_part_is_how_often_it_changed_since() -> None:
    found = judged_text("# [Bug]: RuntimeError in gptq_marlin_24_gemm\n\nvllm 0.5.4\n").findings[0]
    assert found.title == "The quantized checkpoint, or a kernel for it failed"
    assert found.changes[0].why == "55 of the 67 releases since 0.5.4 changed the code of this part: it may be fixed"


def test_a_report_that_something_fails_is_never_ok() -> None:
    served = (
        "INFO 08-09 03:02:36 metrics.py:406] Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 40.0 "
        "tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 1.0%, CPU KV cache usage: "
        "0.0%.\n"
    ) * 3
    assert judged_text(served).verdict.value == "ok"
    assert judged_text(f"# [Bug]: high memory && OOM\n\n{served}").verdict.value == "unknown"
