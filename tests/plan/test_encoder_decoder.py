"""What does not go with a model that has an encoder and a decoder on the first engine, and drafts beside adapters."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import refused, settings
from vllm_doctor.plan.support import judge

BART = {**LLAMA_8B, "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "is_encoder_decoder": True}
DRAFTS = "--enable-lora --max-num-seqs 512 --max-num-batched-tokens {} --speculative-config "
EAGLE = '{"method":"eagle","model":"x/y","num_speculative_tokens":3}'


@pytest.mark.parametrize("option", ["--enable-prefix-caching", "--enable-chunked-prefill", "--enable-lora"])
def test_an_option_that_the_runner_does_not_take_is_refused(option):
    assert option in refused(BART, option, "0.6.4")
    assert option in refused(BART, option, "0.9.2")
    assert option not in refused(BART, "", "0.6.4")
    assert option not in refused(LLAMA_8B, option, "0.6.4")


def test_stages_are_refused_once():
    assert refused(BART, "--pipeline-parallel-size 2", "0.6.4").count("--pipeline-parallel-size") == 1


@pytest.mark.parametrize(
    ("version", "step", "told"), [("0.19.1", 2047, True), ("0.19.1", 2048, False), ("0.11.0", 2047, False)]
)
def test_a_step_holds_what_is_drafted_for_all_sequences_with_adapters(version, step, told):
    flags = DRAFTS.format(step) + EAGLE
    assert ("--max-num-batched-tokens" in refused(LLAMA_8B, flags, version)) == told
    assert "--max-num-batched-tokens" not in refused(LLAMA_8B, flags.replace("--enable-lora", ""), version)


@pytest.mark.parametrize(("version", "told"), [("0.33.0", True), ("0.15.1", False), ("0.9.2", False)])
def test_a_model_that_is_left_to_a_plugin_is_told_with_its_address(version, told):
    a, s, gpu = settings(BART, "", version)
    doubts = judge(a, s, gpu).doubts
    assert doubts
    assert any("bart-plugin" in one for one in doubts) == told
