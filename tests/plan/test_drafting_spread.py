"""How much less sure the pool is beside what drafts."""

import json

import pytest

from tests.plan.models import HYBRID_LIKE
from vllm_doctor.cli.main import run


@pytest.fixture
def width(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(HYBRID_LIKE))

    def asked(version, **drafts):
        flags = ["--speculative-config", json.dumps(drafts | {"num_speculative_tokens": 3})] if drafts else []
        given = ["--gpu", "H100", "--vllm-version", version, "--model-config", str(file), "--format", "json"]
        line = ["vllm", "serve", "m", "--max-model-len", "8192", "--max-num-seqs", "8", "--enforce-eager", *flags]
        run(["plan", *given, "--", *line])
        low, high = json.loads(capsys.readouterr().out)["margin"]["available_kv_gib"]
        return round(high - low, 2)

    return asked


def test_layers_of_its_own_widen_the_range_little_and_a_drafter_much(width):
    none, own = width("0.24.0"), width("0.24.0", method="mtp")
    drafter = width("0.24.0", method="eagle3", model="d")
    assert 0 <= own - none <= 0.2
    assert drafter - own >= 0.8


def test_what_looks_drafts_up_in_the_prompt_has_no_tensors(width):
    assert width("0.24.0", method="ngram", prompt_lookup_max=4) - width("0.24.0") < 0.05
