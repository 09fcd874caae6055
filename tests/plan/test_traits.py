"""What a release refuses because the model's class has no code for it, each beside a class, a release or a launch that
differs in one thing and is taken."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_activation import QWEN25_VL_7B
from tests.plan.test_refused import settings
from vllm_doctor.knowledge.version import as_version

GEMMA3N = {**LLAMA_8B, "model_type": "gemma3n_text", "architectures": ["Gemma3nForCausalLM"]}
FALCON = {**LLAMA_8B, "architectures": ["FalconForCausalLM"]}
BERT = {**LLAMA_8B, "architectures": ["BertModel"]}
MPT = {**LLAMA_8B, "architectures": ["MPTForCausalLM"]}
STRANGE = {**LLAMA_8B, "architectures": ["StrangeForCausalLM"]}
GLM = {
    **LLAMA_8B,
    "model_type": "glm4_moe",
    "architectures": ["Glm4MoeForCausalLM"],
    "num_nextn_predict_layers": 1,
}
EAGLE3 = '--speculative-config {"method":"eagle3","model":"x/y","num_speculative_tokens":2}'
MIXTRAL = {
    **LLAMA_8B,
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
STORED = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
BITS = "--quantization bitsandbytes --load-format bitsandbytes"
IMAGES = '--limit-mm-per-prompt {"image":2}'


def refused(config, flags, version):
    _, s, _ = settings(config, flags, version, "H100")
    return [(r.flag, r.needed) for r in s.refusals]


@pytest.mark.parametrize(
    ("config", "flags", "version", "told"),
    [
        (
            GEMMA3N,
            "--pipeline-parallel-size 2",
            "0.33.0",
            ("--pipeline-parallel-size", "1: vLLM 0.33.0 makes no stages of Gemma3nForCausalLM"),
        ),
        (
            LLAMA_8B,
            "--pipeline-parallel-size 2",
            "0.5.0",
            ("--pipeline-parallel-size", "1: vLLM 0.5.0 makes no stages; 0.5.1 is the first"),
        ),
        (
            {**LLAMA_8B, "architectures": ["BambaForCausalLM"]},  # whose model runs the layers of other stages too
            "--pipeline-parallel-size 2",
            "0.20.0",
            ("--pipeline-parallel-size", "1: vLLM 0.20.0 makes no stages of BambaForCausalLM"),
        ),
        (
            GLM,  # asserts of each layer that it has experts, where another stage's are none
            "--pipeline-parallel-size 2",
            "0.10.0",
            ("--pipeline-parallel-size", "1: vLLM 0.10.0 makes no stages of Glm4MoeForCausalLM"),
        ),
        (
            FALCON,
            "--enable-lora",
            "0.33.0",
            ("--enable-lora", "no --enable-lora: vLLM 0.33.0 has no adapters for FalconForCausalLM"),
        ),
        (
            FALCON,
            EAGLE3,
            "0.19.1",
            (
                "--speculative-config",
                "another method: FalconForCausalLM of vLLM 0.19.1 gives a drafter no hidden states",
            ),
        ),
        (
            BERT,
            "--runner generate",
            "0.33.0",
            ("--runner", "no --runner: BertModel makes no text in vLLM 0.33.0"),
        ),
        (
            LLAMA_8B,
            IMAGES,
            "0.8.5",
            ("--limit-mm-per-prompt", "no --limit-mm-per-prompt: LlamaForCausalLM takes text alone"),
        ),
        (
            MPT,
            "--quantization bitsandbytes",
            "0.8.5",
            ("--quantization", "another method: vLLM 0.8.5 has no bitsandbytes for MPTForCausalLM"),
        ),
        (
            MPT,  # 0.5 and 0.6 ask the class by another name
            "--quantization bitsandbytes",
            "0.6.3",
            ("--quantization", "another method: vLLM 0.6.3 has no bitsandbytes for MPTForCausalLM"),
        ),
        (
            QWEN25_VL_7B,  # whose list leaves out gate_up_proj
            BITS,
            "0.7.2",
            ("--quantization", "another method: vLLM 0.7.2 has no bitsandbytes for Qwen2_5_VLForConditionalGeneration"),
        ),
    ],
)
def test_what_the_class_does_not_say_of_itself_is_refused(config, flags, version, told):
    assert told in refused(config, flags, version)


@pytest.mark.parametrize(
    ("config", "flags", "version"),
    [
        (LLAMA_8B, "--pipeline-parallel-size 2", "0.33.0"),
        (LLAMA_8B, "--enable-lora", "0.33.0"),
        (LLAMA_8B, EAGLE3, "0.19.1"),
        (LLAMA_8B, "--runner generate", "0.33.0"),
        (LLAMA_8B, IMAGES, "0.10.2"),  # takes it, and does nothing with it
        (LLAMA_8B, "--quantization bitsandbytes", "0.8.5"),
        (LLAMA_8B, BITS, "0.6.3"),
        (QWEN25_VL_7B, BITS, "0.7.3"),
        (STRANGE, "--enable-lora --pipeline-parallel-size 2", "0.33.0"),  # not in the registry
        (FALCON, "--enable-lora --model-impl transformers", "0.33.0"),  # another class runs it
        (LLAMA_8B, "--pipeline-parallel-size 2", "0.5.1"),
        (GLM, "--pipeline-parallel-size 2", "0.10.1"),
    ],
)
def test_what_the_class_has_or_nobody_knows_is_not(config, flags, version):
    assert refused(config, flags, version) == []


DELTA = {**LLAMA_8B, "model_type": "qwen3_5", "num_nextn_predict_layers": 1}
MTP = '--speculative-config {"method":"mtp","num_speculative_tokens":1}'
STAGES = "--pipeline-parallel-size"


@pytest.mark.parametrize(
    ("config", "flags", "version", "told"),
    [
        (DELTA, f"{MTP} {STAGES} 2", "0.19.1", True),
        (DELTA, f"{MTP} {STAGES} 2", "0.29.0", True),
        (DELTA, f"{MTP} {STAGES} 2", "0.30.0", False),  # the drafter has one stage
        (GLM, f"{MTP} {STAGES} 2", "0.28.0", True),
        (GLM, f"{MTP} {STAGES} 2", "0.33.0", False),
        (DELTA, f"{STAGES} 2", "0.19.1", False),
        (DELTA, MTP, "0.19.1", False),
        ({**DELTA, "model_type": "nemotron_h"}, f"{MTP} {STAGES} 2", "0.19.1", False),  # its drafter has stages
        ({**DELTA, "model_type": "strange"}, f"{MTP} {STAGES} 2", "0.19.1", False),
    ],
)
def test_a_drafter_of_the_models_own_layers_is_asked_for_stages_too(config, flags, version, told):
    assert any(flag == STAGES and "MTP" in needed for flag, needed in refused(config, flags, version)) == told


def test_each_drafter_of_the_table_is_a_class_of_some_release():
    from vllm_doctor.knowledge.history import history

    turned, table = history("mtp", "mtp"), history("traits", "traits")
    release = as_version("0.33.0")
    told = {words[1] for name in turned.names() if len(words := (turned.text(name, release) or "").split()) == 2}
    assert "MiMoV2MTPModel" in told
    assert [name for name in told if name not in table.names()] == []


@pytest.mark.parametrize(
    ("method", "drafter", "told"),
    [
        ("mtp", "DeepSeekV4MTPModel", True),
        ("dspark", "DSparkDraftModel", True),
        ("ngram", "", False),
    ],
)
def test_a_drafter_of_the_models_own_checkpoint_needs_stages_too(method, drafter, told):
    config = {**LLAMA_8B, "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"}
    drafts = f'{{"method":"{method}","num_speculative_tokens":3}}'
    found = refused(config, f"--pipeline-parallel-size 2 --speculative-config {drafts}", "0.27.1")
    needed = f"1: vLLM 0.27.1 makes no stages of {drafter}"
    assert (("--pipeline-parallel-size", needed) in found) is told


@pytest.mark.parametrize(
    ("stored", "version", "told"),
    [
        (STORED, "0.4.3", "no --enable-lora: vLLM 0.4.3 has no adapters for QuantMixtralForCausalLM"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "0.4.3", None),
        (STORED, "0.6.1", None),  # which the card decides
        (None, "0.4.3", None),
    ],
)
def test_the_class_that_stands_in_for_a_quantized_one_is_asked(stored, version, told):
    config = {**MIXTRAL, "quantization_config": stored} if stored else MIXTRAL
    found = [needed for _, needed in refused(config, "--enable-lora", version) if "adapters" in needed]
    assert found == ([told] if told else [])
