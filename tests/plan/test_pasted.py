"""What a plan offers to paste is what vLLM takes, and its figures agree with one another."""

import json
import re
import shlex

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.launch.parse import parse_launch

RELEASE = "0.32.0"


@pytest.fixture
def told(tmp_path, capsys, monkeypatch):
    """What a plan says of Llama 3.1 8B on an L4."""
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA_8B), encoding="utf-8")

    def ask(*options: str, explain: bool = False) -> str:
        card = ("--gpu", "NVIDIA L4", "--vllm-version", RELEASE, "--model-config", str(config))
        run(["plan", *card, *["--explain"] * explain, "--", "vllm", "serve", "m", *options])
        return capsys.readouterr().out

    return ask


def test_each_change_that_lets_it_start_is_an_option_that_the_release_takes(told):
    offered = re.findall(r"^    (--\S.*?) {3,}KV cache", told("--max-model-len", "26000"), re.MULTILINE)
    assert "--enforce-eager" in offered
    for option in offered:
        line = parse_launch(("vllm", "serve", "m", *shlex.split(option)), as_version(RELEASE))
        assert (line.model, line.refusals, line.unknown) == ("m", (), ())


def test_a_higher_utilization_says_what_it_takes(told):
    said = told("--max-model-len", "26000", "--gpu-memory-utilization", "0.85")
    assert re.search(
        r"--gpu-memory-utilization 0\.9\d +KV cache .*; less of the card is left outside the budget\n", said
    )


def test_the_reasons_speak_of_the_kv_cache_that_the_launch_gets(told):
    said = told(explain=True)
    gives = re.search(r"gives (\S+) GiB of KV", said)
    assert gives is not None
    assert re.findall(r"        KV cache = (\S+) GiB", said) == [gives[1]]


def test_the_mean_request_that_nobody_measured_is_called_an_assumption(told):
    assert "requests of 2048 tokens (assumed; --metrics measures them); more sequences" in told(explain=True)


def test_a_cache_in_8_bits_that_nobody_asked_for_is_told_beside_the_launch(told):
    said = told("--max-model-len", "60000")
    assert "--kv-cache-dtype fp8" in said.partition("  holds ")[0]
    assert "\n  costs    some accuracy: --kv-cache-dtype fp8\n" in said


def test_one_that_was_asked_for_is_not(told):
    assert "costs    some accuracy" not in told("--max-model-len", "40000", "--kv-cache-dtype", "fp8")
