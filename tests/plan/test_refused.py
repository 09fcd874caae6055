"""What a release refuses of options alone or with the model: each with a launch beside it that differs in one thing and
is taken. And what it takes that looks as if it would not."""

import pytest

from tests.plan.models import DEEPSEEK_LIKE, DSA_LIKE, GEMMA3_LIKE, LLAMA_8B, arch
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.prediction.predict import predict
from vllm_doctor.plan.support import judge

EXPERTS = {**LLAMA_8B, "model_type": "qwen3_moe", "num_experts": 64, "num_experts_per_tok": 8}
AWQ = {**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
ORDERED = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}
GPTQ = {**LLAMA_8B, "quantization_config": ORDERED}


def settings(config, flags, version="0.33.0", card="H100", *, env=None):
    v, a, gpu = as_version(version), arch(config), find(card)
    words = [*(f"{name}={value}" for name, value in (env or {}).items()), "vllm", "serve", "m", *flags.split()]
    s = resolve(parse_launch(words, v), v, a, gpu, gpu.total_gib, 16)
    return a, s, gpu


def refused(config, flags, version="0.33.0", card="H100"):
    a, s, gpu = settings(config, flags, version, card)
    return [r.flag for r in (*s.refusals, *judge(a, s, gpu).refusals)]


def of_the_launch(config, flags, version="0.33.0", env=None):
    """What the launch itself is refused for, whatever the card."""
    _, s, _ = settings(config, flags, version, env=env)
    return [r.flag for r in s.refusals]


@pytest.mark.parametrize(
    ("config", "flags", "flag", "taken"),
    [
        (LLAMA_8B, "--enable-expert-parallel", "--enable-expert-parallel", ""),
        (LLAMA_8B, "-dp 2 --data-parallel-size-local 4", "--data-parallel-size-local", "-dp 2 -dpl 1"),
        (EXPERTS, "-tp 4 --enable-eplb", "--enable-eplb", "-tp 4 --enable-eplb --enable-expert-parallel"),
        (EXPERTS, "--enable-eplb --enable-expert-parallel", "--enable-eplb", "--enable-expert-parallel"),
        (LLAMA_8B, "-tp 8 -dcp 2", "--decode-context-parallel-size", "-tp 16 -dcp 2"),
        (DEEPSEEK_LIKE, "-tp 8 -dcp 3", "--decode-context-parallel-size", "-tp 8 -dcp 8"),
        (AWQ, "--quantization gptq_marlin", "--quantization", "--quantization awq_marlin"),
        (
            LLAMA_8B,
            "--quantization fbgemm_fp8",
            "--quantization",
            "--quantization fbgemm_fp8 --allow-deprecated-quantization",
        ),
        (
            LLAMA_8B,
            "--mamba-block-size 64 --no-enable-prefix-caching",
            "--mamba-block-size",
            "--mamba-block-size 64 --enable-prefix-caching",
        ),
        (
            LLAMA_8B,
            "--max-model-len 8192 --long-prefill-token-threshold 9000",
            "--long-prefill-token-threshold",
            "--max-model-len 8192 --long-prefill-token-threshold 8192",
        ),
        (LLAMA_8B, "--kv-cache-dtype fp8_ds_mla", "--kv-cache-dtype", "--kv-cache-dtype fp8"),
        (DEEPSEEK_LIKE, "-tp 8 --kv-cache-dtype nvfp4", "--kv-cache-dtype", "-tp 8 --kv-cache-dtype fp8"),
        (
            LLAMA_8B,
            '--kv-transfer-config {"kv_connector":"OffloadingConnector"}',
            "--kv-transfer-config",
            '--kv-transfer-config {"kv_connector":"OffloadingConnector","kv_role":"kv_both"}',
        ),
        (
            LLAMA_8B,
            "--cudagraph-capture-sizes 1,2,128 --max-cudagraph-capture-size 64",
            "--max-cudagraph-capture-size",
            "--cudagraph-capture-sizes 1,2,64 --max-cudagraph-capture-size 64",
        ),
        (
            LLAMA_8B,
            "--enable-lora --max-loras 4 --max-cpu-loras 2",
            "--max-cpu-loras",
            "--enable-lora --max-loras 4 --max-cpu-loras 4",
        ),
        (LLAMA_8B, "--attention-backend FLASHMLA", "--attention-backend", "--attention-backend FLASH_ATTN"),
        (DEEPSEEK_LIKE, "-tp 8 --attention-backend FLASH_ATTN", "--attention-backend", "-tp 8"),
        (DSA_LIKE, "-tp 8 --attention-backend FLASHMLA", "--attention-backend", "-tp 8"),
        (
            LLAMA_8B,
            "--attention-backend FLASH_ATTN --block-size 24",
            "--block-size",
            "--attention-backend FLASH_ATTN --block-size 32",
        ),
        (GEMMA3_LIKE, "--dtype float16", "--dtype", "--dtype bfloat16"),
    ],
)
def test_what_ends_a_start_is_foreseen_and_what_differs_in_one_thing_is_taken(config, flags, flag, taken):
    assert flag in refused(config, flags)
    assert refused(config, taken) == []


def test_an_fp8_cache_of_flash_attention_needs_hopper_or_newer():
    asked = "--attention-backend FLASH_ATTN --kv-cache-dtype fp8"
    assert refused(LLAMA_8B, asked, card="A100-SXM4-80GB") == ["--kv-cache-dtype"]
    assert refused(LLAMA_8B, asked, card="RTX 5090") == ["--kv-cache-dtype"]
    assert refused(LLAMA_8B, asked) == refused(LLAMA_8B, asked, card="B200") == []


def drafts(method, count):
    return f'--speculative-config {{"method":"{method}","num_speculative_tokens":{count}}}'


@pytest.mark.parametrize(
    ("flags", "flag", "since"),
    [
        (drafts("mtp", 2), "--speculative-config", "0.11.0"),
        (f"{drafts('ngram', 2)} --async-scheduling", "--async-scheduling", "0.11.1"),
        (f"{drafts('eagle', 4)} --max-num-batched-tokens 4 --max-num-seqs 1", "--max-num-batched-tokens", "0.33.0"),
        (
            '--enable-sleep-mode --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}',
            "--enable-sleep-mode",
            "0.33.0",
        ),
    ],
)
def test_what_does_not_go_with_drafts_or_a_connector_is_foreseen_in_the_releases_that_refuse_it(flags, flag, since):
    v1 = {**LLAMA_8B, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    for version in ("0.19.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"):
        told = refused(LLAMA_8B, flags, version)
        later = as_version(version) >= as_version(since)
        if flag == "--async-scheduling" and version == "0.33.0":
            later = False  # Llama runs on the second runner, which takes it
        assert (flag in told) == later, version
    assert flag == "--async-scheduling" or flag in refused(v1, flags, "0.33.0")


def test_drafts_that_write_no_keys_beyond_the_step_may_be_as_many_as_it_holds():
    # Without graphs, which would hold whole requests: a token and its four drafts.
    assert not refused(LLAMA_8B, f"{drafts('ngram', 4)} --max-num-batched-tokens 4 --max-num-seqs 1 --enforce-eager")
    assert not refused(LLAMA_8B, f"{drafts('eagle', 4)} --max-num-batched-tokens 5 --max-num-seqs 1")


@pytest.mark.parametrize(
    ("asked", "version", "taken"),
    [
        (
            '{"model": "d", "method": "eagle", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 1}',
            "0.33.0",
            True,
        ),
        (
            '{"model": "d", "method": "eagle", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 4}',
            "0.33.0",
            True,
        ),
        (
            '{"model": "d", "method": "eagle", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 2}',
            "0.33.0",
            False,
        ),
        # a whole model drafts on as many ranks as the other
        ('{"model": "d", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 1}', "0.20.0", False),
        ('{"model": "d", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 4}', "0.20.0", True),
        ('{"method": "ngram", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 2}', "0.33.0", True),
    ],
)
def test_a_drafter_runs_on_one_rank_or_on_those_of_the_model(asked, version, taken):
    found = refused(LLAMA_8B, f"-tp 4 --speculative-config {asked.replace(' ', '')}", version=version)
    assert ("--speculative-config" not in found) is taken


def test_before_0_6_4_a_drafter_runs_on_one_rank():
    flags = "-tp 4 --speculative-model d --num-speculative-tokens 2 --speculative-draft-tensor-parallel-size"
    assert "--speculative-draft-tensor-parallel-size" in refused(LLAMA_8B, f"{flags} 4", version="0.6.3")
    assert "--speculative-draft-tensor-parallel-size" not in refused(LLAMA_8B, f"{flags} 4", version="0.6.4")


def test_a_model_with_such_layers_drafts_by_them():
    assert not refused({**DEEPSEEK_LIKE, "num_nextn_predict_layers": 1}, f"-tp 8 {drafts('mtp', 1)}")


@pytest.mark.parametrize(("version", "flags"), [("0.29.0", []), ("0.30.0", ["quantization_config"])])
def test_activation_order_within_groups_is_refused_from_0_30(version, flags):
    assert refused(GPTQ, "", version) == flags
    whole = {**GPTQ, "quantization_config": {**ORDERED, "group_size": -1}}
    assert refused(whole, "", version) == []


def test_a_card_without_bfloat16_runs_gemma_3_in_float32():
    # Twice the weights and twice the cache of a T4: what a plan in float16 would have promised.
    a, s, _ = settings(GEMMA3_LIKE, "--max-model-len 8192", "0.19.0", "T4")
    assert (s.dtype, s.element) == ("float32", 4)
    assert any("float32 is planned" in note for note in s.notes)
    assert settings(LLAMA_8B, "", "0.19.0", "T4")[1].dtype == "float16"
    assert a.model_type == "gemma3_text"


@pytest.mark.parametrize(("version", "outcome"), [("0.19.0", "ok"), ("0.33.0", "kv-too-small")])
def test_blocks_that_are_asked_for_are_the_pool_that_a_request_is_checked_against(version, outcome):
    a, s, gpu = settings(LLAMA_8B, "--num-gpu-blocks-override 100 --max-model-len 8192", version)
    assert predict(a, s, gpu, gpu.total_gib).outcome == outcome


def test_a_classifier_is_served_by_the_code_of_the_model_that_generates_and_without_its_head():
    classes = {**LLAMA_8B, "architectures": ["LlamaForSequenceClassification"]}
    a, s, gpu = settings(classes, "")
    assert s.pooling
    assert judge(a, s, gpu).doubts == ()
    whole, headless = (predict(x, y, gpu, gpu.total_gib) for x, y, _ in (settings(LLAMA_8B, ""), (a, s, gpu)))
    assert whole.weights_gib - headless.weights_gib == pytest.approx(128256 * 4096 * 2 / 2**30, abs=0.01)
    assert not any(t.name == "logits and sampler" for t in headless.activation.terms)


@pytest.mark.parametrize(
    ("name", "flags", "pools"),
    [
        ("Qwen3ForCausalLM", "", False),
        ("Qwen3ForCausalLM", "--runner pooling", True),
        ("BertModel", "", True),
        ("XLMRobertaForSequenceClassification", "", True),
        ("LlamaForSequenceClassification", "--runner generate", False),
        ("Qwen2_5_VLForConditionalGeneration", "", False),
    ],
)
def test_the_runner_follows_the_architecture_s_name_where_nothing_is_asked(name, flags, pools):
    assert settings({**LLAMA_8B, "architectures": [name]}, flags)[1].pooling is pools


@pytest.mark.parametrize(
    ("stored", "version", "flags"),
    [
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "0.33.0", ["quantization_config"]),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False}, "0.33.0", ["quantization_config"]),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False}, "0.19.1", []),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": True}, "0.33.0", []),
        ({"quant_method": "awq", "bits": 8, "group_size": 128}, "0.28.0", ["quantization_config"]),
        ({"quant_method": "fbgemm_fp8"}, "0.33.0", ["quantization_config"]),
        ({"quant_method": "fbgemm_fp8"}, "0.11.2", []),
    ],
)
def test_checkpoints_that_a_release_has_no_method_for_any_more(stored, version, flags):
    assert refused({**LLAMA_8B, "quantization_config": stored}, "", version) == flags


def packed(**more):
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, **more.pop("weights", {})}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups, **more}
    return {**LLAMA_8B, "quantization_config": config}


FP8_CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
FP8 = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
MODELOPT = {**LLAMA_8B, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}}
MIXED = {**LLAMA_8B, "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}


@pytest.mark.parametrize(
    ("config", "version", "told"),
    [
        (FP8, "0.11.0", True),
        (FP8, "0.33.0", True),
        (MODELOPT, "0.19.1", True),
        (MIXED, "0.33.0", False),  # asks what its cache is
        (packed(), "0.22.1", True),
        (packed(), "0.25.1", False),
        (packed(kv_cache_scheme=FP8_CACHE), "0.25.1", True),
        (LLAMA_8B, "0.25.1", False),
        (GPTQ, "0.25.1", False),
    ],
)
def test_a_method_that_scales_the_cache_itself_takes_no_e5m2(config, version, told):
    assert ("--kv-cache-dtype" in refused(config, "--kv-cache-dtype fp8_e5m2", version)) == told
    assert "--kv-cache-dtype" not in refused(config, "--kv-cache-dtype fp8_e4m3", version)


SPARSE = {"format": "sparse-24-bitmask", "targets": ["Linear"], "ignore": []}


@pytest.mark.parametrize(
    ("config", "first", "last"),
    [
        (packed(weights={"actorder": "group"}), "0.30.0", "0.29.0"),
        (packed(sparsity_config=SPARSE), "0.22.0", "0.19.1"),
    ],
)
def test_what_compressed_tensors_no_longer_serves_is_refused_from_the_release_that_drops_it(config, first, last):
    assert "quantization_config" in refused(config, "", first)
    assert "quantization_config" not in refused(config, "", last)


def test_a_sparsity_that_names_nothing_and_static_order_are_served():
    plain = packed(weights={"actorder": "static"}, sparsity_config={**SPARSE, "format": "dense", "targets": []})
    assert refused(plain, "", "0.33.0") == []


@pytest.mark.parametrize(("version", "told"), [("0.15.0", False), ("0.25.1", False), ("0.14.1", True)])
def test_the_checkpoints_own_method_replaces_any_name_of_auto_round(version, told):
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
    assert ("--quantization" in refused({**LLAMA_8B, "quantization_config": config}, "-q auto_round", version)) == told
    assert "--quantization" in refused(LLAMA_8B, "-q auto_round", version)


SINKS = {**LLAMA_8B, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}


def test_a_backend_without_sinks_is_refused_for_a_model_that_has_them():
    assert "--attention-backend" in refused(SINKS, "--attention-backend FLEX_ATTENTION", "0.19.1")
    assert "--attention-backend" in refused(SINKS, "--attention-backend TREE_ATTN", "0.19.1")
    assert "--attention-backend" not in refused(SINKS, "--attention-backend TRITON_ATTN", "0.19.1")
    assert "--attention-backend" not in refused(LLAMA_8B, "--attention-backend TREE_ATTN", "0.19.1")


def _modelopt(config, **more):
    return {**config, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", **more}}


STATIC = {"dynamic": False, "num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("config", "flags", "version", "kind"),
    [
        (_modelopt(LLAMA_8B, kv_cache_scheme=STATIC), "", "0.14.0", "fp8_e4m3"),
        (_modelopt(LLAMA_8B, kv_cache_quant_algo="FP8"), "", "0.33.0", "fp8_e4m3"),
        (_modelopt(LLAMA_8B, quantization={"kv_cache_quant_algo": "FP8"}), "", "0.33.0", "fp8_e4m3"),
        (_modelopt(LLAMA_8B, kv_cache_scheme=STATIC), "", "0.13.0", "auto"),
        (_modelopt(LLAMA_8B, kv_cache_scheme={**STATIC, "dynamic": True}), "", "0.33.0", "auto"),
        (_modelopt(LLAMA_8B, kv_cache_scheme=STATIC), "--kv-cache-dtype bfloat16", "0.33.0", "bfloat16"),
        (_modelopt(LLAMA_8B), "", "0.33.0", "auto"),
        ({**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "kv_cache_scheme": STATIC}}, "", "0.33.0", "auto"),
    ],
)
def test_the_cache_is_of_the_type_that_a_checkpoint_of_modelopt_names(config, flags, version, kind):
    assert settings(config, flags, version, "B200")[1].kv_dtype == kind


@pytest.mark.parametrize(
    ("flags", "version", "card", "ends"),
    [
        ("-tp 8 --kv-cache-dtype fp8", "0.14.0", "RTX PRO 6000", True),
        ("-tp 8 --kv-cache-dtype fp8", "0.14.0", "A100 80GB", True),
        ("-tp 8 --kv-cache-dtype fp8", "0.18.0", "RTX PRO 6000", False),
        ("-tp 8 --kv-cache-dtype fp8", "0.14.0", "H200", False),
        ("-tp 8", "0.14.0", "RTX PRO 6000", False),
    ],
)
def test_tritons_kernel_of_latents_has_no_8_bit_cache_before_0_18(flags, version, card, ends):
    assert ("--kv-cache-dtype" in refused(DEEPSEEK_LIKE, flags, version, card)) == ends


def test_backends_of_other_devices_are_refused_by_the_first_engine():
    def told(name, version):
        a, s, gpu = settings(LLAMA_8B, "", version, "A100 80GB", env={"VLLM_ATTENTION_BACKEND": name})
        return [r.flag for r in judge(a, s, gpu).refusals]

    assert told("TORCH_SDPA", "0.7.3") == ["VLLM_ATTENTION_BACKEND"]
    assert told("FLASH_ATTN", "0.7.3") == []


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [
        ("--convert embed", "0.14.1", ["--convert"]),
        ("--convert embed --runner pooling", "0.14.1", []),
        ("--convert none", "0.14.1", []),
        ("--convert embed", "0.22.0", []),  # takes it as --runner pooling
    ],
)
def test_a_model_that_generates_is_not_turned_by_convert_alone(flags, version, told):
    """Up to 0.21 the runner stays the generating one, and no pooler is made (vLLM issue 42480)."""
    _, s, _ = settings(LLAMA_8B, flags, version)
    assert [r.flag for r in s.refusals] == told
    assert s.pooling is (flags != "--convert none")


ENCODER = {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 250_002,
    "max_position_embeddings": 8194,
}


def test_a_model_without_a_kv_cache_has_no_prefixes_to_keep():
    assert "--enable-prefix-caching" in refused(ENCODER, "--enable-prefix-caching", "0.19.1")
    assert "--enable-prefix-caching" not in refused(ENCODER, "", "0.19.1")
    assert "--enable-prefix-caching" not in refused(ENCODER, "--enable-prefix-caching", "0.24.0")
    assert "--enable-prefix-caching" not in refused(ENCODER, "--enable-prefix-caching", "0.11.0")


def test_one_release_asserts_a_gpu_of_its_host_for_each_rank_that_ray_spreads():
    """The host of these tests has sixteen GPUs."""
    asked, flag = "-tp 8 -pp 4 --distributed-executor-backend ray", "--tensor-parallel-size × --pipeline-parallel-size"
    assert flag in of_the_launch(LLAMA_8B, asked, "0.11.1")
    assert flag not in of_the_launch(LLAMA_8B, asked, "0.11.2")
