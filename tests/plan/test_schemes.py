"""Groups of a compressed-tensors checkpoint for which a release has no scheme are foreseen, from its own choice."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import EXPERTS
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.support import schemes

BY_TOKEN = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
FORMS = {
    "int8": ("int-quantized", {"num_bits": 8, "strategy": "channel"}, BY_TOKEN),
    "int8, no inputs": ("int-quantized", {"num_bits": 8, "strategy": "channel"}, None),
    "int8 packed, no inputs": ("pack-quantized", {"num_bits": 8, "strategy": "channel"}, None),
    "fp8, no inputs": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, None),
    "int8, zero points": ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}, BY_TOKEN),
    "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, {**BY_TOKEN, "type": "float"}),
    "fp8 blocks": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
        {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": True},
    ),
    "int4": ("pack-quantized", {"num_bits": 4, "group_size": 128}, None),  # the strategy follows from the size
    "int4, zero points": ("pack-quantized", {"num_bits": 4, "group_size": 128, "symmetric": False}, None),
    "int4, fp8 inputs": ("pack-quantized", {"num_bits": 4, "group_size": 128}, {**BY_TOKEN, "type": "float"}),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"},
    ),
    "marlin 2:4": ("marlin-24", {"num_bits": 4, "strategy": "channel"}, None),
}


def config(form, targets=("Linear",), ignore=("lm_head",), model=LLAMA_8B):
    name, weights, inputs = FORMS[form]
    group = {"targets": list(targets), "weights": weights, "input_activations": inputs}
    quantized = {"quant_method": "compressed-tensors", "format": name, "ignore": list(ignore)}
    return {**model, "quantization_config": {**quantized, "config_groups": {"group_0": group}}}


def refused(launched, version, card="H200"):
    gpu, arch, at = find(card), describe(Section(launched)), as_version(version)
    settings = resolve(parse_launch(["vllm", "serve", "m"], at), at, arch, gpu, gpu.total_gib, 8)
    return [r.found for r in schemes.refusals(arch, settings, gpu)]


@pytest.mark.parametrize(
    ("form", "first", "last"),
    [
        ("int8", "0.6.2", "0.33.0"),
        ("int8, no inputs", None, None),  # the choice asks for keys of inputs that are not there
        ("int8 packed, no inputs", "0.6.2", "0.33.0"),
        ("fp8, no inputs", "0.6.2", "0.33.0"),
        ("int8, zero points", None, None),
        ("fp8", "0.6.2", "0.33.0"),
        ("fp8 blocks", "0.11.2", "0.33.0"),
        ("int4", "0.6.2", "0.33.0"),
        ("int4, zero points", "0.8.5", "0.33.0"),
        ("nvfp4", "0.9.1", "0.33.0"),
        ("marlin 2:4", "0.6.2", "0.14.1"),
    ],
)
def test_a_release_has_the_schemes_that_its_own_choice_names(form, first, last):
    for version in (
        "0.6.2",
        "0.7.3",
        "0.8.5",
        "0.9.1",
        "0.10.2",
        "0.11.2",
        "0.14.1",
        "0.17.1",
        "0.20.2",
        "0.28.0",
        "0.33.0",
    ):
        at = as_version(version)
        taken = first is not None and as_version(first) <= at <= as_version(last)
        assert (refused(config(form), version) == []) is taken, version


def test_some_schemes_are_of_one_generation_of_cards():
    asked = config("int4, fp8 inputs")
    assert refused(asked, "0.20.2", "H200") == []
    found = "compressed-tensors, 4-bit int by group, inputs dynamic 8-bit float by token, pack-quantized"
    assert refused(asked, "0.20.2", "A100") == refused(asked, "0.20.2", "B200") == [found]


@pytest.mark.parametrize(
    ("form", "version", "card", "taken"),
    [
        ("int8", "0.33.0", "B200", False),
        ("int8", "0.11.0", "RTX 5090", False),
        ("int8", "0.33.0", "H200", True),
        ("int8", "0.8.5", "B200", True),  # whose wheel has no code for it at all
        ("fp8", "0.33.0", "B200", True),
        ("int8 packed, no inputs", "0.33.0", "B200", True),
    ],
)
def test_the_kernel_of_8_bit_integers_has_no_code_for_blackwell(form, version, card, taken):
    assert (refused(config(form), version, card) == []) is taken


@pytest.mark.parametrize("ignore", [("lm_head", "re:.*layers.*"), ("re:.*self_attn.*", "re:.*mlp.*")])
def test_a_group_that_no_linear_layer_has_is_not_asked_for(ignore):
    assert refused(config("int8, zero points", ignore=ignore), "0.33.0") == []


def test_a_layer_that_is_named_has_the_group_that_names_it():
    asked = config("int4")
    groups = asked["quantization_config"]["config_groups"]
    groups["group_1"] = {"targets": ["re:.*down_proj"], "weights": {"num_bits": 4, "strategy": "tensor"}}
    assert refused(asked, "0.33.0") == ["compressed-tensors, 4-bit int by tensor, pack-quantized"]
    groups["group_1"]["targets"] = ["re:.*no_such_proj"]
    assert refused(asked, "0.33.0") == []


def test_what_is_not_said_is_not_refused():
    asked = config("int4")
    del asked["quantization_config"]["format"]
    assert refused(asked, "0.33.0") == []
    asked["quantization_config"]["sparsity_config"] = {"targets": ["Linear"], "format": "dense"}
    assert refused(asked, "0.9.1") == []


@pytest.mark.parametrize(("version", "taken"), [("0.5.0", True), ("0.8.4", False), ("0.8.4.1", True)])
def test_between_two_releases_that_were_read_both_have_to_refuse(version, taken):
    # 0.8.4 has none for zero points and 0.8.5 has one; of 0.5.0 no choice was read.
    assert (refused(config("int4, zero points"), version) == []) is taken


@pytest.mark.parametrize(
    ("form", "version", "kind"),
    [
        ("int4, fp8 inputs", "0.11.1", None),  # its linear layers have a scheme, as its experts have (_is_dynamic_…)
        ("int4, fp8 inputs", "0.10.2", "experts"),
        ("int4", "0.10.2", None),
        ("fp8", "0.10.2", None),
        ("fp8 blocks", "0.11.2", None),
        ("nvfp4", "0.10.2", None),
        ("int8", "0.10.2", None),
        ("int8", "0.8.2", "experts"),
    ],
)
def test_experts_have_a_choice_of_their_own(form, version, kind):
    launched = config(form, ignore=("lm_head", "re:.*gate$"), model=EXPERTS)
    gpu, arch, at = find("H200"), describe(Section(launched)), as_version(version)
    settings = resolve(parse_launch(["vllm", "serve", "m"], at), at, arch, gpu, gpu.total_gib, 8)
    told = [r.needed for r in schemes.refusals(arch, settings, gpu)]
    assert told == ([f"a scheme that {version} has for {kind}"] if kind else [])


def test_experts_that_stay_as_they_are_have_no_scheme_to_ask_for():
    assert refused(config("int8", ignore=("lm_head", "re:.*experts.*", "re:.*gate$"), model=EXPERTS), "0.8.2") == []
