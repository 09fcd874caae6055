"""From 0.8 to 0.10 a release has two engines, and falls back to V0 for what its V1 does not take."""

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B, arch
from tests.plan.test_launch import resolved
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve

GGUF = {**LLAMA_8B, "quantization_config": {"quant_method": "gguf"}}
EMBEDS = {**LLAMA_8B, "architectures": ["LlamaModel"]}
MLLAMA = {**LLAMA_8B, "architectures": ["MllamaForConditionalGeneration"]}
EAGLE = '--speculative-config {"method":"eagle3","model":"d","num_speculative_tokens":3}'


def asked(line: str, version: str, card: str = "L4", config=LLAMA_8B):
    v, gpu = as_version(version), find(card)
    return resolve(parse_launch(line.split(), v), v, arch(config), gpu, gpu.total_gib, 8)


@pytest.mark.parametrize(
    ("flags", "card", "last", "first"),
    [
        ("", "T4", "0.10.1", "0.10.2"),
        ("--kv-cache-dtype fp8", "L4", "0.10.2", "0.11.0"),
        ("--kv-cache-dtype fp8", "H100", "0.8.1", "0.8.2"),
        ("--cpu-offload-gb 4", "L4", "0.8.2", "0.8.3"),
        ("--pipeline-parallel-size 2", "L4", "0.9.0", "0.9.1"),
        ("--pipeline-parallel-size 2 --distributed-executor-backend ray", "L4", "0.8.2", "0.8.3"),
        ("--num-scheduler-steps 8", "L4", "0.10.0", "0.10.1"),
        ("--guided-decoding-backend guidance", "L4", "0.8.1", "0.8.2"),
        ("--guided-decoding-backend outlines", "L4", "0.10.0", "0.10.1"),
        ("--dtype float32", "L4", "0.9.1", "0.9.2"),
        ("--enable-lora", "L4", "0.8.2", "0.8.3"),
        (EAGLE, "L4", "0.8.5", "0.9.0"),
    ],
)
def test_a_launch_runs_on_v0_until_v1_takes_what_it_asks_for(flags, card, last, first):
    assert [resolved(flags, v, card, gpus=2).engine for v in (last, first)] == ["V0", "V1"]


@pytest.mark.parametrize(
    ("config", "last", "first"),
    [
        (MLLAMA, "0.10.2", "0.11.0"),
        (GGUF, "0.8.5", "0.9.0"),
        (EMBEDS, "0.9.1", "0.9.2"),
        (HYBRID_LIKE, "0.10.1", "0.10.2"),
    ],
)
def test_so_does_a_model(config, last, first):
    assert [resolved("", v, "L4", config=config).engine for v in (last, first)] == ["V0", "V1"]


def test_v1_runs_where_nothing_is_in_its_way():
    assert [resolved("", v, "L4").engine for v in ("0.7.3", "0.8.0", "0.8.5", "0.10.0", "0.11.0")] == [
        "V0", "V1", "V1", "V1", "V1",
    ]  # fmt: skip


def test_the_plan_says_why_it_is_v0():
    told = [n for n in resolved("--kv-cache-dtype fp8", "0.9.0", "L4").notes if "V0" in n]
    assert told == ["vLLM 0.9.0 runs this on its V0 engine: its V1 does not take --kv-cache-dtype"]


def test_v1_that_is_asked_for_by_hand_ends_there_or_takes_what_is_experimental():
    t4 = asked("VLLM_USE_V1=1 vllm serve m", "0.9.0", "T4")
    assert [(r.flag, r.needed) for r in t4.refusals] == [
        ("VLLM_USE_V1", "0, or unset: V1 does not take compute capability below 8.0")
    ]
    assert asked("VLLM_USE_V1=1 vllm serve m --enable-lora", "0.8.2").engine == "V1"
    assert asked("VLLM_USE_V1=1 vllm serve m --enable-lora", "0.8.2").refusals == ()
    assert asked("VLLM_USE_V1=0 vllm serve m", "0.9.0").engine == "V0"


def test_v1_of_0_7_offloads_no_weights():
    told = asked("VLLM_USE_V1=1 vllm serve m --cpu-offload-gb 12", "0.7.3")
    assert told.host.weights_gib == 0
    assert any("--cpu-offload-gb" in n for n in told.notes)
    assert asked("vllm serve m --cpu-offload-gb 12", "0.7.3").host.weights_gib == 12
