"""Qwen's Omni models keep what they think with in a section of its own, towers and text."""

import pytest

from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.model.families import pools_by_name
from vllm_doctor.plan.question.ask import KnownStart, foresee

TEXT = {
    "model_type": "qwen2_5_omni_text",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
TOWER = {
    "model_type": "qwen2_5_omni_vision_encoder",
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "patch_size": 14,
    "spatial_merge_size": 2,
}
HEARD = {
    "model_type": "qwen2_5_omni_audio_encoder",
    "d_model": 1280,
    "encoder_ffn_dim": 5120,
    "encoder_layers": 32,
    "num_mel_bins": 128,
    "output_dim": 3584,
}
PACKED = {
    "quant_method": "auto-round",
    "bits": 4,
    "group_size": 128,
    "sym": True,
    "block_name_to_quantize": ["thinker.model.layers"],
}
OMNI: dict[str, object] = {
    "architectures": ["Qwen2_5OmniModel"],
    "model_type": "qwen2_5_omni",
    "thinker_config": {
        "model_type": "qwen2_5_omni_thinker",
        "text_config": TEXT,
        "vision_config": TOWER,
        "audio_config": HEARD,
    },
    "quantization_config": PACKED,
}


def test_its_towers_are_those_of_its_section():
    described = describe(Section(OMNI))
    assert described.vision is not None
    assert (described.vision.layers, described.vision.gated, described.audio) == (32, True, True)
    assert described.audio_weights / 1e6 == pytest.approx(639, abs=1)  # as Whisper's large encoder


def test_weights_are_as_a_start_logs_them():
    """7.75 GiB: 0.21.0, AutoRound in 4 bits, which packs the layers of the text alone."""
    told = foresee(KnownStart(("vllm", "serve", "m", "--max-model-len", "8192"), "0.21.0", OMNI, None, 23.5))
    assert told is not None
    assert told.now.weights_gib == pytest.approx(7.75, abs=0.05)


@pytest.mark.parametrize("name", ["Qwen2_5OmniModel", "ChatGLMModel", "AquilaModel", "UltravoxModel"])
def test_some_names_of_models_that_generate_end_as_those_that_pool(name):
    """vLLM's table of models goes before what a name ends with (config/model.py)."""
    assert not pools_by_name(name)
    assert pools_by_name("BertModel")


def test_a_video_of_its_profile_shrinks_to_what_its_processor_takes():
    """The budget counts each pair of frames as a whole image; an A100 of 0.10.2 logged 17.33 GiB of cache."""
    config = {k: v for k, v in OMNI.items() if k != "quantization_config"}
    line = ("vllm", "serve", "m", "--enforce-eager", "--max-num-batched-tokens", "8192")
    kept = []
    for limits in ((), ("--limit-mm-per-prompt", '{"video": 0}')):
        told = foresee(KnownStart((*line, *limits), "0.10.2", config, "NVIDIA A100-SXM4-40GB", 39.49))
        assert told is not None
        kept.append(told.now.available_kv_gib)
    assert kept[0] == pytest.approx(17.33, abs=0.02)
    assert kept[1] == pytest.approx(16.63, abs=0.02)  # a whole image instead
