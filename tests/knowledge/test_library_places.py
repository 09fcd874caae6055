"""What a place in a library does for vLLM: each row of library_places.json is told by its own files, by no other's."""

import pytest

from vllm_doctor.knowledge.layers import layers
from vllm_doctor.knowledge.library_places import library_place_of, library_places
from vllm_doctor.records import excerpt

SITE = "/opt/v/lib/python3.12/site-packages"
READ = [
    ("torch/nn/modules/module.py", "load_state_dict", "RuntimeError", False, "tensors-of-checkpoint"),
    ("transformers/models/detr/image_processing_detr.py", "resize", "ValueError", True, "preprocessor-sizes"),
    ("transformers/video_utils.py", "load_video", "ValueError", True, "item-of-a-request"),
    ("mistral_common/protocol/instruct/validator.py", "f", "InvalidToolException", False, "mistral-message"),
    ("mistral_common/tokens/tokenizers/instruct.py", "encode_x", "TokenizerException", False, "mistral-encoding"),
    ("mistral_common/tokens/tokenizers/utils.py", "list_local_files", "FileNotFoundError", False, "mistral-download"),
    ("xgrammar/builtin_structural_tag.py", "normalize_tool_choice", "ValueError", True, "tools-of-a-call"),
    ("torch/_dynamo/eval_frame.py", "check_if_dynamo_supported", "RuntimeError", False, "python-of-compiler"),
    ("torch/utils/cpp_extension.py", "verify_ninja_availability", "RuntimeError", False, "build-of-extensions"),
    ("triton/backends/nvidia/compiler.py", "make_cubin", "RuntimeError", False, "ptxas-of-triton"),
    ("torch/distributed/elastic/rendezvous/utils.py", "f", "ValueError", False, "torchrun"),
    ("torch/distributed/_symmetric_memory/__init__.py", "f", "RuntimeError", False, "symmetric-memory"),
    ("torch/distributed/device_mesh.py", "init_device_mesh", "RuntimeError", False, "ranks-of-torch"),
    ("torch/_inductor/runtime/triton_heuristics.py", "precompile", "RuntimeError", False, "compiled-model"),
    ("ray/_private/resource_spec.py", "resolve", "ValueError", False, "ray-memory"),
    ("ray/_private/services.py", "wait_for_node", "TimeoutError", False, "ray-connection"),
    ("ray/_private/parameter.py", "_check_usage", "ValueError", False, "ray-start"),
    ("ray/_private/ray_option_utils.py", "f", "ValueError", False, "ray-placement"),
    ("ray/experimental/channel/nccl_group.py", "get_rank", "ValueError", False, "ray-channel"),
    ("tensorizer/stream_io.py", "_infer_credentials", "ValueError", False, "tensorizer-credentials"),
    ("modelscope/hub/api.py", "get_model", "NotExistError", False, "modelscope-hub"),
    ("transformers/utils/quantization_config.py", "post_init", "TypeError", False, "quantization-of-transformers"),
    ("transformers/utils/backbone_utils.py", "f", "ValueError", False, "config-of-backbone"),
    ("huggingface_hub/dataclasses.py", "_validate_dict", "TypeError", False, "config-of-fields"),
    ("transformers/models/auto/processing_auto.py", "from_pretrained", "ValueError", False, "processor-files"),
    ("transformers/tokenization_utils.py", "_add_tokens", "TypeError", False, "tokenizer-settings"),
    ("transformers/modeling_utils.py", "to", "ValueError", False, "transformers-loading"),
    ("huggingface_hub/utils/_hf_uris.py", "parse_hf_uri", "HfUriError", False, "hub-address"),
    ("huggingface_hub/utils/_cache_manager.py", "scan", "CorruptedCacheException", False, "hub-cache"),
    ("huggingface_hub/_login.py", "_set_active_token", "ValueError", False, "hub-login"),
    ("huggingface_hub/file_download.py", "http_get", "ValueError", False, "hub-download"),
    ("bitsandbytes/cextension.py", "get_native_library", "RuntimeError", False, "bitsandbytes-library"),
    ("fastsafetensors/copier/gds.py", "f", "Exception", False, "fastsafetensors-gpu"),
    ("flashinfer/jit/core.py", "build", "RuntimeError", False, "flashinfer-build"),
    ("flashinfer/comm/trtllm_mnnvl_ar.py", "f", "ValueError", False, "flashinfer-ranks"),
    ("xgrammar/grammar.py", "f", "ValueError", True, "grammar-of-xgrammar"),
    ("xgrammar/matcher.py", "apply_token_bitmask_inplace", "ValueError", True, "mask-of-xgrammar"),
    ("transformers/generation/configuration_utils.py", "validate", "ValueError", False, "generation-config"),
    ("transformers/models/bert/configuration_bert.py", "__init__", "ValueError", False, "model-config-file"),
    ("transformers/models/llava_next/modeling_llava_next.py", "f", "TypeError", False, "model-config-of-code"),
    ("transformers/models/qwen2_vl/image_processing_qwen2_vl.py", "f", "ValueError", True, "request-items"),
    ("transformers/models/qwen2_vl/image_processing_qwen2_vl.py", "f", "ValueError", False, "model-preprocessor-file"),
    ("PIL/PngImagePlugin.py", "read", "SyntaxError", True, "request-items"),
    ("huggingface_hub/hf_file_system.py", "_raise_file_not_found", "FileNotFoundError", False, "hub-file-system"),
    ("torch/distributed/rendezvous.py", "_get_env_or_raise", "ValueError", False, "rendezvous-variables"),
    ("triton/runtime/cache.py", "put", "RuntimeError", False, "triton-cache"),
    ("ray/_private/runtime_env/pip.py", "_run", "RuntimeEnvSetupError", False, "ray-environment"),
    ("transformers/utils/hub.py", "cached_files", "OSError", False, "code-of-model"),
    ("torch/cuda/__init__.py", "get_device_properties", "AssertionError", False, "device-number"),
    ("torch/serialization.py", "load", "RuntimeError", False, "old-checkpoint"),
    ("torch/_dynamo/package.py", "initialize", "RuntimeError", False, "compiled-artifact"),
    ("torch/_inductor/cpp_builder.py", "get_cpp_compiler", "InductorError", False, "no-compiler"),
    ("triton/compiler/compiler.py", "make_backend", "RuntimeError", False, "triton-backends"),
    ("ray/util/placement_group.py", "check_placement_group_index", "ValueError", False, "ray-bundles"),
    ("ray/util/client/worker.py", "_server_init", "ConnectionAbortedError", False, "ray-client"),
    ("ray/dag/compiled_dag_node.py", "_execute_until", "RayCgraphCapacityExceeded", True, "ray-graph"),
    ("mistral_common/guidance/grammar_factory.py", "__init__", "ValueError", True, "mistral-grammar"),
    ("mistral_common/tokens/tokenizers/tekken.py", "get_x", "ValueError", True, "mistral-request"),
    ("mistral_common/tokens/tokenizers/mistral.py", "from_file", "TokenizerException", False, "mistral-tokenizer"),
    ("xgrammar/tokenizer_info.py", "from_huggingface", "ValueError", True, "vocabulary"),
    ("llguidance/_grammar_from.py", "grammar_from", "ValueError", True, "grammar-of-a-request"),
    ("lmcache/v1/storage_backend/connector/valkey_connector.py", "c", "RuntimeError", False, "lmcache-store"),
    ("lmcache/v1/config.py", "_from_file", "ValueError", False, "lmcache-config"),
    ("tensorizer/stream_io.py", "_enforce_scheme", "ValueError", False, "tensorizer"),
    ("runai_model_streamer/s3_utils/s3_utils.py", "gcs_pull_files", "ImportError", False, "runai-store"),
    ("gguf/gguf_reader.py", "__init__", "ValueError", False, "damaged-file"),
    ("bitsandbytes/functional.py", "from_dict", "ValueError", False, "bitsandbytes-state"),
    ("peft/config.py", "__post_init__", "ValueError", True, "adapter-config"),
    ("torchcodec/_core/ops.py", "load_torchcodec_shared_libraries", "RuntimeError", False, "torchcodec-library"),
    ("torchcodec/decoders/_video_decoder.py", "get_frames_at", "ValueError", True, "request-items"),
    ("torchvision/extension.py", "_check_cuda_version", "RuntimeError", False, "torchvision-build"),
    ("mooncake/mooncake_config.py", "from_file", "ValueError", False, "mooncake-config"),
    ("vllm_ascend/ascend_config.py", "_validate_config", "ValueError", False, "ascend-configuration"),
    ("vllm_ascend/quantization/utils.py", "get_quant_method", "NotImplementedError", False, "ascend-code"),
    ("tpu_inference/runner/tpu_runner.py", "load_model", "ValueError", False, "tpu-code"),
    ("humming/schema/base.py", "from_config", "ValueError", False, "humming-schema"),
    ("tvm_ffi/cpp/extension.py", "build", "RuntimeError", False, "foreign-functions"),
    ("xformers/ops/fmha/dispatch.py", "_run_priority_list", "NotImplementedError", False, "xformers-kernels"),
    ("openai/_client.py", "__init__", "OpenAIError", True, "openai-client"),
    ("vllm_gguf_plugin/loader.py", "load_weights", "ValueError", False, "gguf-plugin"),
    ("instanttensor/_impl.py", "get_tensor", "ValueError", False, "order-of-tensors"),
    ("starlette/formparsers.py", "on_headers_finished", "MultiPartException", True, "form-of-a-request"),
]


@pytest.mark.parametrize(("file", "function", "kind", "serving", "place"), READ, ids=str)
def test_a_file_of_a_library_has_one_purpose(file: str, function: str, kind: str, serving: bool, place: str) -> None:
    found = library_place_of(f"{SITE}/{file}", function, kind, serving=serving)
    assert found is not None
    assert found.id == place


@pytest.mark.parametrize(
    ("file", "function", "kind", "serving"),
    [
        ("vllm/transformers_utils/config.py", "get_config", "ValueError", False),
        ("transformers/models/llama/tokenization_llama.py", "__call__", "ValueError", False),
        ("torch/nn/modules/module.py", "_call_impl", "RuntimeError", True),
        ("ray/_private/worker.py", "get", "ValueError", False),
        ("torch/serialization.py", "load", "RuntimeError", True),
    ],
)
def test_a_file_that_nobody_has_read_has_none(file: str, function: str, kind: str, serving: bool) -> None:
    assert library_place_of(f"{SITE}/{file}", function, kind, serving=serving) is None


def test_every_place_says_what_it_reads_and_what_to_change() -> None:
    parts = {part.id for part in layers()} | {""}
    assert len({one.id for one in library_places()}) == len(library_places()) == 93
    for one in library_places():
        assert one.answers
        assert one.layer in parts
        assert 0 < len(one.title) <= excerpt.TITLE


def test_where_nobody_knows_whether_the_server_was_up_only_one_purpose_tells() -> None:
    """A line quoted alone: the tokenizer's file is read at a start, and its words are asked for by requests."""
    tekken = (f"{SITE}/mistral_common/tokens/tokenizers/tekken.py", "get_special_token", "ValueError")
    assert library_place_of(*tekken, serving=None) is None
    config = library_place_of(f"{SITE}/transformers/configuration_utils.py", "__init__", "ValueError", serving=None)
    assert config is not None
    assert config.id == "model-config-file"
