"""Graphs are tried out before the pool, on a cache that a card may not have room for."""

import json

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B
from vllm_doctor.plan.question.planner import Question, planner

MIB = 1 << 20
# The states of 27B, 49 MiB for a request, beside weights of 3.8 GiB.
NARROW = HYBRID_LIKE | {"hidden_size": 1024, "intermediate_size": 2048}


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(flags="", *, config=NARROW, gpu="NVIDIA RTX A4000", version="0.28.0"):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        words = ("vllm", "serve", "m", "--max-model-len", "8192", *flags.split())
        return planner(Question(words, gpu, 1, None, version, str(file))).predict()

    return asked


@pytest.mark.parametrize(
    ("flags", "version", "outcome"),
    [
        ("--max-num-seqs 256", "0.28.0", "oom-cudagraph"),
        ("--max-num-seqs 256 --gpu-memory-utilization 0.94", "0.28.0", "oom-cudagraph"),  # the whole card is not enough
        ("--max-num-seqs 256 --gpu-memory-utilization 0.80", "0.28.0", "oom-cudagraph"),
        ("--max-num-seqs 256 --enforce-eager", "0.28.0", "ok"),
        ("--max-num-seqs 256 --max-cudagraph-capture-size 16", "0.28.0", "too-few-states"),
        ("--max-num-seqs 32", "0.28.0", "ok"),
        ("--max-num-seqs 256", "0.17.1", "ok"),  # nothing is tried out
        # To 0.25 there are as many blocks as the largest graph has tokens, however few the sequences.
        ("--max-num-seqs 32 --max-cudagraph-capture-size 512", "0.25.1", "oom-cudagraph"),
        ("--max-num-seqs 32 --max-cudagraph-capture-size 512", "0.26.0", "ok"),
    ],
)
def test_the_cache_for_trying_graphs_out_has_a_state_for_each_request(ask, flags, version, outcome):
    p = ask(flags, version=version)
    assert p.outcome == outcome, (p.outcome, p.weights_gib, p.available_kv_gib, p.checked.block_bytes / MIB)


def test_blocks_of_attention_alone_are_small(ask):
    assert ask(config=LLAMA_8B, gpu="NVIDIA L4").outcome == "ok"


@pytest.mark.parametrize(
    ("gpu", "version", "passing"),
    [
        # 35 graphs of whole batches of at most 256; the first is charged once
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "0.28.0", 0.17 * 34),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "0.25.1", 0.0),
        ("H100", "0.28.0", 0.0),
    ],
)
def test_graphs_of_delta_nets_may_be_charged_what_they_take_in_passing(ask, gpu, version, passing):
    eager, few = "--max-num-seqs 256 --enforce-eager", "--max-num-seqs 256"
    p = ask(few, gpu=gpu, version=version)
    below = p.available_kv_gib - p.margin_gib[0]
    plain = ask(eager, gpu=gpu, version=version)
    assert below - (plain.available_kv_gib - plain.margin_gib[0]) == pytest.approx(passing, abs=0.6)
