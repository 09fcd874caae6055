"""The heads of a vision tower divide by the ranks, where the release asserts it."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge

TEXT = {**LLAMA_8B, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128}


def seen(kind, heads, name="Glm4vMoeForConditionalGeneration"):
    tower = {"model_type": kind, "hidden_size": 1536, "depth": 4, **({} if heads is None else {"num_heads": heads})}
    return {"architectures": [name], "model_type": "glm4v_moe", "text_config": TEXT, "vision_config": tower}


def told(config, flags, version):
    a, s, gpu = settings(config, flags, version)
    return [r.needed for r in (*s.refusals, *judge(a, s, gpu).refusals) if r.flag == "--tensor-parallel-size"]


def test_twelve_heads_are_not_split_in_eight():
    (needed,) = told(seen("glm4v_moe", 12), "-tp 8", "0.10.1.1")
    assert needed == "a divisor of 12, the heads of the vision tower"
    (needed,) = told(seen("glm4v_moe", 12), "-tp 8", "0.33.0")
    assert needed.endswith("; or --mm-encoder-tp-mode data, which keeps it whole on each rank")


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
