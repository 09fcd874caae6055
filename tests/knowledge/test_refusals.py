"""What a refusal's sentence asks for. The sentences are ours, built the way that vLLM's are."""

import re

import pytest

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.refusals import grammar, package, wishes, words

NEWEST = versions.newest_known()


def known(name: str) -> bool:
    fact = versions.flag(name, NEWEST)
    return fact is not None and fact.exists is True


ASKED = {
    "Found VLLM_ROOM_KIND=1, but no room of this kind supports the doors": ("VLLM_ROOM_KIND", "remove", None),
    # set, pass, use
    "Please set `--disable-hybrid-kv-cache-manager`.": ("disable-hybrid-kv-cache-manager", "add", None),
    "it works with --tokenizer-mode mistral": ("tokenizer-mode", "add", "mistral"),
    "Try passing `--runner pooling` for such a model": ("runner", "add", "pooling"),
    "Re-run with --kv-cache-dtype float16.": ("kv-cache-dtype", "add", "float16"),
    "it must run once. To fix, use --all2all-backend=deepep_low_latency here": (
        "all2all-backend",
        "add",
        "deepep_low_latency",
    ),
    "speaking embeddings is only enabled for `--runner pooling`": ("runner", "add", "pooling"),
    "you can consider setting `trust_remote_code=True`": ("trust-remote-code", "add", "True"),
    "Chunked prefill must be enabled to do so.": ("enable-chunked-prefill", "add", None),
    "set VLLM_USE_V2_MODEL_RUNNER=0 to serve it": ("VLLM_USE_V2_MODEL_RUNNER", "add", "0"),
    "this fails without VLLM_WORKER_MULTIPROC_METHOD set to spawn": ("VLLM_WORKER_MULTIPROC_METHOD", "add", "spawn"),
    "load_format must be 'runai_streamer' for a bucket": ("load-format", "set", "runai_streamer"),
    # leave out
    "Run this model without `enable_lora`.": ("enable-lora", "remove", None),
    "omit `--mamba-ssu-algorithm`": ("mamba-ssu-algorithm", "remove", None),
    "LoRA is not supported for these experts": ("enable-lora", "remove", None),
    "the backend does not support FP8 KV cache": ("kv-cache-dtype", "remove", None),
    "Such a head with quantized KV cache is not yet supported": ("kv-cache-dtype", "remove", None),
    "Prefix caching is not supported with windows": ("enable-prefix-caching", "remove", "False"),
    "Sleep mode is not supported on this platform.": ("enable-sleep-mode", "remove", None),
    "a model of this kind does not support pipeline parallelism yet": ("pipeline-parallel-size", "lower", "1"),
    "Speculative decoding is not compatible with it": ("speculative-config", "remove", None),
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING cannot be used with several": (
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "remove",
        None,
    ),
    "It requires full CUDA graphs.": ("enforce-eager", "remove", None),
    "not allowed inside the compiler. Please use eager mode": ("enforce-eager", "add", None),
    "EPLB is only supported on other devices": ("enable-eplb", "remove", None),
    # more, less
    "max_cpu_loras (2) must be >= max_loras (4).": ("max-cpu-loras", "raise", "4"),
    "data_parallel_size_local must be > 0 here": ("data-parallel-size-local", "raise", "1"),
    "Consider increasing max_num_batched_tokens": ("max-num-batched-tokens", "raise", None),
    "long_prefill_token_threshold (9000) cannot be greater than the max_model_len (8192)": (
        "long-prefill-token-threshold",
        "lower",
        "8192",
    ),
    "Set `--limit-mm-per-prompt` to increase this limit.": ("limit-mm-per-prompt", "raise", None),
    "This can be caused by too large tensor parallel size.": ("tensor-parallel-size", "lower", None),
    # another value
    "Unknown load_format: fancy": ("load-format", "change", None),
    "Invalid kv_cache_dtype: fp7. Valid values are: auto, fp8": ("kv-cache-dtype", "change", None),
    "num_speculative_tokens must be divisible by the layers": ("speculative-config", "change", None),
    "Unsupported kv_role: both": ("kv-transfer-config", "change", None),
}


@pytest.mark.parametrize(("sentence", "asked"), ASKED.items(), ids=lambda v: v if isinstance(v, str) else "")
def test_a_sentence_asks_for_an_option_in_a_direction(sentence: str, asked: tuple[str, str, str | None]) -> None:
    first = wishes(sentence, known)[0]
    assert (first.name, first.direction.value, first.to) == asked


@pytest.mark.parametrize(
    "sentence",
    [
        "the block is out of sync with the free list",
        "Weight tensor must be contiguous",
        "Expected 2 dimensions, got 3",
        "the computed mode is CompilationMode.VLLM_COMPILE",
        "query must be [num_tokens, block_size, heads]",
        "it is ignored when enable_lora is unset",
    ],
)
def test_a_sentence_about_the_inside_asks_for_nothing(sentence: str) -> None:
    assert wishes(sentence, known) == ()


def test_of_two_options_that_disagree_either_may_give_way() -> None:
    found = wishes("max_cpu_loras (2) must be >= max_loras (4).", known)
    assert [(w.name, w.direction.value, w.to) for w in found] == [
        ("max-cpu-loras", "raise", "4"),
        ("max-loras", "lower", "2"),
    ]


def test_an_option_that_the_release_does_not_have_is_not_read() -> None:
    assert wishes("num_speculative_tokens must be set", lambda _: False) == ()


@pytest.mark.parametrize(
    ("sentence", "name", "spec", "newer"),
    [
        ("Please install torchao>=0.10.0 via `pip install torchao>=0.10.0`.", "torchao", "torchao>=0.10.0", True),
        ("Please install timm", "timm", None, False),
        ("Please install vllm[audio] for audio support", "vllm[audio]", "vllm[audio]", False),
        ("The package `amd-quark` is required to use these models.", "amd-quark", None, False),
        ("mcp is not installed.", "mcp", None, False),
        ("gpt_oss >= 0.0.3 is required, but 0.0.1 is installed.", "gpt-oss", "gpt-oss>=0.0.3", True),
        ("Ray version 2.9 or greater is required, but found 2.4", "ray", "ray>=2.9", True),
        ("Please upgrade to the new one: pip install --upgrade transformers", "transformers", None, True),
        ("Please install FlashInfer 0.7.2 or later.", "flashinfer-python", "flashinfer-python>=0.7.2", True),
    ],
)
def test_a_missing_or_old_package_is_named(sentence: str, name: str, spec: str | None, newer: bool) -> None:
    found = package(sentence)
    assert found is not None
    assert (found.name, found.spec, found.newer) == (name, spec, newer)


@pytest.mark.parametrize(
    "sentence",
    [
        "input.ndim needs to be >= 1, but got 0.",
        "only num_labels == 1 is served",
        "`tensor_sizes` is required when packed",
        "the communication library version 2.27.3 or higher is required",
        "No plugins installed but one is required",
    ],
)
def test_what_is_no_package_is_not_named(sentence: str) -> None:
    assert package(sentence) is None


def test_every_option_of_the_words_is_one_that_some_release_has() -> None:
    read = words()
    named = [*(f.options for f in read.features), *read.fields.values(), *read.classes.values()]
    named += [p.options for p in read.places if p.kind == "flag"]
    unknown = {o for options in named for o in options if versions.flag(o, NEWEST) is None}
    assert unknown <= {"model"}


@pytest.mark.parametrize("phrase", grammar.grammar().phrases, ids=lambda p: f"{p.where} {p.wants}: {p.sample}")
def test_each_phrase_is_read_as_its_sample_stands(phrase: grammar.Phrase) -> None:
    assert re.search(phrase.said, phrase.sample, re.IGNORECASE)
    if phrase.where == "before":
        assert grammar.before(f"{phrase.sample} the `", phrase.wants)
    else:
        assert grammar.after(f"` {phrase.sample} here", phrase.wants) is not None


def test_no_phrase_of_a_group_is_read_by_another_s_pattern_alone() -> None:
    """Each is needed: without it its own sample is not read."""
    spare = {
        f"{one.where} {one.wants}: {one.said}"
        for one in grammar.grammar().phrases
        for other in grammar.grammar().phrases
        if one != other
        and (one.where, one.wants) == (other.where, other.wants)
        and re.fullmatch(other.said, one.sample, re.IGNORECASE)
    }
    assert not spare
