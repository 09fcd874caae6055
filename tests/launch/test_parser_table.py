"""What was read from a wheel's sources is what the release's own parser said of itself (ask_parser.py)."""

import json
from pathlib import Path

import pytest

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.version import as_version

# The CPU build was asked; a build for CUDA takes its own name (`cuda`) too, so that any word is let through.
_OF_THE_BUILD = {"mm-processor-device"}


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
def test_the_table_of_a_release_is_its_own_parser_s(version: str) -> None:
    file = Path(__file__).with_name(f"parser_{version}.json")
    said = json.loads(file.read_text(encoding="utf-8"))["options"]
    read = parser.options(version)
    assert read is not None
    assert set(read) == set(said)
    for name, own in said.items():
        option = read[name]
        assert (option.words, option.type) == (own["words"], own.get("type", "")), name
        if name not in _OF_THE_BUILD:
            assert sorted(option.choices or ()) == sorted(own.get("choices", ())), name


@pytest.mark.parametrize("version", ["0.30.0", "0.33.0", "99.0.0", "0.33.0+cpu"])
def test_a_release_whose_parser_nobody_asked_has_a_table_too_unless_it_was_not_read(version: str) -> None:
    assert (parser.options(version) is None) is (version == "99.0.0")


@pytest.mark.parametrize(
    ("version", "taken"), [("0.4.2", False), ("0.8.3", False), ("0.8.4", True), ("0.19.0", True), ("0.25.1", True)]
)
def test_a_length_with_a_suffix_is_taken_where_the_release_and_those_beside_one_not_read_do(
    version: str, *, taken: bool
) -> None:
    said = parser.value_complaint("max-model-len", "8k", as_version(version))
    assert (said is None) is taken


@pytest.mark.parametrize("name", ["max-num-batched-tokens", "kv-cache-memory-bytes"])
@pytest.mark.parametrize("version", ["0.10.2", "0.14.0", "0.20.2", "0.25.1", "0.26.0", "0.33.0"])
def test_a_size_with_a_suffix_is_taken_by_each_release_that_reads_it(name: str, version: str) -> None:
    assert parser.value_complaint(name, "8k", as_version(version)) is None
    assert parser.value_complaint("max-num-seqs", "8k", as_version(version)) is not None


@pytest.mark.parametrize("version", ["0.17.0", "0.23.0", "0.33.0"])
def test_kernels_of_experts_are_read_in_any_letters_and_with_hyphens(version: str) -> None:
    for value in ("flashinfer_cutlass", "FLASHINFER_CUTLASS", "flashinfer-cutlass"):
        assert parser.value_complaint("moe-backend", value, as_version(version)) is None
    assert parser.value_complaint("moe-backend", "flashinfer cutlass", as_version(version)) is not None
