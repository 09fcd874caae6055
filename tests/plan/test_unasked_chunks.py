"""Prompts that V0 chunks unasked (engine/arg_utils.py of 0.5.3 to 0.10.2), and the engine of another platform."""

import pytest

from tests.plan.models import LLAMA_8B, arch
from vllm_doctor.knowledge.gpus import elsewhere, find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve


def resolved(version, line="", gpu="A100-SXM4-80GB", **config):
    v, a, card = as_version(version), arch({**LLAMA_8B, **config}), find(gpu) or elsewhere(gpu)
    return resolve(parse_launch(["vllm", "serve", "m", *line.split()], v), v, a, card, 80.0, 1)


LONG = "--max-model-len 65536"


@pytest.mark.parametrize("version", ["0.5.3", "0.6.3", "0.7.2"])
def test_a_long_prompt_is_chunked(version):
    assert resolved(version, LONG).batched < 65536
    assert resolved(version, "--max-model-len 32768").batched == 32768


@pytest.mark.parametrize("line", ["--enable-lora", "--speculative-model [ngram] --num-speculative-tokens 3"])
def test_not_with_what_chunks_do_not_go_with(line):
    assert not resolved("0.6.4", f"{LONG} {line}").chunked


def test_not_where_every_layer_attends_to_a_window():
    windowed = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    assert not resolved("0.6.3", LONG, **windowed).chunked
    assert resolved("0.6.3", LONG, **{**windowed, "sliding_window": None}).chunked


@pytest.mark.parametrize(("version", "chunked"), [("0.6.3", True), ("0.6.5", False), ("0.7.2", False)])
def test_amd_s_devices_chunk_to_0_6_4(version, chunked):
    assert resolved(version, LONG, "MI300X").chunked is chunked


@pytest.mark.parametrize(("version", "engine"), [("0.8.5", "V0"), ("0.9.1", "V0"), ("0.9.2", "V1"), ("0.11.0", "V1")])
def test_another_platform_falls_back_to_v0_until_0_9_2(version, engine):
    assert resolved(version, gpu="MI300X").engine == engine
    assert resolved(version).engine == "V1"
