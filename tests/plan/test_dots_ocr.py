"""dots.ocr: a text model of Qwen2 and its tower (models/dots_ocr.py)."""

import json

import pytest

from vllm_doctor.plan.question.planner import Question, planner

GIB = 1 << 30
TOWER = {
    "model_type": "dots_vit", "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224,
    "num_hidden_layers": 42, "num_attention_heads": 12, "patch_size": 14, "spatial_merge_size": 2,
}  # fmt: skip
MODEL = {
    "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr", "torch_dtype": "bfloat16", "hidden_size": 1536,
    "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
    "vocab_size": 151936, "max_position_embeddings": 131072, "tie_word_embeddings": False, "vision_config": TOWER,
}  # fmt: skip
PATCHES = 11_289_600 // 14**2  # of its largest image


@pytest.fixture
def planned(tmp_path):
    def asked(version="0.12.0", line="", gpus=1):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(MODEL))
        flags = "--max-model-len 8192 --max-num-seqs 8 --max-num-batched-tokens 16384 --gpu-memory-utilization 0.85"
        q = Question(("vllm", "serve", "m", *flags.split(), *line.split()), "RTX 3090", gpus, None, version, str(file))
        return planner(q).predict()

    return asked


def tower(p):
    return next(t for t in p.terms if t.name == "vision encoder")


def test_its_logged_start_lies_in_the_range(planned):
    # A start of 0.12.0 on an RTX 3090: weights 5.72 GiB, 9.84 for the KV cache.
    p = planned()
    assert p.verdict == "starts"
    assert p.weights_gib == pytest.approx(5.72, abs=0.04)
    assert p.available_kv_gib == pytest.approx(9.84, abs=0.15)
    assert p.margin_gib[0] < 9.84 < p.margin_gib[1]


@pytest.mark.parametrize(("version", "widths"), [("0.12.0", 26), ("0.13.0", 20)])
def test_queries_and_keys_are_turned_in_float32_which_one_kernel_does_later(planned, version, widths):
    pixels = PATCHES * 14 * 14 * 3 * 2
    assert tower(planned(version)).bytes == pytest.approx(PATCHES * widths * 1536 * 2 + pixels)


def test_ranks_share_its_heads(planned):
    one, two = (tower(planned(line=f"--tensor-parallel-size {n}", gpus=n)).bytes for n in (1, 2))
    assert one - two == pytest.approx(PATCHES * 12 * 1536 * 2)


@pytest.mark.parametrize(("step", "images"), [(16384, 1), (28800, 2), (43199, 2), (8192, 1)])
def test_the_profile_shows_whole_images_alone(planned, step, images):
    outputs = next(t for t in planned(line=f"--max-num-batched-tokens {step}").terms if "encoder outputs" in t.name)
    tokens = images * PATCHES // 4
    assert outputs.formula.startswith(f"{tokens} × 1536")
