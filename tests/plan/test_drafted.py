"""Numbers and models of a drafting method, and chunks and prefixes of the first engine: each beside what is taken."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import of_the_launch as flags

QWEN = {**LLAMA_8B, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
MISTRAL = {**LLAMA_8B, "architectures": ["MistralForCausalLM"], "model_type": "mistral"}
WINDOWS = {**MISTRAL, "sliding_window": 4096}
OLD = "--speculative-model [ngram] --num-speculative-tokens 3"
V0 = {"VLLM_USE_V1": "0"}
HEADS = '--speculative-config {"method":"eagle3","model":"x","num_speculative_tokens":3}'


def guessed(more):
    return '--speculative-config {"method":"ngram"' + more + "}"


@pytest.mark.parametrize(
    ("config", "version", "refused"),
    [
        (QWEN, "0.9.2", True),
        (QWEN, "0.10.1", False),
        (LLAMA_8B, "0.8.5", False),
        (MISTRAL, "0.21.0", True),
        (MISTRAL, "0.22.0", False),
    ],
)
def test_heads_of_eagle_3_are_taken_for_the_model_types_that_the_release_names(config, version, refused):
    assert flags(config, HEADS, version) == (["--speculative-config"] if refused else [])


@pytest.mark.parametrize(
    ("words", "version", "told"),
    [
        (guessed(""), "0.16.0", ["--speculative-config"]),
        (guessed(',"num_speculative_tokens":3'), "0.16.0", []),
        (guessed(',"num_speculative_tokens":3,"prompt_lookup_min":5'), "0.16.0", []),
        (
            guessed(',"num_speculative_tokens":3,"prompt_lookup_min":5,"prompt_lookup_max":3'),
            "0.16.0",
            ["--speculative-config"],
        ),
        (guessed(',"num_speculative_tokens":3,"prompt_lookup_max":0'), "0.10.2", ["--speculative-config"]),
        (OLD, "0.7.3", ["--ngram-prompt-lookup-max"]),
        ("--speculative-model [ngram] --ngram-prompt-lookup-max 4", "0.7.3", ["--num-speculative-tokens"]),
        (
            f"{OLD} --ngram-prompt-lookup-max 2 --ngram-prompt-lookup-min 3",
            "0.7.3",
            ["--ngram-prompt-lookup-min"],
        ),
    ],
)
def test_drafts_of_the_prompt_ask_for_their_numbers(words, version, told):
    assert flags(LLAMA_8B, words, version) == told


@pytest.mark.parametrize(
    ("config", "words", "version", "env", "told"),
    [
        (WINDOWS, "--enable-prefix-caching", "0.6.6", None, ["--enable-prefix-caching"]),
        (WINDOWS, "--enable-prefix-caching --disable-sliding-window", "0.6.6", None, []),
        (MISTRAL, "--enable-prefix-caching", "0.6.6", None, []),
        (WINDOWS, "--enable-prefix-caching", "0.9.2", V0, ["--enable-prefix-caching"]),
        (WINDOWS, "--enable-prefix-caching", "0.9.2", None, []),
        (LLAMA_8B, "--task embed --enable-chunked-prefill", "0.7.3", None, ["--enable-chunked-prefill"]),
        (LLAMA_8B, "--task embed", "0.7.3", None, []),
        (
            LLAMA_8B,
            "--max-model-len 8192 --max-num-partial-prefills 2",
            "0.8.5",
            None,
            ["--max-num-partial-prefills"],
        ),
        (
            LLAMA_8B,
            "--max-model-len 8192 --max-num-partial-prefills 2 --enable-chunked-prefill",
            "0.8.5",
            None,
            [],
        ),
    ],
)
def test_what_the_first_engine_asks_of_chunks_and_prefixes(config, words, version, env, told):
    assert flags(config, words, version, env=env) == told
