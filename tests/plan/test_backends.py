"""The attention backends of a release are asked what they take: of the launch's cache, blocks, heads and ranks."""

import json

import pytest

from tests.plan.models import DEEPSEEK_LIKE, DSA_LIKE, GPT_OSS_20B, LLAMA_8B
from vllm_doctor.plan.question.planner import Question, planner

GEMMA_3 = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {**LLAMA_8B, "model_type": "gemma3_text", "head_dim": 256, "sliding_window": 1024},
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
    },
}


@pytest.fixture
def refused(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(flags, *, config=LLAMA_8B, gpu="A100", version="0.33.0"):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        said = flags.split()
        first = [word for word in said if word.startswith("VLLM_")]
        words = (*first, "vllm", "serve", "m", "--max-model-len", "4096", *said[len(first) :])
        planned = planner(Question(words, gpu, 16, None, version, str(file)))
        return [f"{r.flag}: {r.needed}" for r in planned.predict().settings.refusals]

    return asked


@pytest.mark.parametrize(
    ("flags", "gpu", "version", "needed"),
    [
        # 0.14.1 chooses FlashAttention first, and then has no block of 8 tokens for it
        ("--block-size 8", "A100", "0.14.1", "--block-size: a multiple of 16: no backend of 0.14.1 takes it"),
        ("--block-size 32", "A100", "0.14.1", None),
        # FlexAttention takes any block from 0.18, which chooses by it, to 0.20
        ("--block-size 8", "A100", "0.18.0", None),
        ("--block-size 8", "A100", "0.24.0", "--block-size: a multiple of 16: no backend of 0.24.0 takes it"),
        ("--block-size 8", "A100", "0.33.0", "--block-size: a multiple of 16: no backend of 0.33.0 takes it"),
        # one composed of two takes nothing that neither of them takes
        ("--block-size 8", "H100", "0.33.0", "--block-size: a multiple of 16: no backend of 0.33.0 takes it"),
        ("--kv-cache-dtype fp8_inc", "A100", "0.24.0", "--kv-cache-dtype: auto: no backend of 0.24.0 takes it"),
        ("--kv-cache-dtype int8_per_token_head", "A100", "0.24.0", None),
        (
            "--kv-cache-dtype int8_per_token_head --attention-backend FLASHINFER",
            "A100",
            "0.24.0",
            "--kv-cache-dtype: auto, or another backend: FLASHINFER does not take it",
        ),
        (
            "--dtype float32 --attention-backend FLASH_ATTN",
            "A100",
            "0.33.0",
            "--dtype: bfloat16 or float16, or another backend: FLASH_ATTN does not take it",
        ),
        ("--dtype float32", "A100", "0.33.0", None),
        # Triton's kernels return no logarithms of sums, which ranks that share a context join their parts by
        (
            "--tensor-parallel-size 16 --decode-context-parallel-size 2 --attention-backend TRITON_ATTN",
            "A100",
            "0.28.0",
            "--decode-context-parallel-size: 1, or another backend: TRITON_ATTN does not take it",
        ),
        ("--tensor-parallel-size 16 --decode-context-parallel-size 2", "A100", "0.28.0", None),
        (
            "--tensor-parallel-size 16 --decode-context-parallel-size 2",
            "T4",
            "0.28.0",
            "--decode-context-parallel-size: 1: no backend of 0.28.0 takes it with this model on this card",
        ),
        (
            "--prefill-context-parallel-size 2",
            "H200",
            "0.24.0",
            "--prefill-context-parallel-size: 1: no backend of 0.24.0 takes it",
        ),
    ],
)
def test_what_no_backend_takes_is_refused(refused, flags, gpu, version, needed):
    told = refused(flags, gpu=gpu, version=version)
    assert len(told) == (needed is not None)
    assert all(one.startswith(str(needed)) for one in told)


@pytest.mark.parametrize(("backend", "taken"), [("FLASHINFER", False), ("TRITON_ATTN", True)])
def test_images_that_are_seen_both_ways_are_asked_of_the_backend_alone(refused, backend, taken):
    told = refused(f"--attention-backend {backend}", config=GEMMA_3, version="0.19.1")
    assert bool(told) is not taken
    assert all("images that are seen both ways" in one for one in told)


def test_sinks_are_asked_of_every_backend(refused):
    told = refused("--attention-backend TURBOQUANT --kv-cache-dtype turboquant_k8v4", config=GPT_OSS_20B)
    assert any("attention sinks" in one for one in told)


WIDE = {**LLAMA_8B, "hidden_size": 32 * 80, "head_dim": 80}


@pytest.mark.parametrize(
    ("flags", "config", "gpu", "version", "told"),
    [
        ("--block-size 8", LLAMA_8B, "A100", "0.9.2", "--block-size: a multiple of 16"),
        ("--block-size 8", LLAMA_8B, "A100", "0.11.0", "--block-size: a multiple of 16"),
        ("--block-size 8", LLAMA_8B, "T4", "0.9.2", None),  # on Triton's kernels
        ("--block-size 8", LLAMA_8B, "A100", "0.6.3", None),  # the first engine
        ("", WIDE, "A100", "0.8.5", "VLLM_USE_V1: 0, or vLLM 0.10.0"),
        ("", WIDE, "A100", "0.10.0", None),  # which takes another backend
        ("VLLM_USE_V1=0", WIDE, "A100", "0.8.5", None),
    ],
)
def test_before_backends_answered_flash_attention_is_taken_unasked(  # noqa: PLR0917
    refused, flags, config, gpu, version, told
):
    found = refused(f"{flags} --dtype half".strip(), config=config, gpu=gpu, version=version)
    assert len(found) == (told is not None)
    assert all(one.startswith(str(told)) for one in found)


EXPERTS = {
    **LLAMA_8B,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1024,
}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
MXFP4 = {"quant_method": "mxfp4"}


def packed(bits, group, **more):
    """A checkpoint of compressed-tensors whose weights are integers."""
    kept = {"num_bits": bits, "type": "int", "symmetric": True, "group_size": group}
    weights = {**kept, "strategy": "channel" if group is None else "group"}
    one = {"targets": ["Linear"], "weights": weights, **more}
    fmt = "int-quantized" if more else "pack-quantized"
    return {"quant_method": "compressed-tensors", "format": fmt, "config_groups": {"group_0": one}}


INT4 = packed(4, 128)
INT8 = packed(
    8, None, input_activations={"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
)


@pytest.mark.parametrize(
    ("quantized", "asked", "version", "taken"),
    [
        (FP8, "deep_gemm", "0.33.0", True),
        (FP8, "flashinfer-cutlass", "0.33.0", True),  # as vLLM reads it
        (FP8, "FLASHINFER_CUTEDSL", "0.33.0", False),
        (NVFP4, "flashinfer_cutlass", "0.33.0", True),
        (NVFP4, "triton", "0.33.0", False),
        (None, "triton", "0.33.0", True),
        (None, "cutlass", "0.33.0", False),
        (None, "marlin", "0.33.0", True),  # for experts that are packed: the others are left to the release
        (None, "marlin", "0.20.2", False),
        (FP8, "auto", "0.33.0", True),
        (MXFP4, "triton_unfused", "0.33.0", True),
        (MXFP4, "cutlass", "0.33.0", False),
        (INT4, "humming", "0.33.0", True),
        (INT4, "cutlass", "0.33.0", False),
        (INT4, "cutlass", "0.22.1", True),  # whose choice does not ask for it
        (INT8, "triton", "0.33.0", True),
        (INT8, "marlin", "0.33.0", False),
    ],
)
def test_kernels_of_experts_are_asked_of_the_experts_format(refused, quantized, asked, version, taken):
    config = {**EXPERTS, **({"quantization_config": quantized} if quantized else {})}
    told = refused(f"--moe-backend {asked}", config=config, gpu="H200", version=version)
    assert [one.partition(":")[0] for one in told] == ([] if taken else ["--moe-backend"])


def test_a_model_without_experts_is_not_asked_for_theirs(refused):
    assert refused("--moe-backend cutlass") == []


@pytest.mark.parametrize(
    ("version", "env", "told"),
    [
        ("0.7.3", "VLLM_USE_V1=1", True),
        ("0.7.3", "VLLM_USE_V1=1 VLLM_MLA_DISABLE=1", False),
        ("0.7.3", "", False),
        ("0.8.0", "VLLM_USE_V1=1", False),
    ],
)
def test_the_second_engine_has_no_kernel_of_latents_before_0_8(refused, version, env, told):
    found = refused(f"{env} --dtype half", config=DEEPSEEK_LIKE, gpu="H100", version=version)
    assert any(one.startswith("VLLM_USE_V1: 0") for one in found) is told


@pytest.mark.parametrize(
    ("version", "env", "told"),
    [
        ("0.8.5", "", True),
        ("0.8.5", "VLLM_USE_V1=0", True),
        ("0.8.5", "VLLM_USE_V1=0 VLLM_MLA_DISABLE=1", False),
        ("0.10.1", "", True),
        ("0.10.2", "", False),
    ],
)
def test_no_kernel_of_latents_takes_8_bits_before_0_10_2(refused, version, env, told):
    found = refused(f"{env} --kv-cache-dtype fp8", config=DEEPSEEK_LIKE, gpu="H100", version=version)
    assert any(one.startswith("--kv-cache-dtype: auto, or vLLM 0.10.2") for one in found) is told


@pytest.mark.parametrize(
    ("gpu", "version", "env", "told"),
    [
        ("T4", "0.7.3", (), True),
        ("T4", "0.7.3", ("VLLM_MLA_DISABLE=1",), False),
        ("T4", "0.7.0", (), False),  # caches each head's keys and values
        ("A100", "0.7.3", (), False),
    ],
)
def test_the_first_engine_fills_latents_by_flash_attention(refused, gpu, version, env, told):
    words = " ".join((*env, "--dtype half"))
    found = refused(words, config=DEEPSEEK_LIKE, gpu=gpu, version=version)
    assert any(one.startswith("--gpu") for one in found) is told


@pytest.mark.parametrize(
    ("cache", "gpu", "version", "told"),
    [
        ("fp8_e4m3", "H200", "0.17.1", None),  # laid out anew before a backend is chosen
        ("fp8_e4m3", "H200", "0.23.0", "--kv-cache-dtype: auto: no backend of 0.23.0 takes it"),
        ("fp8", "H200", "0.23.0", None),
        ("bfloat16", "H200", "0.23.0", None),
        ("fp8_e4m3", "B200", "0.23.0", None),  # by FlashInfer's
        ("fp8_e5m2", "B200", "0.33.0", "--kv-cache-dtype: auto: no backend of 0.33.0 takes it"),
    ],
)
def test_sparse_latents_ask_for_a_cache_by_the_name_that_is_given(refused, cache, gpu, version, told):
    found = refused(f"--tensor-parallel-size 8 --kv-cache-dtype {cache}", config=DSA_LIKE, gpu=gpu, version=version)
    assert len(found) == (told is not None)
    assert all(one.startswith(str(told)) for one in found)


CAPPED = {
    **LLAMA_8B,
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "head_dim": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
}
WINDOWED = {**LLAMA_8B, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 2048}


@pytest.mark.parametrize(
    ("flags", "config", "version", "told"),
    [
        ("VLLM_ATTENTION_BACKEND=XFORMERS", CAPPED, "0.6.3", "VLLM_ATTENTION_BACKEND: another backend, or none: in "),
        ("VLLM_ATTENTION_BACKEND=XFORMERS", CAPPED, "0.7.3", None),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", WINDOWED, "0.6.3", "VLLM_ATTENTION_BACKEND: another backend, or none: "),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", LLAMA_8B, "0.6.3", None),
        ("", WINDOWED, "0.6.3", None),
        ("VLLM_ATTENTION_BACKEND=FLEX_ATTENTION", CAPPED, "0.10.2", "--attention-backend: another backend, or none: "),
        ("VLLM_ATTENTION_BACKEND=FLASH_ATTN", WINDOWED, "0.6.3", None),  # which falls back to xFormers by itself
        ("VLLM_ATTENTION_BACKEND=TRITON_ATTN_VLLM_V1", WIDE, "0.9.2", "--attention-backend: another backend, "),
        ("VLLM_ATTENTION_BACKEND=TRITON_ATTN", WIDE, "0.11.0", None),
    ],
)
def test_a_backend_that_is_asked_for_is_asked_what_its_class_refuses_where_it_is_made(
    refused, flags, config, version, told
):
    found = refused(f"{flags} --dtype bfloat16".strip(), config=config, version=version)
    assert len(found) == (told is not None), found
    assert all(one.startswith(str(told)) for one in found)
