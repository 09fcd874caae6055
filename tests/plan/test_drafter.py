"""What a drafter and an unsaid runner take: what follows from the model is counted, what does not widens the range or
leaves the verdict open."""

import json

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.plan.prediction.predict import Prediction
from vllm_doctor.plan.question.ask import KnownStart, foresee

EAGLE3 = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
QUANTISED = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}


def planned(config=LLAMA_8B, env=(), version="0.33.0", **drafts) -> Prediction:
    words = ("--speculative-config", json.dumps(drafts)) if drafts else ()
    argv = (*env, "vllm", "serve", "m", "--max-model-len", "8192", *words)
    told = foresee(KnownStart(argv, version, config, "NVIDIA H100 80GB HBM3", 79.19))
    assert told is not None
    return told.now


def range_(p: Prediction) -> float:
    assert p.margin_gib is not None
    return p.margin_gib[1] - p.margin_gib[0]


@pytest.mark.parametrize("drafts", [{"model": EAGLE3}, {"model": "d", "method": "eagle3"}])
def test_an_eagle_3_drafter_has_a_wider_first_layer_and_a_head_of_its_own(drafts):
    # 0.43e9 values of the published drafter, 0.79 GiB.
    p = planned(num_speculative_tokens=3, **drafts)
    assert p.weights_gib - planned().weights_gib == pytest.approx(0.79, abs=0.01)


def test_its_head_may_have_the_models_whole_vocabulary_which_no_launch_shows():
    third, second = (planned(method=m, model="d", num_speculative_tokens=3) for m in ("eagle3", "eagle"))
    whole = (128256 - 32000) * 4096 * 2 / (1 << 30)
    assert third.margin_gib is not None
    assert third.available_kv_gib is not None
    assert range_(third) - range_(second) == pytest.approx(whole, abs=0.01)
    assert third.widest is not None


def test_each_models_own_name_of_its_mtp_layers_is_mtp():
    config = {**LLAMA_8B, "num_nextn_predict_layers": 1}
    short, own = (planned(config, method=m, num_speculative_tokens=1).weights_gib for m in ("mtp", "qwen3_next_mtp"))
    assert short == own
    assert own > planned(config).weights_gib


@pytest.mark.parametrize("drafts", [{"model": "meta-llama/Llama-3.2-1B"}, {"model": "z-lab/Qwen3-8B-DFlash"}])
def test_a_drafter_that_is_a_model_of_its_own_leaves_the_verdict_open(drafts):
    p = planned(num_speculative_tokens=3, **drafts)
    assert p.verdict == "unknown"
    assert any("is a model of its own" in doubt for doubt in p.settings.doubts)


def test_n_grams_take_no_memory():
    p = planned(method="ngram", num_speculative_tokens=4, prompt_lookup_max=4)
    assert p.weights_gib == planned().weights_gib
    assert p.verdict == "starts"


def test_where_no_code_says_which_runner_a_quantised_model_has_the_range_holds_both():
    bare = planned(QUANTISED, version="0.26.0")
    first, second = (planned(QUANTISED, (f"VLLM_USE_V2_MODEL_RUNNER={on}",), version="0.26.0") for on in (0, 1))
    assert bare.margin_gib is not None
    for one in (first, second):
        assert one.available_kv_gib is not None
        assert bare.margin_gib[0] <= one.available_kv_gib <= bare.margin_gib[1]
    assert range_(bare) > range_(first)
    assert not planned(QUANTISED, version="0.29.0").settings.runner_open
    assert not planned(version="0.26.0").settings.runner_open
