"""A block of the pool for each sequence of a model with recurrent layers."""

import json

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B
from vllm_doctor.plan.advice.recommendation import safe
from vllm_doctor.plan.advice.remedies import remedies
from vllm_doctor.plan.question.planner import Question, planner


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(flags="", *, config=HYBRID_LIKE, gpu="H100", memory=None, version="0.28.0"):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        words = ("vllm", "serve", "m", "--max-model-len", "8192", *flags.split())
        return planner(Question(words, gpu, 1, memory, version, str(file)))

    return asked


@pytest.mark.parametrize(
    ("flags", "version", "outcome"),
    [
        ("", "0.28.0", "too-few-states"),
        ("--max-num-seqs 128", "0.28.0", "ok"),
        ("--enforce-eager", "0.28.0", "ok"),
        ('--compilation-config {"cudagraph_mode":"PIECEWISE"}', "0.28.0", "ok"),
        ("-O1", "0.28.0", "ok"),
        ("--num-gpu-blocks-override 1023", "0.28.0", "too-few-states"),
        ("--num-gpu-blocks-override 1024", "0.28.0", "ok"),
        ("", "0.19.1", "ok"),
    ],
)
def test_a_start_ends_with_fewer_blocks_than_sequences(ask, flags, version, outcome):
    p = ask(flags, version=version).predict()
    assert p.outcome == outcome
    if outcome != "ok" and "override" not in flags:
        assert p.gpu_blocks < 1024
        assert p.verdict == "does-not-start"


def test_a_model_without_such_layers_is_not_asked(ask):
    assert ask(config=LLAMA_8B).predict().outcome == "ok"


def test_without_a_name_of_the_card_nobody_knows_how_many_sequences_there_are(ask):
    """An A100 has 256 unasked, an H100 of the same size 1024."""
    assert ask(gpu=None, memory="79.2").predict().outcome == "ok"
    assert ask("--max-num-seqs 1024", gpu=None, memory="79.2").predict().outcome == "too-few-states"


def test_at_the_edge_it_is_uncertain_and_not_advised(ask):
    p = ask("--max-num-seqs 128").predict()
    few = ask(f"--max-num-seqs {p.gpu_blocks - 2}").predict()
    assert (few.verdict, few.doubtful, safe(few)) == ("uncertain", "too-few-states", False)


def test_fewer_sequences_are_the_first_change_and_the_share_stays(ask):
    planned = ask()
    found = remedies(planned)
    assert found[0].flag == "max-num-seqs"
    assert "max-num-batched-tokens" not in {r.flag for r in found}
