"""What the classes behind vLLM's parser refuse: numbers out of a range, keys of JSON options, names that nothing has.

Each row was asked of the classes of an installed 0.32.0 itself, but for the names that its registries lack.
"""

import shlex

import pytest

from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch


def refusals(words: str, version: str = "0.32.0") -> list[str]:
    return [str(r) for r in parse_launch(shlex.split(f"vllm serve m {words}"), as_version(version)).refusals]


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("-O9", "--optimization-level: found '9'; needed: one of 0, 1, 2, 3"),
        ("-O=9", "--optimization-level: found '9'; needed: one of 0, 1, 2, 3"),
        ("-O fast", "--optimization-level: found 'fast'; needed: one of 0, 1, 2, 3"),
        ("--max-logprobs -5", "--max-logprobs: found '-5'; needed: a number of -1 or more"),
        ("--kv-cache-metrics-sample 1.5", "found '1.5'; needed: a number above 0 and up to 1"),
        ("--watermark 1", "--watermark: found '1'; needed: a number of 0 or more and below 1"),
        ("--attention-config.backend NOPE", "--attention-config.backend: found 'NOPE'; needed: one of FLASH_ATTN,"),
        ("-ac.backend=NOPE", "--attention-config.backend: found 'NOPE'"),
        ("--attention-config.no_key 1", "needed: a key that vLLM 0.32.0 has"),
        ("--attention-config.tokenspeed_mla_min_split_kv 0x1", "needed: a whole number"),
        ("""--attention-config '{"backend": "NOPE"}'""", "for its key backend, 'NOPE': one of FLASH_ATTN,"),
        ("-cc.cudagraph_mode fuller", "needed: one of NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE"),
        ("--structured-outputs-config.backend nope", "needed: one of auto, xgrammar, guidance"),
        ("--eplb-config.window_size 0", "--eplb-config.window_size: found 0; needed: a number above 0"),
        ("--speculative-config.num_speculative_tokens 0", "found 0; needed: a number above 0"),
        ("--load-format nope", "a name that vLLM 0.32.0 or a plugin has"),
        ("--tokenizer-mode slow", "a name that vLLM 0.32.0 or a plugin has"),
        ("--reasoning-parser deepseek_r2", "a plugin has: deepseek_r1"),
        ("--enable-auto-tool-choice --tool-call-parser nope", "a name that vLLM 0.32.0 or a plugin has"),
    ],
)
def test_what_a_class_or_a_registry_refuses_is_refused_with_what_it_takes(words: str, needed: str) -> None:
    said = refusals(words)
    assert len(said) == 1
    assert needed in said[0]


@pytest.mark.parametrize(
    "words",
    [
        "-O3", "-O 0", "-O=1", "--optimization-level 2", "--max-logprobs -1", "--watermark 0",
        "--attention-config.backend flash_attn", "--attention-config.backend auto", "-ac '{}'",
        "--attention-config.backend '$BACKEND'", "--attention-config.flash_attn_version 3",
        "-cc.cudagraph_mode full", "-cc.pass_config.fuse_norm_quant true", "-cc.cudagraph_capture_sizes+ 1",
        "--eplb-config.window_size 10k", "--max-num-batched-tokens 8k",
        "--speculative-config.num-speculative-tokens 2",  # it takes either dash
        "--load-format safetensors", "--tokenizer-mode auto", "--reasoning-parser none",
        "--tool-call-parser nope",  # nothing asks for it without --enable-auto-tool-choice
        "--enable-auto-tool-choice --tool-call-parser mine --tool-parser-plugin /p.py",
        "--reasoning-parser mine --reasoning-parser-plugin /p.py",
    ],
)  # fmt: skip
def test_what_they_take_is_not_refused(words: str) -> None:
    assert refusals(words) == []


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("-O3", "0.10.1"), ("-O 3", "0.11.2"), ("-O=3", "0.11.0"),  # a key of an object, before it is read as one
        ("--limit-mm-per-prompt image=2", "0.9.1"),  # pairs, until 0.10.0
        ("--tokenizer-mode slow", "0.14.0"), ("--tokenizer-mode slow", "0.30.0"),  # becomes hf
    ],
)  # fmt: skip
def test_what_only_older_releases_take_is_not_refused_there(words: str, version: str) -> None:
    assert refusals(words, version) == []


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("--compilation-config 3", "0.10.1"),
        ("-O.level=3", "0.14.0"),
        ("--limit-mm-per-prompt image=2", "0.10.0"),
        ("--tokenizer-mode slow", "0.31.0"),
    ],
)
def test_what_a_release_no_longer_takes_is_refused_there(words: str, version: str) -> None:
    assert len(refusals(words, version)) == 1


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("--load-format nope --max-logprobs -5", "0.8.3"),
        ("--attention-config.backend NOPE --load-format nope --max-logprobs -5", "99.0.0"),
        ("--tokenizer-mode grok2", "0.13.1"),  # not read: 0.13.0 lacks it, and 0.14.0 has it
        ("--enable-auto-tool-choice --tool-call-parser functiongemma", "0.13.1"),
    ],
)
def test_of_a_release_whose_classes_were_not_read_nothing_is_said(words: str, version: str) -> None:
    assert refusals(words, version) == []


def test_a_key_whose_value_the_class_may_change_first_is_not_judged() -> None:
    assert refusals("-cc '" + '{"pass_config": ' * 900 + "1" + "}" * 900 + "'") == []
