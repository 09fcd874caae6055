"""The products of latent attention's weights that V0 kept in 0.7.2 and 0.7.3."""

import pytest

from tests.plan.models import DEEPSEEK_LIKE, LLAMA_8B, arch
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.prediction.stage import quantization
from vllm_doctor.plan.terms.products import products

# Of one layer on one of eight ranks: 16 heads of 512 latents, asked by queries of 1536 channels, answering into 7168.
QUERIES, OUTPUTS = 16 * 512 * 1536, 16 * 512 * 7168
TURNED = 2 * 16 * 64 * 1536  # always in 16 bits
VIEWS = 2 * 16 * (128 + 128) * 512  # that are copies of what was quantized alone


def _kept(version, env=None, config=DEEPSEEK_LIKE, line="-tp 8"):
    v, a = as_version(version), arch(config)
    told = [*(f"{k}={n}" for k, n in (env or {}).items()), "vllm", "serve", "m", *line.split()]
    s = resolve(parse_launch(told, v), v, a, None, 139.8, 8)
    return products(a, s, quantization(a, s), 0)


def test_floats_of_eight_bits_are_quantized_again_and_others_wide():
    # DeepSeek-R1 on eight H200 logs 83.88 GiB of weights with 0.7.3, where the checkpoint's part is 79.55.
    scales = 4 * (16 * 512 // 128) * (1536 + 7168) // 128
    assert _kept("0.7.3") == 61 * (QUERIES + OUTPUTS + scales + TURNED)
    wide = {"VLLM_MLA_DISABLE_REQUANTIZATION": "1"}
    assert _kept("0.7.3", wide) == 61 * (2 * (QUERIES + OUTPUTS) + TURNED)


def test_what_is_not_quantized_needs_no_copy_of_the_up_projections():
    plain = {k: n for k, n in DEEPSEEK_LIKE.items() if k != "quantization_config"}
    assert _kept("0.7.3", config=plain) == 61 * (2 * (QUERIES + OUTPUTS) + TURNED - VIEWS)


def test_each_stage_has_those_of_its_layers():
    v, a = as_version("0.7.3"), arch(DEEPSEEK_LIKE)
    s = resolve(parse_launch(["vllm", "serve", "m", "-tp", "8", "-pp", "2"], v), v, a, None, 139.8, 16)
    parts = [products(a, s, quantization(a, s), stage) for stage in (0, 1)]
    assert sum(parts) == pytest.approx(_kept("0.7.3"))
    assert parts[0] == pytest.approx(parts[1] * 30 / 31)


@pytest.mark.parametrize(
    ("version", "env", "config"),
    [
        ("0.7.0", {}, DEEPSEEK_LIKE),
        ("0.8.2", {"VLLM_USE_V1": "0"}, DEEPSEEK_LIKE),
        ("0.7.3", {"VLLM_MLA_DISABLE": "1"}, DEEPSEEK_LIKE),
        ("0.7.3", {"VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0"}, DEEPSEEK_LIKE),
        ("0.7.3", {}, LLAMA_8B),
    ],
)
def test_other_releases_and_models_keep_none(version, env, config):
    assert _kept(version, env, config) == 0.0
