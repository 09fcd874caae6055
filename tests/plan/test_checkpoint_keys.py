"""What a release's quantization refuses of a checkpoint's keys is foreseen, each beside a checkpoint that it takes."""

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.support import checkpoint_keys

ROUNDED = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int"}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
STORED = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_storage": "uint8"}
ACTS = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
HALF = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}}}
OWN = {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}


def refused(quantized, version, flags="", card="H100"):
    gpu, arch, at = find(card), describe(Section({**LLAMA_8B, "quantization_config": quantized})), as_version(version)
    settings = resolve(parse_launch(["vllm", "serve", "m", *flags.split()], at), at, arch, gpu, gpu.total_gib, 1)
    return [(r.found, r.needed) for r in checkpoint_keys.refusals(arch, settings)]


@pytest.mark.parametrize(
    ("quantized", "changed", "version", "told"),
    [
        (
            ROUNDED,
            {"bits": 5},
            "0.18.0",
            ("auto-round: bits 5", "bits 2, 3, 4 or 8, which 0.18.0 takes; 0.30.0 is the first that takes it"),
        ),
        (
            ROUNDED,
            {"data_type": "nv_fp"},
            "0.33.0",
            ("auto-round: data_type 'nv_fp'", "data_type int, mx_fp or fp, which 0.33.0 takes"),
        ),
        (
            ROUNDED,
            {"data_type": "fp", "bits": 8, "packing_format": "auto_round:fp8_static"},
            "0.33.0",
            (
                "auto-round: packing_format 'auto_round:fp8_static'",
                "packing_format auto_round:fp8, which 0.33.0 takes",
            ),
        ),
        (
            BLOCKS,
            {"activation_scheme": "static"},
            "0.33.0",
            ("fp8: activation_scheme 'static'", "activation_scheme dynamic, which 0.33.0 takes"),
        ),
        (
            STORED,
            {"bnb_4bit_quant_storage": "bfloat16"},
            "0.10.2",
            ("bitsandbytes: bnb_4bit_quant_storage 'bfloat16'", "bnb_4bit_quant_storage uint8, which 0.10.2 takes"),
        ),
        (
            HALF,
            {"quant_config": {"weight_quant_params": {"nbits": 8, "group_size": 64, "axis": 1}}},
            "0.10.2",
            (
                "hqq: quant_config.weight_quant_params.nbits 8",
                "quant_config.weight_quant_params.nbits 4, which 0.10.2 takes",
            ),
        ),
    ],
)
def test_a_key_that_the_release_refuses_is_told_with_what_it_takes(quantized, changed, version, told):
    assert refused({**quantized, **changed}, version) == [told]
    assert refused(quantized, version) == []


def test_a_key_that_no_release_does_without_is_left_out_of_the_description():
    assert refused({"quant_method": "gptq", "bits": 4}, "0.20.0") == []
    assert refused({"quant_method": "fp8", "weight_block_size": [128, 128]}, "0.33.0") == []


def test_a_form_of_a_checkpoint_that_came_later_says_with_which_release():
    later = {"quant_method": "modelopt", "quant_algo": "FP8"}
    assert refused(later, "0.8.5") == [
        (
            "modelopt: no quantization",
            "quantization in quantization_config, which 0.8.5 asks for; 0.10.0 is the first that takes it",
        )
    ]
    assert refused(OWN, "0.8.5") == []
    assert refused(later, "0.33.0") == []


def test_where_one_of_several_methods_takes_it_nothing_is_refused():
    # Of 8 bits AWQ's own class takes none and its Marlin class does (0.10.2): which one it is depends on the card.
    eight = {"quant_method": "awq", "bits": 8, "group_size": 128, "zero_point": True}
    assert refused(eight, "0.10.2") == []


def test_what_is_not_there_to_be_read_refuses_nothing():
    assert refused({**ROUNDED, "bits": 5}, "0.18.0", "--quantization gptq_marlin") == []  # another class reads it
    assert refused({"quant_method": "unheard-of", "bits": 5}, "0.33.0") == []


def test_an_older_refusal_of_the_format_is_not_said_twice():
    assert refused({**ACTS, "desc_act": True}, "0.33.0") == []
