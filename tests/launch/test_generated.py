"""A thousand generated launch lines: what a release's own parser did with each, and what is read of them here.

generated_0.32.0.txt is written by tests/launch/generate.py and tools/vllm_lines.py, with an installed 0.32.0 for CPUs.
`later` are lines that are refused here and pass the parser: asked again with a Llama of two layers, its configuration
refuses them.
"""

import shlex
from pathlib import Path

import pytest

from tests.launch.generate import lines
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.launch.positions import option_name, option_text, values_behind

V = "0.32.0"
ROWS = [row.split("\t") for row in Path(__file__).with_name(f"generated_{V}.txt").read_text().splitlines()]
# What a release refuses and the table of options does not tell: numbers with suffixes, the values of some keys of JSON
# options. The list only shrinks.
NOT_REFUSED = {
    "compilation-config", "ir-op-priority", "kv-cache-memory-bytes", "kv-events-config", "logging-config",
    "max-num-queued-tokens", "max-num-scheduled-tokens", "pooler-config", "profiler-config", "reasoning-config",
    "safetensors-prefetch-block-size", "weight-transfer-config",
}  # fmt: skip
# What a start refuses later than its configuration: names that are looked up when a part is loaded, or not used here.
REFUSED_LATER = {
    "default-chat-template-kwargs", "load-format", "max-loras", "mm-encoder-attn-backend",
    "mm-encoder-fp8-scale-save-margin", "scheduler-cls", "seed", "tokenizer-mode", "worker-cls", "worker-extension-cls",
}  # fmt: skip


def options(line: str) -> set[str]:
    """The options of a line, shortened ones as they are written."""
    return {
        word[2:].partition("=")[0].partition(".")[0].replace("_", "-") for word in shlex.split(line) if word[:2] == "--"
    }


def among(line: str, names: set[str]) -> bool:
    return any(name.startswith(option) for option in options(line) if option for name in names)


def test_the_lines_are_those_that_are_generated_and_each_verdict_is_there_often() -> None:
    assert [line for _, line in ROWS] == list(lines(V, len(ROWS)))
    assert len(ROWS) >= 1000
    assert all(sum(does == verdict for does, _ in ROWS) > 40 for verdict in ("accepts", "refuses", "later"))


@pytest.mark.parametrize("verdict", ["accepts", "refuses"])
def test_what_the_release_refuses_is_refused_and_nothing_else(verdict: str) -> None:
    passed = NOT_REFUSED if verdict == "refuses" else REFUSED_LATER
    wrong = [
        f"{line}: {'; '.join(map(str, read.refusals))}"
        for does, line in ROWS
        if does == verdict and not among(line, passed)
        if bool((read := parse_launch(shlex.split(line), as_version(V))).refusals) is (does == "accepts")
    ]
    assert not wrong


def test_what_is_excepted_is_needed() -> None:
    """A name that no line needs any more is to go."""
    for does, names in (("refuses", NOT_REFUSED), ("accepts", REFUSED_LATER)):
        wrong = [
            line
            for said, line in ROWS
            if said == does and bool(parse_launch(shlex.split(line), as_version(V)).refusals) is (does == "accepts")
        ]
        assert {name for name in names if not any(among(line, {name}) for line in wrong)} == set()


def test_the_words_of_an_option_are_found_where_the_parser_read_them() -> None:
    """Who changes a line word by word sees the same options, and the same words behind each."""
    for line in (line for does, line in ROWS if does == "accepts"):
        words = shlex.split(line)
        flags = {name: value for name, value in parse_launch(words, as_version(V)).flags.items() if name != "model"}
        named = [name.partition(".")[0] for word in words if (name := option_name(word)) is not None]
        assert set(named) - {"model"} == set(flags), line
        for name, value in flags.items():
            text = option_text(words, name)
            assert text is None or isinstance(value, bool) or text == value or value.startswith((f"{text},", "{")), line
            assert not isinstance(value, bool) or values_behind(name, ["x"]) == 0 or not text, line
