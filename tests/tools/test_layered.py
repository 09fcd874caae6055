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


WRAPPER = "vllm/lora/layers/fused_moe.py"
OF_EXPERTS = """
    class FusedMoEMethodBase:
        def __init__(self):
            self.kernel_kept = None
        def select_gemm_impl(self, prepare, layer):
            raise NotImplementedError
    class {name}(FusedMoEMethodBase):
        def get_fused_moe_quant_config(self, layer):
            return {scales}
        def process_weights_after_loading(self, layer):
            {loads}
"""
# What each generation of adapters asks the method of a model's experts for.
SCALES = "config = self.base_layer.quant_method.moe_quant_config"
KERNEL = "gemm = self.base_layer.quant_method.select_gemm_impl(prepare, self.base_layer)"
KEPT = f"kernel = self.base_layer.quant_method.moe_mk\n{KERNEL}"


def unadapted(wrapper, *, scales="None", loads="pass", body="return Of(self) if isinstance(layer, FusedMoE) else None"):
    files = {
        f"{FOLDER}/fused_moe/layer.py": "",
        f"{FOLDER}/fused_moe/method.py": dedent(OF_EXPERTS.format(name="Of", scales=scales, loads=loads)),
        f"{FOLDER}/quantization/one.py": (
            f"class One:\n    def get_quant_method(self, layer, prefix):\n        {body}\n"
            "class Two:\n    def get_quant_method(self, layer, prefix):\n"
            "        return One.from_config(self.config).get_quant_method(layer, prefix)\n"
        ),
        **({WRAPPER: wrapper} if wrapper else {}),
    }
    wheel = Wheel("vllm", "0.12.0", files, {})
    return Layered(wheel).no_adapted_experts("One"), Layered(wheel).no_adapted_experts("Two")


@pytest.mark.parametrize(
    ("wrapper", "given", "told"),
    [
        (SCALES, {}, True),
        (SCALES, {"scales": "scales_of(layer)"}, False),
        (KERNEL, {"scales": "scales_of(layer)"}, True),  # nothing chooses a kernel
        (KEPT, {"loads": "self.moe_mk = kernel()"}, False),
        (KEPT, {"loads": "self.moe_kernel = kernel()"}, True),  # by another name than the adapters ask for
        (SCALES, {"body": "return strange(layer)"}, False),  # nobody knows
        ("", {}, False),  # adapters have no experts yet
    ],
)
def test_adapters_find_nothing_in_experts_that_give_them_no_scales_or_no_kernel(wrapper, given, told):
    assert unadapted(wrapper, **given) == (told, told)


def test_methods_that_hand_a_layer_on_to_each_other_are_followed_once():
    body = "return Two.from_config(1).get_quant_method(layer, prefix) or Of(self)"
    assert unadapted(SCALES, body=body) == (True, True)


BALANCED = """
    class FusedMoEMethodBase:
        @property
        def supports_eplb(self):
            return False
    class Of(FusedMoEMethodBase):
        {own}
"""
SAYS = "def supports_eplb(self):\n            return {}"


@pytest.mark.parametrize(
    ("own", "body", "told"),
    [
        ("pass", "return Of(self) if isinstance(layer, FusedMoE) else None", True),
        (SAYS.format("True"), "return Of(self) if isinstance(layer, FusedMoE) else None", False),
        (SAYS.format("self.kernel.balances"), "return Of(self) if isinstance(layer, FusedMoE) else None", False),
        (SAYS.format("False"), "return Of(self) if isinstance(layer, FusedMoE) else None", True),
        ("pass", "return strange(layer)", False),  # nobody knows
        ("pass", "assert issubclass(self.cls, FusedMoEMethodBase)\n        return self.cls(layer.config)", False),
    ],
)
def test_experts_are_balanced_by_methods_that_say_so(own, body, told):
    files = {
        f"{FOLDER}/fused_moe/layer.py": "",
        f"{FOLDER}/fused_moe/method.py": dedent(BALANCED.format(own=own)),
        f"{FOLDER}/quantization/one.py": f"class One:\n    def get_quant_method(self, of, name):\n        {body}\n",
    }
    assert Layered(Wheel("vllm", "0.12.0", files, {})).no_balanced_experts("One") is told


def test_of_a_release_that_asks_no_method_nothing_is_said():
    files = {f"{FOLDER}/quantization/one.py": "class One:\n    def get_quant_method(self, of, name): return Of(1)\n"}
    assert not Layered(Wheel("vllm", "0.10.0", files, {})).no_balanced_experts("One")
