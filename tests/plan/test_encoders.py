"""Models with an encoder: what they keep, and what two logged starts of Whisper say."""

import json

import pytest

from tests.plan.models import arch
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.weights import GIB, WeightTarget, rank_weights

WHISPER = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "d_model": 1280,
    "encoder_layers": 32,
    "num_hidden_layers": 32,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "vocab_size": 51866,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "is_encoder_decoder": True,
    "torch_dtype": "float16",
}
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "torch_dtype": "float32",
}


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(config, version, *options):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        given = ["--gpu", "L4", "--vllm-version", version, "--model-config", str(file), *options]
        code = run(["plan", *given, "--", "vllm", "serve", "m"])
        return code, capsys.readouterr().out

    return asked


def weights(config):
    a = arch(config)
    return rank_weights(a, scheme(a.quantization, None, 2), Parallel(), 0, WeightTarget(2)) / GIB


def test_whisper_is_its_encoder_and_its_decoder():
    # large-v3 logged 2.88 GiB (0.15.1); the turbo model has 809 million parameters, with four layers that decode.
    assert weights(WHISPER) == pytest.approx(2.88, abs=0.01)
    assert weights({**WHISPER, "decoder_layers": 4}) == pytest.approx(809e6 * 2 / GIB, rel=0.003)


@pytest.mark.parametrize(
    ("version", "pool", "tokens", "requests"),
    [("0.15.1", "10.14", 33_216, 26.62), ("0.20.1", "16.9", 19_881, 44.38)],  # as logged
)
def test_each_request_of_whisper_holds_a_step_s_input_beside_its_own_tokens(plan, version, pool, tokens, requests):
    _, told = plan(WHISPER, version, "--available-kv-gib", pool, "--format", "json")
    got = json.loads(told)["predicted"]
    assert got["kv_tokens"] == pytest.approx(tokens, rel=2e-4)
    assert got["max_concurrency"]["x"] == pytest.approx(requests, abs=0.02)


def test_whisper_s_step_is_left_as_it_is_because_each_request_pays_for_it(plan):
    code, told = plan(WHISPER, "0.33.0")
    assert code == Exit.OK
    assert "enable-prefix-caching" not in told
    assert "each token of a step takes memory" not in told


def test_an_encoder_alone_has_no_pool(plan):
    code, told = plan(BERT, "0.33.0")
    assert code == Exit.OK
    assert "KV cache none" in told
    assert told.count("KV cache") == 1  # that line alone
    assert "None tokens" not in told
    _, as_json = plan(BERT, "0.33.0", "--format", "json")
    assert json.loads(as_json)["predicted"]["available_kv_gib"] is None


def test_bert_has_two_matrices_a_layer_and_positions():
    # bge-large-en has 335,141,888 parameters, a pooler of 1,049,600 and biases of 0.1 % among them.
    assert weights({**BERT, "tie_word_embeddings": True}) == pytest.approx(334e6 * 2 / GIB, rel=0.005)
