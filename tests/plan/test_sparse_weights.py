"""Weights of sparse attention: an indexer where a layer has one, by release, and the tokens that it chooses."""

import pytest

from tests.plan.models import DEEPSEEK_LIKE
from vllm_doctor.plan.question.ask import KnownStart, foresee

GIB = 1 << 30
DSA = {
    **DEEPSEEK_LIKE, "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 2048, "num_nextn_predict_layers": 1, "quantization_config": None,
}  # fmt: skip
SHARED = {**DSA, "index_topk_pattern": "F" + "S" * 60}
INDEXER = 64 * 128 * 1536 + (128 + 64) * 7168  # wq_b, keys and weights in one
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":1}')


def weights(config, version, *more) -> float:
    argv = ("vllm", "serve", "m", "-tp", "8", "--max-model-len", "8192", "--max-num-batched-tokens", "4096", *more)
    told = foresee(KnownStart(argv, version, config, "NVIDIA H200", 139.8, gpus=8))
    assert told is not None
    return told.now.weights_gib * GIB


@pytest.mark.parametrize(("version", "without"), [("0.20.2", 0), ("0.21.0", 60)])
def test_a_layer_that_uses_another_s_choice_has_no_indexer_from_0_21_on(version, without):
    less = weights(DSA, version) - weights(SHARED, version)
    assert less == pytest.approx(without * INDEXER * 2, rel=1e-3)


@pytest.mark.parametrize(("version", "places"), [("0.22.1", 1), ("0.23.0", 0)])
def test_a_layer_that_predicts_more_keeps_what_it_chose_to_0_22(version, places):
    """Beside it, its indexer is the same whatever the model's last layer has."""
    drafted, plain = (weights(SHARED, version, *more) - weights(SHARED, version) for more in (MTP, ()))
    assert plain == 0
    newest = weights(SHARED, "0.33.0", *MTP) - weights(SHARED, "0.33.0")
    assert drafted - newest == pytest.approx(places * 4096 * 2048 * 4, abs=1e6)
    each = weights(DSA, version, *MTP) - weights(DSA, version)
    assert drafted == pytest.approx(each, abs=1e6)
