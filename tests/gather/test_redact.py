"""Secrets go, what tells about memory stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_doctor.gather.redact import HIDDEN, scrub, scrub_argv, scrub_env, scrub_values, secret_values

SECRET = "hunter2-Xyz-42-canary"  # noqa: S105 - a canary


@pytest.mark.parametrize(
    "line",
    [
        f"non-default args: {{'api_key': ['{SECRET}'], 'model': 'm'}}",
        f"args: Namespace(host=None, api_key='{SECRET}', max_num_seqs=8)",
        f"VLLM_API_KEY={SECRET}",
        f"vllm serve m --api-key {SECRET} --port 1",
        f"vllm serve m --api-key={SECRET}",
        f'{{"hf_token": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"proxy http://user:{SECRET}@proxy.example:3128/",
        f"HF_TOKEN='{SECRET}' AWS_SECRET_ACCESS_KEY={SECRET}",
        f"password: {SECRET}",
        f"Received request cmpl-1: prompt: 'my {SECRET} text, with commas', params: SamplingParams(n=1)",
        f'prompt: "{SECRET}", prompt_token_ids: [1, 2, 3]',
    ],
)
def test_secrets_by_the_name_beside_them(line: str) -> None:
    assert SECRET not in scrub(line)
    assert HIDDEN in scrub(line)


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "a1B2" * 8, "sk-" + "a1B2" * 6, "ghp_" + "a1B2" * 8, "AKIA" + "ABCD" * 4, "glpat-" + "a1B2" * 5,
        "eyJhbGciOi.eyJzdWIiOi." + "a1B2" * 4, "nvapi-" + "a1B2" * 8,
    ],
)  # fmt: skip
def test_secrets_by_their_shape(secret: str) -> None:
    assert secret not in scrub(f"something {secret} something")


@pytest.mark.parametrize(
    "line",
    [
        "max_num_batched_tokens=8192 max_tokens=5 tokens: 33",
        "GPU KV cache size: 524,288 tokens, Maximum concurrency for 512 tokens per request: 1024.00x",
        "tokenizer='/srv/model/tiny', skip_tokenizer_init=False, tokenizer_mode=auto, revision=None",
        "--max-num-batched-tokens 2048 --max-model-len 4096",
        "api_key=None, hf_token=None",
        "eos_token_id=2, pad_token_id=0",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB",
        "user-space driver; basic checks; the key figure",
    ],
)
def test_what_tells_about_memory_stays(line: str) -> None:
    assert scrub(line) == line


def test_command_lines_lose_values_and_keep_names() -> None:
    argv = ["vllm", "serve", "m", "--api-key", SECRET, SECRET, "--hf-token=" + SECRET, "--max-model-len", "4096"]
    kept = scrub_argv(argv)
    assert SECRET not in " ".join(kept)
    assert kept[3:6] == ("--api-key", HIDDEN, HIDDEN)
    assert kept[-2:] == ("--max-model-len", "4096")


def test_environments_keep_names_and_only_listed_values() -> None:
    kept = scrub_env({"VLLM_USE_V1": "0", "VLLM_API_KEY": SECRET, "MY_THING": SECRET, "NCCL_DEBUG": "INFO"})
    assert kept == {"VLLM_USE_V1": "0", "VLLM_API_KEY": HIDDEN, "MY_THING": HIDDEN, "NCCL_DEBUG": "INFO"}


def test_a_known_secret_is_found_where_no_name_stands_beside_it() -> None:
    secrets = secret_values(["vllm", "--api-key", SECRET], {"HF_TOKEN": "another-secret", "HOME": "/root"})
    assert secrets == {SECRET, "another-secret"}
    assert scrub_values(f"odd line with {SECRET}!", secrets) == f"odd line with {HIDDEN}!"


@given(st.text(max_size=400))
def test_any_text_can_be_scrubbed_and_twice_is_once(text: str) -> None:
    once = scrub(text)
    assert scrub(once) == once or len(scrub(once)) <= len(once) + len(HIDDEN)
