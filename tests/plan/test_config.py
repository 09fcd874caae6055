"""Config files are foreign input: every bad one ends in one sentence that names the key and the value."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.models import DEEPSEEK_LIKE, GEMMA3_LIKE, HYBRID_LIKE, LLAMA_8B, arch
from vllm_doctor.plan.model.config_json import ConfigError, Section, checkpoint_bytes, read_config
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.model.quantization import scheme


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"hidden_size": 4096, "num_hid', "not JSON"),
        ("[]", "holds a list"),
        ("", "not JSON"),
        ("[" * 100_000, "deeper than 64 levels"),
        ('{"_class_name": "UNet", "_diffusers_version": "0.3"}', "diffusion"),
        ('{"hidden_size": NaN}', "hidden_size is nan"),
    ],
)
def test_what_is_no_model_description_is_named(tmp_path, text, said):
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        describe(read_config(file))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 1e30}, "hidden_size is 1e"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"vocab_size": None}, "vocab_size .* missing"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"num_attention_heads": 30}, "not a multiple"),
        ({"layer_types": ["full_attention"]}, "layer_types names 1"),
        ({"layer_types": ["quantum_attention"] * 32}, "quantum_attention"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
    ],
)
def test_a_bad_value_is_named(changes, said):
    with pytest.raises(ConfigError, match=said):
        arch(LLAMA_8B, **changes)


def test_a_pattern_that_could_run_for_ever_is_refused():
    with pytest.raises(ConfigError, match="nests repetitions"):
        scheme(Section({"quant_method": "compressed-tensors", "ignore": ["re:(a+)+$"]}), None, 2)


def test_an_unknown_architecture_is_said_aloud():
    a = arch(LLAMA_8B, model_type="nonesuch")
    assert not a.known
    assert "nonesuch" in a.doubts[0]


def test_layer_kinds_are_read_as_the_models_read_them():
    assert [x.kind for x in arch(GEMMA3_LIKE).layers[:6]] == ["sliding"] * 5 + ["full"]
    assert [x.kind for x in arch(HYBRID_LIKE).layers[:4]] == ["linear"] * 3 + ["full"]
    assert {x.kind for x in arch(DEEPSEEK_LIKE).layers} == {"mla"}
    assert arch(LLAMA_8B, sliding_window=4096, use_sliding_window=False).layers[0].kind == "full"


def test_the_size_of_a_checkpoint_comes_from_its_index(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    assert checkpoint_bytes(tmp_path) is None
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 16060522496}}))
    assert checkpoint_bytes(tmp_path) == 16060522496


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(base=st.sampled_from([LLAMA_8B, GEMMA3_LIKE, DEEPSEEK_LIKE, HYBRID_LIKE]), data=st.data())
def test_any_value_under_any_key_gives_a_model_or_a_clear_error(base, data):
    key = data.draw(
        st.sampled_from(
            [*base, "quantization_config", "vision_config", "text_config", "layer_types", "num_experts", "rope_scaling"]
        )
    )
    config = {**base, key: data.draw(JSON)}
    with contextlib.suppress(ConfigError):  # any other exception is a failure
        a = describe(Section(config))
        scheme(a.quantization, None, 2)


@pytest.mark.parametrize(
    "key", ["num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "top_k_experts", "moe_k"]
)
def test_experts_of_a_token_are_read_under_every_name_that_vllm_reads(key):
    read = arch({**LLAMA_8B, "num_experts": 64, key: 6})
    assert read.moe.top_k == 6
    assert not any("experts" in doubt for doubt in read.doubts)


def test_how_many_experts_a_token_takes_is_not_guessed_in_silence():
    assert any("how many experts a token takes" in doubt for doubt in arch({**LLAMA_8B, "num_experts": 64}).doubts)


@pytest.mark.parametrize(
    ("named", "length"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"max_position_embeddings": 8192, "max_seq_len": 4096}, 4096),
        ({"seq_length": 32768, "max_position_embeddings": 65536}, 32768),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),  # Command R
        ({}, 2048),
    ],
)
def test_a_model_takes_the_smallest_length_that_it_names_and_cohere_s_its_own(named, length):
    """As the newest release does (transformers_utils/model_arch_config_convertor.py)."""
    config = {**LLAMA_8B, **dict.fromkeys(("max_position_embeddings", "rope_scaling", "rope_parameters")), **named}
    assert describe(Section(config)).context == length


def test_latent_attention_has_widths_of_heads_beside_the_hidden_size():
    """GLM-4.7-Flash has 20 heads beside a hidden size of 2048, and no head_dim."""
    config = {**DEEPSEEK_LIKE, "hidden_size": 2048, "num_attention_heads": 20, "num_key_value_heads": 20}
    assert arch(config).heads == 20
    del config["kv_lora_rank"]
    with pytest.raises(ConfigError, match="is not a multiple of num_attention_heads 20"):
        arch(config)


def _tensors(path: Path, size: int) -> None:
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))


def test_a_checkpoint_without_an_index_is_the_sum_of_its_files(tmp_path: Path) -> None:
    assert checkpoint_bytes(tmp_path) is None
    for name, size in (("model-1.safetensors", 5), ("model-2.safetensors", 12), ("consolidated.safetensors", 17)):
        _tensors(tmp_path / name, size)
    assert checkpoint_bytes(tmp_path) == 5 + 12  # the consolidated file has the same tensors once more
    (tmp_path / "model-3.safetensors").write_bytes(b"cut")
    assert checkpoint_bytes(tmp_path) is None


HUNYUAN = {
    **LLAMA_8B,
    "architectures": ["HunYuanMoEV1ForCausalLM"],
    "model_type": "hunyuan_v1_moe",
    "num_experts": 64,
    "moe_intermediate_size": 3072,
    "moe_topk": 8,
    "num_shared_expert": 1,
}


def test_a_list_that_is_alike_for_every_layer_is_one_number():
    """Hunyuan-A13B's config.json names its experts layer by layer."""
    listed = {**HUNYUAN, "moe_intermediate_size": [3072] * 4, "moe_topk": [8] * 4, "num_shared_expert": [1] * 4}
    assert describe(Section(listed)).moe == describe(Section(HUNYUAN)).moe
    with pytest.raises(ConfigError, match="moe_intermediate_size is"):
        describe(Section({**listed, "moe_intermediate_size": [3072, 3072, 3072, 1024]}))


def test_what_a_text_section_leaves_out_is_its_class_s():
    seeing = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": {}}
    a = arch(seeing)
    assert (a.hidden, a.width, len(a.layers), a.heads, a.vocab) == (4096, 11008, 32, 32, 32064)
    gemma = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    b = arch({"model_type": "gemma3", "text_config": gemma, "vision_config": {}})
    assert (b.hidden, b.heads, b.kv_heads, b.vocab, b.context) == (2560, 8, 4, 262208, 131072)
    with pytest.raises(ConfigError, match="hidden_size"):
        arch({"model_type": "llama"})  # a whole config names what it is
