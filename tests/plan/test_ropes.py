"""What a release refuses of a rope_scaling is foreseen, with the first release that takes it."""

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.support import ropes

LLAMA_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LONG = {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}
SECTIONS = {"type": "mrope", "mrope_section": [16, 24, 24]}


def refused(rope, version, architecture="LlamaForCausalLM"):
    config = {**LLAMA_8B, "architectures": [architecture], "rope_scaling": rope}
    gpu, arch, at = find("H100"), describe(Section(config)), as_version(version)
    settings = resolve(parse_launch(["vllm", "serve", "m"], at), at, arch, gpu, gpu.total_gib, 1)
    return [(r.found, r.needed.split(",")[0]) for r in ropes.refusals(arch, settings)]


@pytest.mark.parametrize(
    ("rope", "version", "told"),
    [
        (LLAMA_3_1, "0.5.0", [("type llama3", "vLLM 0.5.4")]),  # rope_scaling["type"], which is not there
        (LLAMA_3_1, "0.5.3.post1", []),
        (LLAMA_3_1, "0.5.4", []),
        (LLAMA_3_1, "0.33.0", []),
        (YARN, "0.3.3", []),
        (YARN, "0.8.5", []),
        ({**YARN, "type": "su"}, "0.3.3", [("type su", "vLLM 0.4.3")]),
        ({"type": "linear", "factor": 2.0}, "0.3.3", []),
        ({"rope_type": "llama3", "factor": 8.0}, "0.8.5", []),  # a short description of what it takes
        (SECTIONS, "0.6.0", [("type mrope", "vLLM 0.6.1")]),
        (SECTIONS, "0.8.5", []),
        (None, "0.5.0", []),
    ],
)
def test_which_scaling_a_release_takes(rope, version, told):
    assert refused(rope, version) == told


def test_a_class_that_hands_no_scaling_on_is_asked_for_its_length_alone():
    assert refused(LONG, "0.5.0", "GPTJForCausalLM") == refused(LONG, "0.5.0")
    assert refused({**LONG, "factor": 2.0}, "0.5.0", "GPTJForCausalLM") == []


def test_a_type_that_no_release_has_starts_in_none():
    told = [("type twisted", "a type that a release of vLLM has")]
    assert refused({"type": "twisted", "factor": 8.0}, "0.5.3") == told
    assert refused({"rope_type": "twisted", "factor": 8.0}, "0.33.0") == told
