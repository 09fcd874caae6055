"""Who writes a tensor's name: PEFT, the quantizers and the wrappers of training, whatever the model."""

import pytest

from vllm_doctor.knowledge.tensor_names import tensor_name

ADAPTER = "The weights are those of an adapter that was not merged"
QUANTIZED = "The checkpoint's tensor is quantized, and the model's layer is not"
TIED = "The checkpoint has an lm_head, which the model ties to its embedding"
WRAPPED = "The tensors' names have the prefix of a wrapper of training"
MISTRAL = "A model with images or sound in Mistral's own format, read as its text part alone"
WHOLE = "The checkpoint is a model with images, read as its text part alone"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("'base_model.model.model.layers.3.mlp.up_proj.lora_B.weight'", ADAPTER),
        ("'layers.3.self_attn.qkv_proj.base_layer.weight'", ADAPTER),
        ("'layers.3.mlp.down_proj.weight_scale'", QUANTIZED),
        ("'layers.3.self_attn.o_proj.weight.absmax'", QUANTIZED),
        ("'layers.3.mlp.gate_up_proj.qweight'", QUANTIZED),
        (
            "'layers.3.mlp.up_proj.wf_unsqueeze_zero'",
            "The checkpoint holds a quantizer's own buffer beside its weights",
        ),
        ("'lm_head.weight'", TIED),
        ("There is no module or parameter named 'lm_head' in ExampleForCausalLM", TIED),
        ("'_orig_mod.layers.3.mlp.up_proj.weight'", WRAPPED),
        ("'module.layers.3.mlp.up_proj.weight'", WRAPPED),
        ("There is no module or parameter named 'language_model' in ExampleForCausalLM", WHOLE),
        ("There is no module or parameter named 'language_model' in ExampleForConditionalGeneration", None),
        ("There is no module or parameter named 'base_model' in ExampleForCausalLM", ADAPTER),
        ("There is no module or parameter named '_orig_mod' in ExampleForCausalLM", WRAPPED),
        ("There is no module or parameter named 'mm_whisper_embeddings' in ExampleForCausalLM", MISTRAL),
        ("There is no module or parameter named 'mm_whisper_embeddings' in ExampleForConditionalGeneration", None),
        ("'layers.3.mlp.up_proj.bias'", None),
        ("'layers.3.submodule.weight'", None),
    ],
)
def test_the_name_tells_who_wrote_it(said: str, title: str | None) -> None:
    found = tensor_name(said)
    assert (found.title if found is not None else None) == title
