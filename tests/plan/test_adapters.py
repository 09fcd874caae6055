"""Adapters that end the start of a model, each beside a release or a launch that is taken."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import EXPERTS, refused, settings
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.support import judge
from vllm_doctor.plan.support.adapters import rows

GRANITE = {
    **LLAMA_8B,
    "model_type": "granitemoehybrid",
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "layer_types": ["attention"] * LLAMA_8B["num_hidden_layers"],
    "shared_intermediate_size": 8192,
}
QWEN_VL = {
    "model_type": "qwen3_vl",
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "text_config": {**LLAMA_8B, "model_type": "qwen3_vl_text"},
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 4096,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
NO_ITEMS = '--limit-mm-per-prompt {"image":0,"video":0}'


@pytest.mark.parametrize(
    ("config", "flags", "version", "ends"),
    [
        (GRANITE, "--enable-lora", "0.11.0", True),
        (GRANITE, "--enable-lora", "0.11.1", False),
        (GRANITE, "", "0.11.0", False),
        (QWEN_VL, "--enable-lora", "0.11.0", True),
        (QWEN_VL, "--enable-lora", "0.11.1", False),
        (QWEN_VL, f"--enable-lora {NO_ITEMS}", "0.11.0", False),
        (QWEN_VL, "--enable-lora --skip-mm-profiling", "0.11.0", False),
        (LLAMA_8B, "--enable-lora", "0.11.0", False),
    ],
)
def test_adapters_that_end_the_start_are_refused_in_the_releases_that_were_read(config, flags, version, ends):
    a, s, gpu = settings(config, flags, version, "H100")
    found = [r for r in judge(a, s, gpu).refusals if r.flag == "--enable-lora"]
    assert len(found) == ends
    assert all(a.name in r.needed and "0.11.1 or later" in r.needed for r in found)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.architecture)
def test_a_row_ends_after_it_begins_and_names_where_it_was_read(row):
    assert as_version(row.since) < as_version(row.until)
    assert ".py" in row.source


@pytest.mark.parametrize(
    ("architecture", "words", "version", "flags", "ends"),
    [
        ("LlamaForCausalLM", 128256, "0.3.3", "", True),
        ("LlamaForCausalLM", 128256, "0.5.4", "", False),  # and the 256 rows that an adapter may add
        ("LlamaForCausalLM", 128257, "0.5.4", "", True),
        ("LlamaForCausalLM", 256768, "0.11.0", "", False),
        ("LlamaForCausalLM", 256769, "0.11.0", "", True),
        ("LlamaForCausalLM", 257024, "0.16.0", "", False),
        ("LlamaForCausalLM", 257025, "0.16.0", "", True),
        ("LlamaForCausalLM", 258048, "0.33.0", "", False),
        ("LlamaForCausalLM", 258049, "0.33.0", "", True),
        ("LlamaForCausalLM", 258049, "0.33.0", "--lora-target-modules q_proj", False),
        ("LlamaForCausalLM", 258049, "0.33.0", "--runner pooling", False),
        ("Qwen2ForCausalLM", 258049, "0.33.0", "", False),  # its head is not adapted
        ("CohereForCausalLM", 258049, "0.33.0", "", False),
    ],
)
def test_a_head_of_too_many_words_is_refused_where_it_is_adapted(architecture, words, version, flags, ends):
    config = {**LLAMA_8B, "architectures": [architecture], "vocab_size": words}
    a, s, gpu = settings(config, f"--enable-lora {flags}", version, "H100")
    found = [r.needed for r in judge(a, s, gpu).refusals if r.flag == "--enable-lora"]
    assert len(found) == ends
    assert all("adapts heads of at most" in text for text in found)


MIXTRAL = {**EXPERTS, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8}
EP = "-tp 2 --enable-expert-parallel"


@pytest.mark.parametrize(
    ("flags", "version", "flag"),
    [
        (EP, "0.20.2", "--enable-expert-parallel"),
        (EP, "0.21.0", None),
        ("-tp 2", "0.20.2", None),
        ("--enable-expert-parallel", "0.20.2", None),  # of one rank
        (f"{EP} --fully-sharded-loras", "0.21.0", "--fully-sharded-loras"),
        (f"{EP} --all2all-backend deepep_low_latency", "0.21.0", "--all2all-backend"),
        (f"{EP} --all2all-backend nixl_ep", "0.33.0", "--all2all-backend"),
        (f"{EP} --all2all-backend pplx", "0.33.0", None),  # which the release takes for gathering
        (f"{EP} --all2all-backend allgather_reducescatter", "0.33.0", None),
        ("-tp 2 --all2all-backend nixl_ep", "0.33.0", None),
        ("-tp 2 --fully-sharded-loras", "0.21.0", None),
        ("-tp 16 --fully-sharded-loras --max-lora-rank 8", "0.33.0", "--max-lora-rank"),
        ("-tp 8 --fully-sharded-loras --max-lora-rank 8", "0.33.0", None),
        ("--max-lora-rank 256", "0.31.0", "--max-lora-rank"),
        ("--max-lora-rank 128", "0.31.0", None),
        ("--max-lora-rank 256", "0.32.0", None),
        ("--max-lora-rank 256 --fully-sharded-loras", "0.31.0", None),  # in two kernels
    ],
)
def test_adapters_of_experts(flags, version, flag):
    a, s, gpu = settings(MIXTRAL, f"--enable-lora {flags}", version)
    told = [r.flag for r in (*s.refusals, *judge(a, s, gpu).refusals)]
    assert told == ([] if flag is None else [flag])


GEMMA_4 = {
    **EXPERTS,
    "model_type": "gemma4_text",
    "architectures": ["Gemma4ForCausalLM"],
    "enable_moe_block": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
}
QWEN_MOE = {**EXPERTS, "architectures": ["Qwen3MoeForCausalLM"], "moe_intermediate_size": 768}
STORED = {**QWEN_MOE, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}}


@pytest.mark.parametrize(
    ("config", "flags", "version", "told"),
    [
        (GEMMA_4, "", "0.20.0", "Gemma4ForCausalLM of 0.20.0 has no map of its experts"),
        (GEMMA_4, "", "0.25.0", None),  # which asks the layer
        (QWEN_MOE, "", "0.20.0", None),
        (QWEN_MOE, "--quantization bitsandbytes", "0.11.0", None),  # adapters have no experts yet
        (QWEN_MOE, "--quantization bitsandbytes", "0.11.1", "0.11.1 adapts no experts in bitsandbytes"),
        (QWEN_MOE, "--quantization bitsandbytes --lora-target-modules q_proj", "0.20.0", None),
        (STORED, "", "0.12.0", "0.12.0 adapts no experts in awq"),
        (STORED, "", "0.13.0", None),
    ],
)
def test_experts_that_an_adapter_could_not_wrap_end_the_start(config, flags, version, told):
    a, s, gpu = settings(config, f"--enable-lora {flags}", version, "H100")
    found = [r.needed for r in judge(a, s, gpu).refusals if r.flag == "--enable-lora"]
    assert len(found) == (told is not None)
    assert all(told in needed for needed in found)


def test_a_checkpoint_that_leaves_its_experts_out_is_not_asked():
    left_out = {**STORED["quantization_config"], "modules_to_not_convert": ["experts"]}
    a, s, gpu = settings({**STORED, "quantization_config": left_out}, "--enable-lora", "0.12.0", "H100")
    assert not [r for r in judge(a, s, gpu).refusals if r.flag == "--enable-lora"]


@pytest.mark.parametrize("version", ["0.5.4", "0.7.3", "0.33.0"])
def test_adapters_take_sixteen_bits(version):
    assert "--dtype" in refused(LLAMA_8B, "--dtype float32 --enable-lora", version)
    assert "--dtype" not in refused(LLAMA_8B, "--dtype float32", version)
    assert "--dtype" not in refused(LLAMA_8B, "--enable-lora", version)
