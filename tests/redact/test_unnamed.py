"""What nothing names in a launch is hidden where it is no word; what vLLM's own options are given stays."""

import json

import pytest

from vllm_doctor.cli.main import run
from vllm_doctor.redact.launch import scrub_argv, secret_values
from vllm_doctor.redact.text import HIDDEN

SECRET = "c4n4ryXq9Lm2"  # noqa: S105 - of nobody
LAUNCHES = {
    "a word too many": [SECRET],
    "behind a switch": ["--enforce-eager", SECRET],
    "an option that no release has": ["--acme-gate", SECRET],
    "the same in one word": [f"--acme-gate={SECRET}"],
    "JSON": ["--hf-overrides", json.dumps({"acme": SECRET})],
    "JSON in one word": [f'--hf-overrides={json.dumps({"acme": [SECRET]})}'],
    "deep in JSON": ["--kv-transfer-config", json.dumps({"kv_connector_extra_config": {"acme": SECRET}})],
    "a key behind a dot": ["--hf-overrides.acme", SECRET],
}  # fmt: skip


@pytest.mark.parametrize("case", LAUNCHES)
def test_it_is_hidden(case: str) -> None:
    argv = ["vllm", "serve", "Qwen/Qwen3-8B", *LAUNCHES[case]]
    told = scrub_argv(argv)
    assert SECRET not in " ".join(told)
    assert HIDDEN in told[-1]
    assert SECRET in secret_values(argv, {})


@pytest.mark.parametrize("output", ["human", "json", "html"])
@pytest.mark.parametrize("case", LAUNCHES)
def test_no_answer_shows_it(case: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    launch = " ".join(["vllm serve Qwen/Qwen3-8B", *(f"'{word}'" for word in LAUNCHES[case])])
    run(["diagnose", "--vllm-version", "0.33.0", "--gpu", "H100", "--launch", launch, "--format", output])
    told = capsys.readouterr()
    assert told.out
    assert SECRET not in told.out + told.err


@pytest.mark.parametrize(
    "words",
    [
        ["--revision", "9c1d3e5f7a2b4c6d8e0f9c1d3e5f7a2b4c6d8e0f"],
        ["--served-model-name", "qwen3-8b", "gpt4o2024mini5x"],
        ["--hf-overrides", '{"architectures": ["Qwen2VLForConditionalGeneration2B"]}'],
        ["--hf-overrides", '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "model_type": "qwen3_moe"}'],
        ["--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'],
        ["--speculative-config", '{"model": "yuhuili/EAGLE3-LLaMA3.1-8B", "revision": "9c1d3e5f7a2b4c6d"}'],
        ["--quantization", "compressed-tensors", "max-model-len=8192"],
        ["--acme-gate", "staging-west"],
    ],
)
def test_what_tells_of_vllm_stays(words: list[str]) -> None:
    assert list(scrub_argv(["vllm", "serve", "Qwen/Qwen3-8B", *words]))[3:] == words


def test_a_command_of_another_program_is_left_as_it_is() -> None:
    assert scrub_argv(["torchrun", SECRET]) == ("torchrun", SECRET)
