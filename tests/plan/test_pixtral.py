"""Pixtral's tower: images of one batch keep apart by a mask, and Mistral's own classes split none of it."""

import pytest

from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.ask import KnownStart, foresee

VISION = {"model_type": "pixtral", "head_dim": 64, "hidden_size": 1024, "image_size": 1540, "intermediate_size": 4096}
TEXT = {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768}
HEADS = {"num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "vocab_size": 131072}
SMALL: dict[str, object] = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "dtype": "bfloat16",
    "spatial_merge_size": 2,
    "vision_config": {**VISION, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14},
    "text_config": {**TEXT, **HEADS, "max_position_embeddings": 131072},
}


def planned(version, model="someone/m", *flags) -> Prediction:
    fixed = "--tensor-parallel-size 4 --max-model-len 8192 --max-num-seqs 8"
    line = ("vllm", "serve", model, *fixed.split(), *flags)
    told = foresee(KnownStart(line, version, SMALL, "NVIDIA A100-SXM4-80GB", 79.25, gpus=4))
    assert told is not None
    return told.now


def test_without_xformers_a_mask_of_all_patches_lies_beside_them():
    before, since = (planned(v).activation_gib for v in ("0.11.2", "0.12.0"))
    patches = (1540 // 14) ** 2
    assert since - before >= 2 * patches**2 / (1 << 30)


@pytest.mark.parametrize(
    ("version", "model", "flags", "whole"),
    [
        ("0.11.2", "mistralai/m", (), False),
        ("0.12.0", "mistralai/m", (), True),
        ("0.12.0", "mistralai/m", ("--config-format", "hf"), False),
        ("0.12.0", "someone/m", (), False),
        ("0.11.2", "someone/m", ("--config-format", "mistral"), True),
    ],
)
def test_in_mistral_s_own_format_each_rank_has_the_tower_whole(version, model, flags, whole):
    split = planned(version).weights_gib
    more = planned(version, model, *flags).weights_gib - split
    assert (more > 0.4) == whole
