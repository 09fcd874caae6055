"""An attention backend that a launch asks for, and that the model's vision tower does not take: the tower's class ends
the start where the launch is for CUDA and nothing else decides the backend."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge

SEEN = {
    **LLAMA_8B,
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl",
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "model_type": "qwen2_vl",
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 4096,
        "num_heads": 16,
        "mlp_ratio": 4,
        "in_chans": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}
FLASHINFER = {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}


def judged(config, version, flags="", env=FLASHINFER, card="A100-SXM4-80GB"):
    a, s, gpu = settings(config, flags, version, card, env=env)
    told = judge(a, s, gpu)
    return [r for r in told.refusals if r.flag.endswith(("BACKEND", "backend"))], [one.on for one in told.depends]


def test_a_tower_that_does_not_take_flashinfer_ends_the_start():
    ((told,), depends) = judged(SEEN, "0.8.5")
    assert (told.flag, told.found) == ("VLLM_ATTENTION_BACKEND", "FLASHINFER")
    assert "Qwen2VisionAttention of vLLM 0.8.5 ends with “Qwen2-VL does not support … backend now.”" in told.needed
    assert depends == []


@pytest.mark.parametrize(
    ("config", "version", "env"),
    [
        (SEEN, "0.8.5", {"VLLM_ATTENTION_BACKEND": "XFORMERS"}),
        (SEEN, "0.8.5", {}),  # the release chooses one that the tower takes
        (LLAMA_8B, "0.8.5", FLASHINFER),
        (SEEN, "0.16.0", FLASHINFER),  # a variable of the releases before
    ],
)
def test_what_the_tower_takes_or_is_not_asked_refuses_nothing(config, version, env):
    assert judged(config, version, env=env) == ([], [])


def test_flash_attention_takes_its_place_where_it_is_installed():
    assert judged(SEEN, "0.11.0") == ([], ["whether flash-attn is installed"])
