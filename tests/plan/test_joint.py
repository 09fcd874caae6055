"""What a release's configuration refuses of a launch as a whole, by the tests that its wheel states: each with a launch
beside it that differs in one thing and is not refused for it."""

import dataclasses

import pytest

from tests.plan.models import LLAMA_8B, arch
from tests.plan.test_refused import EXPERTS, settings
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve

DRAFTS = "--speculative-config"
ADAPTS = '{"method":"ngram","num_speculative_tokens":3,"enable_adaptive_verification":true}'
PLAIN = '{"method":"ngram","num_speculative_tokens":3}'
FLY = '{"method":"ngram","num_speculative_tokens":%d,"rejection_sample_method":"fly"}'


def refused(config, flags, version="0.33.0", card="H100"):
    _, s, _ = settings(config, flags, version, card)
    return [(r.flag, r.found, r.needed) for r in s.refusals]


@pytest.mark.parametrize(
    ("config", "version", "flags", "taken", "told"),
    [
        (
            LLAMA_8B,
            "0.33.0",
            f"--speculative-config {ADAPTS} --enable-lora",
            f"--speculative-config {PLAIN} --enable-lora",
            (
                "--speculative-config",
                "enable_adaptive_verification true",
                "no --enable-lora beside enable_adaptive_verification of --speculative-config",
            ),
        ),
        (
            LLAMA_8B,
            "0.33.0",
            f"--speculative-config {FLY % 1}",
            f"--speculative-config {FLY % 2}",
            (
                "--speculative-config",
                'rejection_sample_method "fly"',
                f"num_speculative_tokens of {DRAFTS} of 2 or more beside rejection_sample_method of {DRAFTS}",
            ),
        ),
        (
            EXPERTS,
            "0.10.2",
            "--enable-lora --max-lora-rank 48",
            "--enable-lora --max-lora-rank 64",
            ("--max-lora-rank", "48", "--max-lora-rank of one of 8, 16, 32, 64, 128, 256, 320, 512"),
        ),
        (
            LLAMA_8B,
            "0.33.0",
            "--return-sampling-mask --logprobs-mode raw_logprobs",
            "--return-sampling-mask --logprobs-mode processed_logprobs",
            (
                "--return-sampling-mask",
                "set",
                "--logprobs-mode of processed_logprobs beside --return-sampling-mask",
            ),
        ),
    ],
)
def test_a_refusal_of_the_release_is_told_with_what_would_do(config, version, flags, taken, told):
    assert told in refused(config, flags, version)
    assert told[0] not in [flag for flag, _, _ in refused(config, taken, version)]


NGRAM = '--speculative-config {"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":3}'
PCP = "--tensor-parallel-size 2 --prefill-context-parallel-size 2"
RECURRENT = {
    **LLAMA_8B,
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid",
    "layer_types": ["mamba", "attention"] * 16,
    "mamba_n_heads": 64,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_d_conv": 4,
    "mamba_expand": 1,
    "mamba_n_groups": 1,
    "shared_intermediate_size": 1024,
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
}


@pytest.mark.parametrize("version", ["0.10.2", "0.11.2", "0.12.0", "0.16.0"])
def test_what_a_layer_or_the_runner_asks_of_the_configuration_is_read_too(version):
    # MambaBase.get_kv_cache_spec and GPUModelRunner.get_kv_cache_spec: drafts beside recurrent layers.
    flags, env = NGRAM.split(" ", 1), {"VLLM_USE_V1": "1"}
    needed = "a model without recurrent layers or a model type of one of qwen3_next beside --speculative-config"
    assert needed in [r.needed for r in drafted(RECURRENT, env, flags, version)]
    assert not drafted(LLAMA_8B, env, flags, version)
    assert not drafted({**RECURRENT, "model_type": "qwen3_next"}, env, flags, version)
    assert not drafted(RECURRENT, env, flags, "0.20.0")


def drafted(config, env, flags, version):
    v, gpu = as_version(version), find("H100")
    words = [*(f"{name}={value}" for name, value in env.items()), "vllm", "serve", "m", *flags]
    told = resolve(parse_launch(words, v), v, arch(config), gpu, gpu.total_gib, 1).refusals
    return [one for one in told if one.flag == DRAFTS]


def test_the_second_runner_asks_ranks_that_share_a_prompt():
    needed = "a model with latent attention (MLA) beside --prefill-context-parallel-size"
    assert ("--prefill-context-parallel-size", "2", needed) in refused(LLAMA_8B, PCP, "0.33.0")
    assert needed not in [told for _, _, told in refused(LLAMA_8B, "--tensor-parallel-size 2", "0.33.0")]


def test_a_list_is_asked_one_by_one():
    ops = '--compilation-config {"custom_ops":[%s]}'
    assert refused(LLAMA_8B, ops % '"none","rms_norm"', "0.33.0") == [
        (
            "--compilation-config",
            'custom_ops ["none", "rms_norm"]',
            "another value of custom_ops of --compilation-config",
        )
    ]
    assert not refused(LLAMA_8B, ops % '"none","+rms_norm"', "0.33.0")


def test_what_is_told_of_one_option_is_not_told_again_of_the_option_beside_it():
    flags = "--tensor-parallel-size 4 --decode-context-parallel-size 3"
    told = ("--decode-context-parallel-size", "3", "a divisor of --tensor-parallel-size, 4")
    assert refused(LLAMA_8B, flags) == [told]


def test_a_release_between_two_that_disagree_refuses_nothing_by_them():
    flags = "--async-scheduling --pipeline-parallel-size 2"
    needed = "--pipeline-parallel-size of at most 1 beside --async-scheduling"
    assert refused(LLAMA_8B, flags, "0.14.1") == [("--async-scheduling", "set", needed)]  # read, and it asks
    assert refused(LLAMA_8B, flags, "0.17.1") == []  # read, and it does not
    assert refused(LLAMA_8B, flags, "0.15.0") == []  # not read


def test_a_value_that_the_release_changes_before_it_asks_makes_no_refusal():
    # moonep is set and unset while the configuration is made, so nobody knows what it holds when it is asked.
    assert not refused(EXPERTS, "--all2all-backend moonep --quantization fp8")


NEITHER = "--all2all-backend of one of deepep_low_latency, deepep_high_throughput beside --enable-dbo"


def test_a_value_that_the_release_may_set_is_one_of_those_that_stand_in_its_code():
    # 0.20.2 makes pplx and naive allgather_reducescatter; 0.11.2 takes VLLM_ALL2ALL_BACKEND where no option is given.
    for version in ("0.11.2", "0.20.2"):
        assert ("--enable-dbo", "set", NEITHER) in refused(EXPERTS, "--enable-dbo", version)
        assert not refused(EXPERTS, "--enable-dbo --all2all-backend deepep_low_latency", version)
    assert ("--enable-dbo", "set", NEITHER) in refused(EXPERTS, "--enable-dbo --all2all-backend naive", "0.20.2")
    told = settings_with(EXPERTS, {"VLLM_ALL2ALL_BACKEND": "deepep_low_latency"}, "--enable-dbo", "0.11.2")
    assert not told  # 0.20.2 no longer reads the variable


def settings_with(config, env, flags, version):
    v, gpu = as_version(version), find("H100")
    words = [*(f"{name}={value}" for name, value in env.items()), "vllm", "serve", "m", *flags.split()]
    return resolve(parse_launch(words, v), v, arch(config), gpu, gpu.total_gib, 1).refusals


def test_defaults_alone_are_never_refused():
    for version in ("0.8.5", "0.10.2", "0.11.0", "0.19.1", "0.25.1", "0.28.0", "0.30.0", "0.33.0"):
        assert refused(LLAMA_8B, "", version) == []
        assert refused(EXPERTS, "--tensor-parallel-size 2 --enable-expert-parallel", version) == []


@pytest.mark.parametrize(("flags", "version", "told"), [("", "0.5.4", True), ("--enforce-eager", "0.5.4", False)])
def test_a_default_is_refused_where_the_checkpoint_asks_for_another(flags, version, told):
    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}
    needed = "--enforce-eager, without which 0.5.4 takes no bitsandbytes"
    found = refused({**LLAMA_8B, "quantization_config": stored}, flags, version)
    assert (("--enforce-eager", "not set", needed) in found) is told


def test_another_makers_device_is_not_asked():
    v, gpu = as_version("0.33.0"), dataclasses.replace(find("H100"), backend="ROCm")
    line = parse_launch(["vllm", "serve", "m", "--speculative-config", ADAPTS, "--enable-lora"], v)
    s = resolve(line, v, arch(LLAMA_8B), gpu, gpu.total_gib, 1)
    assert "--speculative-config" not in [r.flag for r in s.refusals]


OWN = '{"method":"draft_model","model":"d","num_speculative_tokens":3%s}'
SEEN = {**LLAMA_8B, "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "vision_config": {}}
SEEN["text_config"] = LLAMA_8B


@pytest.mark.parametrize(
    ("config", "version", "more", "flags", "refused"),
    [
        (SEEN, "0.20.2", "", [], True),
        (SEEN, "0.15.0", "", [], True),
        (SEEN, "0.21.0", "", [], False),
        (SEEN, "0.20.2", "", ["--limit-mm-per-prompt", '{"image":0}'], False),
        (SEEN, "0.20.2", "", ["--language-model-only"], False),
        (LLAMA_8B, "0.20.2", "", [], False),
        (LLAMA_8B, "0.20.2", ',"disable_padded_drafter_batch":true', [], True),
    ],
)
def test_a_drafters_own_class_asks_the_configuration_where_it_is_made(config, version, more, flags, refused):
    # DraftModelProposer and SpecDecodeBaseProposer (v1/spec_decode) of the first runner.
    told = drafted(config, {}, [DRAFTS, OWN % more, *flags], version)
    assert bool(told) is refused
