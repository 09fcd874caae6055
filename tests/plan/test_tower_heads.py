"""The heads of a vision tower divide by the ranks where the release's own classes assert it (model_tests.json)."""

from dataclasses import replace

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge, model_tests

TEXT = {**LLAMA_8B, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128}


def seen(kind, heads, name="Glm4vMoeForConditionalGeneration"):
    tower = {"model_type": kind, "hidden_size": 1536, "depth": 4, **({} if heads is None else {"num_heads": heads})}
    return {"architectures": [name], "model_type": "glm4v_moe", "text_config": TEXT, "vision_config": tower}


def told(config, flags, version):
    a, s, gpu = settings(config, flags, version)
    return [r.needed for r in (*s.refusals, *judge(a, s, gpu).refusals) if r.flag == "--tensor-parallel-size"]


def test_twelve_heads_are_not_split_in_eight():
    (needed,) = told(seen("glm4v_moe", 12), "-tp 8", "0.10.1.1")
    assert needed.startswith("a divisor of 12, vision_config.num_heads, such as 3, 4, 6: ")
    (needed,) = told(seen("glm4v_moe", 12), "-tp 8", "0.33.0")
    assert "such as 3, 4, 6; or --mm-encoder-tp-mode data, which keeps the tower whole on each rank: " in needed
    # Between, a tower stood behind the limits of images and videos (0.11 to 0.14).
    (needed,) = told(seen("glm4v_moe", 12), "-tp 8", "0.13.0")
    assert needed.startswith("a divisor of 12, vision_config.num_heads")


def test_they_are_not_on_a_card_of_amd_either():
    a, s, gpu = settings(seen("glm4v_moe", 12), "-tp 8")
    (one,) = model_tests.refusals(a, s, replace(gpu, backend="ROCm"))
    assert one.needed.startswith("a divisor of 12, vision_config.num_heads")


@pytest.mark.parametrize(
    ("config", "flags", "version"),
    [
        (seen("glm4v_moe", 12), "-tp 4", "0.33.0"),
        (seen("glm4v_moe", 12), "-tp 8 --mm-encoder-tp-mode data", "0.33.0"),
        (seen("glm4v_moe", 12), "-tp 8 --language-model-only", "0.33.0"),
        (seen("glm4v_moe", None), "-tp 8", "0.33.0"),  # the class has a number of its own
        (seen("intern_vit_6b", 25, "InternVLChatModel"), "-tp 8", "0.33.0"),  # whole where it does not divide
        (seen("siglip_vision_model", 12), "-tp 8", "0.6.6"),  # the same
    ],
)
def test_these_start(config, flags, version):
    assert told(config, flags, version) == []
