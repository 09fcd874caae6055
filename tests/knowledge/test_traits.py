"""What a release's class of an architecture has, between releases and beyond them."""

import pytest

from vllm_doctor.knowledge.history import ReleaseHistory
from vllm_doctor.knowledge.traits import lacks
from vllm_doctor.knowledge.version import Version, as_version

LINES = {"*": [["1.0", "a"]], "x": [["1.0", "a"], ["3.0", ""]], "y": [["2.0", "b"], ["3.0", None]]}


@pytest.mark.parametrize(
    ("name", "at", "found"),
    [
        ("x", "0.9", None),  # before the first that was read
        ("x", "2.0", ("a",)),
        ("x", "2.5", ("a", "")),  # the neighbours disagree, and both are told
        ("x", "9.0", ("",)),  # after the newest, as that
        ("y", "1.5", None),  # one of the neighbours has it not
        ("y", "3.0", None),
        ("z", "2.0", None),
    ],
)
def test_what_is_known_around_a_release(name, at, found):
    table = ReleaseHistory(["1.0", "2.0", "3.0"], LINES)
    told = table.around(name, as_version(at))
    assert told == found or (told is not None and found is not None and set(told) == set(found))


@pytest.mark.parametrize(
    ("architecture", "trait", "at", "missing"),
    [
        ("LlamaForCausalLM", "supports_lora", "0.33.0", False),
        ("FalconForCausalLM", "supports_lora", "0.33.0", True),
        ("FalconForCausalLM", "supports_eagle3", "0.8.5", False),  # a release without that interface
        ("WhisperForConditionalGeneration", "supports_lora", "0.11.0", True),
        ("WhisperForConditionalGeneration", "supports_lora", "0.33.0", False),
        ("LlamaBidirectionalModel", "supports_lora", "0.33.0", False),  # a call makes its base
        ("NoneSuchForCausalLM", "supports_lora", "0.33.0", False),
        ("MllamaForConditionalGeneration", "supports_pp", "0.6.3", True),
        ("LlamaForCausalLM", "supports_pp", "0.5.4", False),
        ("GemmaForCausalLM", "supports_pp", "0.5.4", True),  # the configuration's own list
    ],
)
def test_a_trait_is_missing_only_where_that_is_known(architecture, trait, at, missing):
    assert lacks(architecture, trait, as_version(at)) is missing


def test_a_release_before_those_that_were_read_says_nothing():
    assert not lacks("FalconForCausalLM", "supports_lora", Version((0, 2, 7)))
