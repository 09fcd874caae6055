"""A GGUF file is described by Transformers, which reads some architectures and not others."""

import json

import pytest

from tests.plan.models import DEEPSEEK_LIKE, GPT_OSS_20B, LLAMA_8B
from vllm_doctor.plan.question.planner import Question, planner
from vllm_doctor.plan.support.gguf import kinds

EXPERTS = {
    **LLAMA_8B,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 48,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
JOINED = {**LLAMA_8B, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
SEES = {
    **EXPERTS,
    "architectures": ["Qwen3VLMoeForConditionalGeneration"],
    "model_type": "qwen3_vl_moe",
    "text_config": {**EXPERTS, "model_type": "qwen3_vl_moe_text"},
}
PLAIN_DEEPSEEK = {key: value for key, value in DEEPSEEK_LIKE.items() if key != "quantization_config"}
PLAIN_GPT_OSS = {key: value for key, value in GPT_OSS_20B.items() if key != "quantization_config"}


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(config, version, flags="", *, model="/m/a-Q4_K_M.gguf", cards=1):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        words = ("vllm", "serve", model, "--max-model-len", "4096", *flags.split())
        return planner(Question(words, "H100", cards, None, version, str(file))).predict()

    return asked


@pytest.mark.parametrize(
    ("config", "version", "verdict", "says"),
    [
        (LLAMA_8B, "0.5.4", "does-not-start", "0.5.5 is the first that does"),
        (LLAMA_8B, "0.5.5", "starts", None),
        (LLAMA_8B, "0.8.5", "starts", None),
        # 0.8.5 takes Transformers 4.51.1 and all later ones; 0.10.1 asks for 4.55.0, which reads it.
        (EXPERTS, "0.8.5", "uncertain", "4.55.0 is the first that reads a GGUF file of architecture qwen3moe"),
        (EXPERTS, "0.10.1", "starts", None),
        (PLAIN_GPT_OSS, "0.13.0", "does-not-start", "no Transformers before 5, which 0.13.0 asks for"),
        (PLAIN_GPT_OSS, "0.20.0", "uncertain", "5.6.0 is the first"),
        (PLAIN_GPT_OSS, "0.24.0", "unknown", "vllm-gguf-plugin"),
        (PLAIN_DEEPSEEK, "0.8.1", "does-not-start", "no Transformers reads such a file"),
        (SEES, "0.12.0", "does-not-start", "no Transformers reads such a file"),
        # 0.12.0 alone looks for each expert in the file (vLLM issue 38716).
        (EXPERTS, "0.11.2", "starts", None),
        (EXPERTS, "0.12.0", "does-not-start", "looks for each expert in a file that joins them"),
        (EXPERTS, "0.13.0", "starts", None),
        (LLAMA_8B, "0.12.0", "starts", None),
        # Phi 3 stores gate and up as one matrix (vLLM issue 11970).
        (JOINED, "0.6.6", "does-not-start", "0.6.6 takes no joined projections from such a file"),
        (JOINED, "0.7.0", "starts", None),
    ],
)
def test_the_release_asks_for_a_transformers_that_reads_the_file_or_not(ask, config, version, verdict, says):
    p = ask(config, version)
    told = [*(str(r.needed) for r in p.settings.refusals), *map(str, p.settings.depends), *p.settings.doubts]
    assert p.verdict == verdict, told
    assert says is None or any(says in text for text in told), told


@pytest.mark.parametrize(
    ("words", "version", "refused"),
    [(32008, "0.6.6", ["--tensor-parallel-size"]), (32000, "0.6.6", []), (32008, "0.7.0", [])],
)
def test_ranks_split_no_vocabulary_that_is_filled_up_to_0_6(ask, words, version, refused):
    found = ask({**LLAMA_8B, "vocab_size": words}, version, "-tp 2", cards=2).settings.refusals
    assert [one.flag for one in found] == refused


def test_another_description_is_not_read_from_the_file(ask):
    assert ask(PLAIN_DEEPSEEK, "0.11.0", "--hf-config-path /m").settings.refusals == ()


def test_a_description_that_names_another_method_is_refused(ask):
    stored = {**PLAIN_DEEPSEEK, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    refused = ask(stored, "0.11.0", "--hf-config-path /m").settings.refusals
    assert [(r.flag, r.needed) for r in refused] == [("--hf-config-path", "one without quantization_config")]


def test_a_checkpoint_in_another_format_asks_nothing_of_it(ask):
    assert ask(PLAIN_DEEPSEEK, "0.11.0", model="owner/name").settings.refusals == ()


def test_each_first_version_is_one_of_transformers():
    numbers = [reader.since for reader in kinds().values() if reader.since]
    assert all(number[0] in "45" and number.replace(".", "").isdigit() for number in numbers)
    assert {reader.architecture for reader in kinds().values()} >= {"llama", "qwen3moe", "gpt-oss", "deepseek2"}
