"""A refusal whose sentence names nothing to change: vLLM's own test above its `raise` does."""

import pytest

from vllm_doctor.knowledge.guards import Decider, guard
from vllm_doctor.knowledge.versions import parse_version
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"
ENGINE = "(EngineCore pid=7) ERROR 11-29 08:00:00 [core.py:9] "
OTHER_CONFIG = (
    "this release's code of the model refuses `{key}` of config.json: it must be {wanted}; "
    "take the model's own config.json, unchanged, or a checkpoint with other values"
)
SERVER = "(APIServer pid=5) "


def first(
    file: str, function: str, said: str, given: str = "", *, kind: str = "ValueError", up: bool = False
) -> Finding:
    """The answer to a log that ends with an exception, at the start or in a request of a server that is up."""
    where = [f'  File "{SITE}/{file}", line 30, in {function}', f"    raise {kind}("]
    before = [
        f'  File "{SITE}/vllm/entrypoints/openai/chat_completion/serving.py", line 3, in create_chat_completion',
        "    self.check(r)",
    ]
    calls = ["Traceback (most recent call last):", *(before if up else ()), *where, f"{kind}: {said}"]
    lines = [
        f"{SERVER}INFO 11-29 08:00:00 [utils.py:1] vLLM API server version 0.33.0",
        f"{SERVER}INFO 11-29 08:00:00 [utils.py:2] non-default args: {{'model': 'acme/chat'{given}}}",
        *([f"{SERVER}INFO:     Application startup complete."] if up else ()),
        *(f"{SERVER}ERROR 11-29 08:00:00 [serving.py:2] {c}" if up else f"{ENGINE}{c}" for c in calls),
        *([f'{SERVER}INFO:     10.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'] if up else ()),
    ]
    return diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]


def said_of(found: Finding) -> list[tuple[str, str, object, str]]:
    return [(c.name, c.direction.value, c.after, c.why) for c in found.changes]


def test_a_key_of_the_models_configuration() -> None:
    found = first(
        "vllm/models/minimax_m3/amd/model.py", "__init__", "Unsupported activation: silu. Only swigluoai is supported."
    )
    assert said_of(found) == [
        (
            "model",
            "change",
            None,
            OTHER_CONFIG.format(key="hidden_act", wanted="swigluoai"),
        )
    ]


def test_a_setting_of_a_connector() -> None:
    file = "vllm/distributed/kv_transfer/kv_connector/v1/simple_cpu_offload_connector.py"
    given = ", 'kv_transfer_config': {'kv_connector': 'SimpleCPUOffloadConnector', 'kv_role': 'kv_both'}"
    found = first(file, "__init__", "num_cpu_blocks must be a positive integer", given)
    assert said_of(found)[0] == (
        "kv-transfer-config",
        "change",
        None,
        "its extra setting `num_cpu_blocks`: it must be more than 0",
    )


def test_an_option_only_where_the_launch_gives_it() -> None:
    file, said = (
        "vllm/models/muse_spark/amd/muse_moe_runner.py",
        "MuseSpark1x A on ROCm currently requires DP1 and PCP1.",
    )
    given = first(file, "__init__", said, ", 'data_parallel_size': 4")
    assert ("data-parallel-size", "set", 1) in [row[:3] for row in said_of(given)]
    assert "data-parallel-size" not in [row[0] for row in said_of(first(file, "__init__", said))]


def test_the_one_word_that_a_key_may_be() -> None:
    file = "vllm/v1/worker/gpu/pcp_manager.py"
    assert said_of(first(file, "validate_config", "MRV2 PCP supports PIECEWISE CUDA graphs only."))[0] == (
        "compilation-config",
        "change",
        '{"cudagraph_mode": "PIECEWISE"}',
        "its `cudagraph_mode`: the message takes PIECEWISE alone",
    )


def of_unknown_launch(file: str, said: str, kind: str) -> list[tuple[str, str]]:
    """The changes for an exception in a log that shows nothing of the launch."""
    lines = ["Traceback (most recent call last):", f'  File "{SITE}/{file}", line 30, in made', f"    raise {kind}("]
    lines.append(f"{kind}: {said}")
    found = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]
    return [(one.name, one.direction.value) for one in found.changes]


def test_what_a_test_shows_of_a_launch_that_the_log_does_not_show() -> None:
    file = "vllm/distributed/kv_transfer/kv_connector/factory.py"
    assert of_unknown_launch(file, "Unsupported connector type: OwnConnector", "ValueError")[0] == (
        "kv-transfer-config",
        "change",
    )
    assert of_unknown_launch("vllm/distributed/utils.py", "Invalid partition string: 16-16", "ValueError")[0] == (
        "VLLM_PP_LAYER_PARTITION",
        "change",
    )
    # a state that a variable leads to is no value of it
    cuda = of_unknown_launch(
        "vllm/distributed/device_communicators/cuda_wrapper.py", "CUDART error: out of range", "RuntimeError"
    )
    assert "VLLM_CUDART_SO_PATH" not in [name for name, _ in cuda]


def test_what_alone_decides_is_named_where_the_launch_gives_it() -> None:
    file, said = "vllm/v1/attention/backends/triton_attn.py", "quantization is not supported for encoder attention"
    given = first(file, "_forward_encoder_attention", said, ", 'kv_cache_dtype': 'fp8'", kind="NotImplementedError")
    assert said_of(given)[0][:2] == ("kv-cache-dtype", "change")


def test_fields_of_a_request() -> None:
    found = first(
        "vllm/entrypoints/openai/chat_completion/protocol.py",
        "check_logprobs",
        "`logprob_token_ids` is not supported with beam search.",
        kind="VLLMValidationError",
        up=True,
    )
    assert [row[3] for row in said_of(found)] == [
        "the server works: its check is about `logprob_token_ids` and `use_beam_search` of the request"
    ]


@pytest.mark.parametrize(
    ("file", "function", "said", "title"),
    [
        ("vllm/entrypoints/mcp/tool_server.py", "get_tool", "Unknown tool s3cr3t",
         "A request is refused: Unknown tool …"),
        ("vllm/tool_parsers/utils.py", "get_json_schema_from_tools", "Tool 's3cr3t' has not been passed in `tools`.",
         "A request is refused: Tool '…' has not been passed in `tools`"),
    ],
)  # fmt: skip
def test_a_refused_request_is_named_by_what_vllm_itself_wrote(file: str, function: str, said: str, title: str) -> None:
    """And by nothing of what the client did."""
    found = first(file, function, said, up=True)
    assert found.title == title
    assert [change.name for change in found.changes] == ["client-input"]
    assert not any("s3cr3t" in one.excerpt for one in found.evidence)


def test_a_model_in_a_package_of_its_own_has_no_second_code() -> None:
    """Nor does a server that is up refuse a request with its code of the model: the request is what to change."""
    said = "The separate shared-expert fallback is unavailable."
    assert said_of(first("vllm/models/deepseek_v4/amd/model.py", "forward_modular", said, kind="RuntimeError")) == []
    other = first("vllm/model_executor/models/exaone.py", "__init__", "Unsupported activation: gelu")
    assert [row[:3] for row in said_of(other)] == [("model-impl", "set", "transformers")]
    asked = first("vllm/model_executor/models/glmasr.py", "get_replacement_glmasr", "Audio is too short", up=True)
    assert (asked.title, [row[0] for row in said_of(asked)]) == (
        "A request is refused: Audio is too short",
        ["client-input"],
    )


def test_tensors_that_a_models_code_refuses_are_the_checkpoints() -> None:
    found = first(
        "vllm/model_executor/models/step3p5_mtp.py",
        "load_weights",
        "Some parameters are not in the checkpoint",
        kind="RuntimeError",
    )
    assert [row[0] for row in said_of(found)] == ["model"]


def test_a_wait_that_ended_names_its_bound() -> None:
    """Where the release has a variable for it, its value has to grow."""
    said = "Timed out waiting for engine core processes to start. This is often caused by slow weight loading"
    whole = f"{said} for large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S). To increase the timeout"
    found = first("vllm/v1/engine/core_client.py", "__init__", whole, kind="TimeoutError")
    assert [row[:2] for row in said_of(found)][:1] == [("VLLM_ENGINE_READY_TIMEOUT_S", "raise")]


def test_how_a_checkpoint_is_quantized() -> None:
    said = "Found static activation scheme for checkpoint that was not serialized fp8."
    found = first("vllm/model_executor/layers/quantization/fp8.py", "create_weights", said)
    assert "package" not in {change.kind.value for change in found.changes}
    told = next(why for name, _, _, why in said_of(found) if name == "model")
    assert told.startswith("this release refuses how the checkpoint is quantized")


def test_a_key_deep_in_a_mapping() -> None:
    file = "vllm/v1/kv_offload/tiering/backpressure.py"
    given = ", 'kv_transfer_config': {'kv_connector': 'OffloadingConnector', 'kv_role': 'kv_both', "
    given += "'kv_connector_extra_config': {'tiers': [{'backpressure': {'failure_threshold': 0}}]}}"
    found = first(file, "__init__", "failure_threshold must be >= 1, got 0", given)
    assert said_of(found)[0][3].startswith("the message is about its `failure_threshold`")


def test_what_a_setting_is_when_the_sentence_quotes_it() -> None:
    given = ", 'kv_transfer_config': {'kv_connector': 'MineConnector', 'kv_role': 'kv_both'}"
    file = "vllm/v1/spec_decode/custom_class_proposer.py"
    drafts = ", 'speculative_config': {'method': 'custom_class', 'model': 'mine.Drafts', 'num_speculative_tokens': 2}"
    said = "Failed to instantiate custom proposer class 'mine.Drafts': no such argument. The class constructor must"
    found = first(file, "create_custom_proposer", f"{said} accept VllmConfig as argument.", drafts + given)
    assert said_of(found)[0][:2] == ("speculative-config", "change")


@pytest.mark.parametrize(
    ("said", "title"),
    [
        (
            "When using `tool_choice`, `tools` must be set.",
            "A request is refused: When using `tool_choice`, `tools` must be set",
        ),
        ("Nothing that vLLM ever wrote of s3cr3t", "A request failed: RequestValidationError: [hidden]"),
    ],
)
def test_what_fastapi_refuses_for_vllm(said: str, title: str) -> None:
    """The sentence is vLLM's own, in a list that quotes the whole request."""
    quoted = f"[{{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, {said}', 'input': {{'a': 's3cr3t'}}}}]"
    found = first("fastapi/routing.py", "app", quoted, kind="fastapi.exceptions.RequestValidationError", up=True)
    assert found.title == title
    assert [change.name for change in found.changes] == ["client-input"]
    assert not any("s3cr3t" in one.excerpt for one in found.evidence)


def test_a_request_that_the_engines_front_refuses() -> None:
    file = "vllm/v1/engine/output_processor.py"
    found = first(file, "add_request", "Request id s3cr3t already running.", up=True)
    assert found.title == "A request is refused: Request id … already running"
    assert [change.name for change in found.changes] == ["client-input"]


def test_a_text_of_a_mapping_that_the_sentence_quotes() -> None:
    """It is the value that was refused; a common word in it, or a part of a longer one, is none."""
    given = ", 'kv_events_config': {'publisher': 'zmq', 'endpoint': '5557', 'topic': 'path'}"
    said = said_of(first("vllm/utils/network_utils.py", "split_zmq_path", "Invalid zmq path: 5557", given))
    assert said[0][0] == "kv-events-config"
    assert said[0][3].startswith("the message quotes its `endpoint`")
    other = said_of(first("vllm/utils/network_utils.py", "split_zmq_path", "Invalid zmq path: 55571", given))
    assert "kv-events-config" not in [row[0] for row in other]


def test_an_older_release_that_does_not_know_a_value_of_the_configuration() -> None:
    lines = [
        "INFO 03-14 09:00:00 api_server.py:151] vLLM API server version 0.4.1",
        "Traceback (most recent call last):",
        f'  File "{SITE}/vllm/model_executor/layers/rotary_embedding.py", line 570, in get_rope',
        '    raise ValueError(f"Unknown RoPE scaling type {scaling_type}")',
        "ValueError: Unknown RoPE scaling type spiral",
    ]
    found = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]
    assert [(c.name, c.direction.value) for c in found.changes] == [("model", "change"), ("vllm-version", "upgrade")]


def test_a_key_that_has_an_option_of_its_own_name() -> None:
    said = "Kimi K3 MegaMoE currently requires one expert group."
    given = ", 'moe_backend': 'deep_gemm_mega_moe'"
    found = first("vllm/models/kimi_k3/nvidia/model.py", "__init__", said, given, kind="NotImplementedError")
    assert [(c.name, c.direction.value) for c in found.changes] == [("moe-backend", "change")]
    assert found.changes[0].why.endswith("it must be another than deep_gemm_mega_moe")


def test_what_a_class_of_the_configuration_is_made_with() -> None:
    """Of a release that was read with less, what the newest reader saw under the same words holds."""
    file = "vllm/transformers_utils/configs/bailing_moe_v3_vl.py"
    said = "Bailing V3 VL layer_group_size must be positive, got 0"
    wanted = OTHER_CONFIG.format(key="layer_group_size", wanted="more than 0")
    assert said_of(first(file, "_build_layer_types", said)) == [("model", "change", None, wanted)]
    assert guard(f"{SITE}/{file}", said, parse_version("0.31.0")) == guard(f"{SITE}/{file}", said, None)


def _last(file: str, function: str, code: str, said: str, *above: str) -> Finding:
    """The answer to a log of an engine that ends with an exception at a line of code."""
    calls = [
        "Traceback (most recent call last):",
        f'  File "{SITE}/{file}", line 9, in {function}',
        f"    {code}",
        said,
    ]
    return diagnose(
        Snapshot(taken_at="", log=Known(log_of_lines([*above, *(f"{ENGINE}{c}" for c in calls)], "log"), "log"))
    ).findings[0]


def test_an_assertion_without_words_is_known_by_its_line() -> None:
    args = "{'model': 'acme/chat', 'tensor_parallel_size': 3}"
    above = (f"{SERVER}INFO 11-29 08:00:00 [utils.py:2] non-default args: {args}",)
    file = "vllm/model_executor/models/mixtral.py"
    found = _last(file, "__init__", "assert self.total_num_heads % tp_size == 0", "AssertionError", *above)
    assert found.changes[0].name == "tensor-parallel-size"
    known = guard(f"{SITE}/{file}", "assert self.total_num_heads % tp_size == 0", None)
    assert known is not None
    assert known.by == (Decider("model", "num_attention_heads"), Decider("option", "tensor-parallel-size"))
    assert guard(f"{SITE}/{file}", "assert self.total_num_heads % tp_size == 0 or self.spare", None) is None


def test_a_variable_of_the_command_above_the_log_that_the_sentence_quotes() -> None:
    above = (
        "$ VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve acme/vl",
        "INFO 05-01 08:00:00 [api_server.py:1] vLLM API server version 0.8.5",
        "INFO 05-01 08:00:00 [api_server.py:2] args: Namespace(subparser='serve', model='acme/vl')",
    )
    file, code = "vllm/model_executor/models/qwen2_5_vl.py", "raise RuntimeError("
    said = "RuntimeError: Qwen2.5-VL does not support _Backend.FLASHINFER backend now."
    found = _last(file, "__init__", code, said, *above)
    assert (found.changes[0].name, found.changes[0].direction.value) == ("VLLM_ATTENTION_BACKEND", "change")


def test_an_attention_backend_that_refuses_by_itself_is_left_to_vllm() -> None:
    """Sparse attention has no other kernels of its kind to name."""
    said = "FlashAttnMLASparseImpl does not support alibi, sliding window, or logits soft cap."
    file = "vllm/v1/attention/backends/mla/flashattn_mla_sparse.py"
    given = ", 'attention_backend': 'FLASH_ATTN_MLA_SPARSE'"
    found = first(file, "__init__", said, given, kind="NotImplementedError")
    assert [(c.name, c.direction.value) for c in found.changes] == [("attention-backend", "remove")]


def test_a_request_that_the_server_answers_as_wrong_is_the_clients() -> None:
    """A class of its own and a file of a model are no part that the doctor knows to judge requests: 400 says it."""
    file = "vllm/entrypoints/openai/decisions/question_types.py"
    said = "question ids must be non-empty"
    kind = "vllm.entrypoints.openai.decisions.question_types.StructuredDecisionError"
    found = first(file, "build_question", said, kind=kind, up=True)
    assert (found.code, [change.name for change in found.changes]) == ("VD529", ["client-input"])


def test_what_the_class_of_the_launchs_arguments_tests_is_an_option() -> None:
    said = "--kda-prefill-backend=flashkda is only available on CUDA."
    found = first("vllm/engine/arg_utils.py", "create_engine_config", said, ", 'kda_prefill_backend': 'flashkda'")
    assert said_of(found)[0] == (
        "kda-prefill-backend",
        "change",
        None,
        "vLLM's own check above the message asks for it: it must be another than flashkda",
    )


def test_a_value_that_is_given_is_never_asked_to_be_on() -> None:
    """The test is of what was made of it."""
    said = "Selected backend ROCM_AITER_FA is not valid for this configuration. Reason: ['no such card']"
    found = first("vllm/platforms/rocm.py", "get_attn_backend_cls", said, ", 'attention_backend': 'ROCM_AITER_FA'")
    change = next(change for change in found.changes if change.name == "attention-backend")
    assert (change.direction.value, change.why) == ("change", "vLLM's own check above the message asks for it")


def test_of_the_values_that_are_taken_an_empty_one_is_not_named() -> None:
    given = ", 'compilation_config': {'mode': 3, 'backend': 'openxla'}"
    said = "Invalid backend for piecewise compilation: openxla"
    found = first("vllm/config/compilation.py", "__post_init__", said, given)
    assert [row[3] for row in said_of(found)] == ["its `backend`: it must be one of eager, inductor"]
