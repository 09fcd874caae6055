"""What tools/releases/layered.py says of a method's code for experts."""

from textwrap import dedent

import pytest
from releases.layered import Layered
from releases.wheel import Wheel

FOLDER = "vllm/model_executor/layers"
ASSERTS = "class FusedMoE:\n    def __init__(self):\n        assert self.quant_method is not None\n"
UTILS = """
    def linear_method(config, layer, prefix):
        return Plain(config) if isinstance(layer, LinearBase) else None
    def any_method(config, layer, prefix):
        return Both(config) if isinstance(layer, (LinearBase, FusedMoE)) else None
"""


def no_experts(body, *, base="QuantizationConfig", experts=ASSERTS):
    source = f"class One({base}):\n    def get_quant_method(self, layer, prefix):\n        {body}\n"
    files = {
        f"{FOLDER}/fused_moe/layer.py": experts,
        f"{FOLDER}/quantization/one.py": source,
        f"{FOLDER}/quantization/utils/parts.py": dedent(UTILS),
    }
    return Layered(Wheel("vllm", "0.8.5", files, {})).no_experts("One")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return Plain(self) if isinstance(layer, LinearBase) else None", True),
        ("return Of(self) if isinstance(layer, FusedMoE) else None", False),
        ("return linear_method(self, layer, prefix)", True),  # followed into what it hands the layer to
        ("return any_method(self, layer, prefix)", False),
        ("return strange(layer)", False),  # nobody knows
        ("return super().get_quant_method(layer, prefix)", False),
    ],
)
def test_a_method_has_nothing_for_experts_where_nothing_it_asks_names_them(body, told):
    assert no_experts(body) is told


def test_it_counts_only_where_experts_take_no_none_for_an_answer():
    body = "return Plain(self) if isinstance(layer, LinearBase) else None"
    assert not no_experts(body, experts=ASSERTS.replace("assert self.quant_method is not None", "pass"))
