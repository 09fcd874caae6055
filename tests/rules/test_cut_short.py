"""A traceback that ends before its exception: its calls, the line that raises and the report's heading still tell."""

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.verdict import Confidence, Verdict

OF_WORKER = "(Worker_TP1 pid=73) ERROR 06-04 03:12:09 [multiproc_executor.py:812] "
VLLM = "/opt/house/lib/python3.12/site-packages/vllm"
HEAD = f"{OF_WORKER}Traceback (most recent call last):\n"
DRAFT = (
    f'{OF_WORKER}  File "{VLLM}/v1/worker/gpu_model_runner.py", line 4012, in load_model\n'
    f"{OF_WORKER}    self.drafter.load_model(self.model)\n"
    f'{OF_WORKER}  File "{VLLM}/v1/spec_decode/eagle.py", line 903, in load_model\n'
    f"{OF_WORKER}    self.model = self._get_model()\n"
)
ADAPTER = (
    f'{OF_WORKER}  File "{VLLM}/lora/models.py", line 233, in check_unexpected_modules\n'
    f"{OF_WORKER}    module_name, _ = parse_fine_tuned_lora_name(\n"
    f'{OF_WORKER}  File "{VLLM}/lora/utils.py", line 151, in parse_fine_tuned_lora_name\n'
    f'{OF_WORKER}    raise ValueError(f"{{name}} is unsupported LoRA weight")\n'
)
OUTER = (
    f'{OF_WORKER}  File "{VLLM}/v1/engine/core.py", line 711, in run_engine_core\n'
    f"{OF_WORKER}    engine_core = EngineCoreProc(*args, **kwargs)\n"
)
ANSWERS = 'INFO:     127.0.0.1:40112 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 3


def test_the_calls_tell_the_part_that_failed() -> None:
    found = diagnosed(HEAD + DRAFT).findings[0]
    assert found.title == "Speculative decoding failed, and the exception is cut off"
    assert [change.name for change in found.changes] == ["speculative-config"]


def test_so_it_is_without_its_head() -> None:
    assert diagnosed(DRAFT).findings[0].title == "Speculative decoding failed, and the exception is cut off"


def test_calls_that_every_failure_goes_through_name_nothing() -> None:
    found = diagnosed(HEAD + OUTER).findings
    assert all(one.confidence is Confidence.POSSIBLE and not one.changes for one in found)


PRODUCT = (
    f'{OF_WORKER}  File "{VLLM}/model_executor/layers/quantization/utils/w8a8_utils.py", line 1, in apply_fp8_linear\n'
    f"{OF_WORKER}    return ops.cutlass_scaled_mm(rows,\n"
    f'{OF_WORKER}  File "{VLLM}/_custom_ops.py", line 2, in cutlass_scaled_mm\n'
    f"{OF_WORKER}    assert b.shape[0] % 16 == 0\n"
)


def test_the_check_of_a_kernel_is_its_own_exception_and_another_kernel_may_take_what_it_does_not() -> None:
    found = diagnosed(HEAD + PRODUCT).findings[0]
    assert found.title == "The quantized kernel: the check `b.shape[0] % 16 == 0` fails"
    # the calls are of V0, which has no option for the kernel
    assert [change.name for change in found.changes][:1] == ["VLLM_TEST_FORCE_FP8_MARLIN"]


def test_a_check_that_goes_on_in_the_next_line_is_cut() -> None:
    found = diagnosed(HEAD + PRODUCT.replace("% 16 == 0", "% (")).findings[0]
    assert found.title == "A kernel for quantized weights failed, and the exception is cut off"


def test_a_line_of_code_that_raises_says_what_it_raises() -> None:
    found = diagnosed(HEAD + ADAPTER).findings[0]
    assert found.title == "The adapter changes layers that vLLM cannot add to this model"


def test_an_engine_that_answers_below_it_serves() -> None:
    told = diagnosed(ADAPTER.replace(OF_WORKER, "") + ANSWERS)
    assert told.verdict is not Verdict.FINDING


def test_a_reports_heading_names_the_exception() -> None:
    title = "# [Bug]: KeyError: 'layers.9.mlp.experts.w2_weight' with three stages\n\n"
    assert (
        diagnosed(title + HEAD + OUTER).findings[0].title
        == "The checkpoint has weights that the model's code does not know"
    )


def test_or_it_quotes_what_python_says_without_the_class() -> None:
    title = "[Bug]: 'dict' object has no attribute 'is_kv_transfer_instance'\n\n"
    assert diagnosed(title + OUTER).findings[0].title == "A program hands the KV connector its options as a dictionary"


def test_a_heading_is_not_asked_where_the_log_says_it() -> None:
    own = f"{HEAD}{OUTER}{OF_WORKER}ValueError: LoRA rank 48 is greater than max_lora_rank 16.\n"
    found = diagnosed("# [Bug]: KeyError: 'layers.9.mlp.experts.w2_weight'\n\n" + own).findings[0]
    assert found.title == "The adapter's rank 48 is above --max-lora-rank 16"


def test_a_sentence_quotes_it_in_backticks() -> None:
    told = diagnosed("On this card the kernel raises `RuntimeError: Error Internal` while it is profiled.\n")
    assert told.findings[0].title == "CUTLASS' kernel for a quantized product does not run here"
    assert [change.name for change in told.findings[0].changes][:1] == ["linear-backend"]


def test_a_line_of_the_log_that_could_not_be_written_ended_nothing() -> None:
    text = (
        "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/logging/__init__.py", line 1160, in emit\n'
        "    msg = self.format(record)\n"
        '  File "/usr/lib/python3.12/logging/__init__.py", line 392, in getMessage\n'
        "    msg = msg % self.args\nTypeError: not all arguments converted during string formatting\n"
    )
    assert not diagnosed(text).findings


def test_a_heading_that_repeats_the_log_below_it_is_not_asked() -> None:
    own = (
        f'  File "{VLLM}/engine/arg_utils.py", line 951, in create_model_config\n    return ModelConfig(\n'
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Expecting value: line 1 column 1 (char 0) [type=value_error, input_type=ArgsKwargs]\n"
    )
    found = diagnosed(f"# [Bug]: ValidationError: 1 validation error for ModelConfig\n\n{own}").findings[0]
    assert found.title == "A JSON file of the model is empty or damaged"


def test_words_before_a_sentence_do_not_hide_it() -> None:
    title = "# [Bug]: Error in room 3: Received a RoomProcessorFast for argument image_processor, "
    found = diagnosed(f"{title}but a RoomProcessor was expected.\n").findings[0]
    assert found.title == "Received a RoomProcessorFast for argument image_processor"


def test_a_gguf_file_that_is_read_as_json_is_no_damaged_weight() -> None:
    said = "OSError: It looks like the config file at '/srv/m/m-7b.Q4_0.gguf' is not a valid JSON file.\n"
    assert diagnosed(said).findings[0].title == "This release takes the GGUF file for a configuration"


def test_a_printed_version_is_the_release() -> None:
    asked = 'python3 -c "import vllm; print(vllm.__version__)"\n0.3.3\n'
    refused = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'ray_workers_use_nsight'\n"
    assert diagnosed(asked + refused).findings[0].title.startswith("vLLM 0.3.3 has no --ray-workers-use-nsight")


def test_the_small_server_lacks_what_the_other_one_has() -> None:
    launch = "python -m vllm.entrypoints.api_server --model /srv/m --api-key rooms\n"
    found = diagnosed(f"vllm==0.3.3\n{launch}api_server.py: error: unrecognized arguments: --api-key\n").findings[0]
    assert found.changes[0].command == "python -m vllm.entrypoints.openai.api_server --model MODEL"


def test_marlins_own_tensors_are_no_part_of_a_checkpoint() -> None:
    launch = "vllm serve /srv/m --quantization gptq_marlin\n"
    said = "RuntimeError: Some weights are not initialized from checkpoints: {'model.layers.7.mlp.g_idx_sort'}\n"
    first = diagnosed(launch + said).findings[0].changes[0]
    assert (first.name, first.after) == ("quantization", "gptq")


def test_a_request_whose_exception_is_cut_off_failed_all_the_same() -> None:
    text = (
        "INFO 11-11 09:00:00 [async_llm.py:261] Added request cmpl-room-3.\n"
        'INFO:     ::1:40112 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        "ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/uvicorn/protocols/http/httptools_impl.py", line 401, in run_asgi\n'
        "    result = await app(  # type: ignore[func-returns-value]\n"
        '  File "/opt/v/lib/python3.12/site-packages/fastapi/applications.py", line 1054, in __call__\n'
    )
    assert diagnosed(text).findings[0].title == "Answering a request failed, and the exception is cut off"


def test_an_attention_kernel_that_does_not_compile_for_an_amd_card_has_another() -> None:
    said = "error: triton_attention.py:9:0: stack frame size (150004) exceeds limit (131056) in function 'attn_fwd'\n"
    found = diagnosed(f"INFO 03-14 09:05:00 selector.py:120] Using ROCmFlashAttention backend.\n{said}").findings[0]
    assert [change.name for change in found.changes][:1] == ["VLLM_USE_TRITON_FLASH_ATTN"]
