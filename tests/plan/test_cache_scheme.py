"""A checkpoint of compressed-tensors may say of what type its cache is, and the layers do as it says."""

import json

import pytest

from tests.plan.models import DEEPSEEK_LIKE, LLAMA_8B
from vllm_doctor.plan.question.planner import Question, planner

FLOATS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
SCALED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "kv_cache_scheme": FLOATS,
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": FLOATS, "input_activations": FLOATS}},
}


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(version, flags="", *, config=LLAMA_8B, gpu="H100"):
        file = tmp_path / "config.json"
        file.write_text(json.dumps({**config, "quantization_config": SCALED}))
        words = ("vllm", "serve", "m", "--max-model-len", "4096", *flags.split())
        return planner(Question(words, gpu, 1, None, version, str(file))).predict()

    return asked


@pytest.mark.parametrize(
    ("version", "flags", "gib"),
    [
        ("0.14.1", "", 0.5),  # 4096 tokens of 32 layers, 8 heads of 128, keys and values, 2 bytes each
        ("0.15.0", "", 0.25),
        ("0.33.0", "", 0.25),
        # To 0.21 the scheme stands above the option, from 0.22 on an option stands above it.
        ("0.21.0", "--kv-cache-dtype bfloat16", 0.25),
        ("0.22.0", "--kv-cache-dtype bfloat16", 0.5),
    ],
)
def test_the_cache_has_the_type_of_the_checkpoints_scheme(ask, version, flags, gib):
    assert ask(version, flags).needed_kv_gib == pytest.approx(gib)


def test_latents_do_not_ask_it(ask):
    assert ask("0.20.0", config=DEEPSEEK_LIKE).settings.kv_dtype == "auto"


@pytest.mark.parametrize(
    ("version", "needed"),
    [
        ("0.21.0", "a checkpoint without kv_cache_scheme, or another backend: FlashAttention 2 has no fp8"),
        ("0.25.0", "--kv-cache-dtype bfloat16, or another backend: FlashAttention 2 has no fp8"),
    ],
)
def test_a_refused_type_that_no_option_asked_for_is_not_told_to_be_auto(ask, version, needed):
    refused = ask(version, "--attention-backend FLASH_ATTN", gpu="L40S").settings.refusals
    told = [(r.flag, r.found, r.needed) for r in refused]
    assert told == [("quantization_config", "a cache of the checkpoint's own type, fp8", needed)]
