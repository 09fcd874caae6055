"""What tools/releases/schemes.py writes down of a release's choice of a scheme."""

from textwrap import dedent

from releases import schemes
from releases.wheel import Wheel

FOLDER = "vllm/model_executor/layers/quantization/compressed_tensors"
CHOICE = """
    class CompressedTensorsConfig:
        def _is_whole(self, weight_quant, input_quant) -> bool:
            if weight_quant is None or input_quant is None:
                return False
            bits = weight_quant.num_bits == input_quant.num_bits == 8
            return bits and weight_quant.type == QuantizationType.FLOAT.value
        def _get_scheme_from_parts(self, weight_quant, input_quant, format=None):
            format = format if format is not None else self.quant_format
            if self._is_whole(weight_quant, input_quant):
                if self._check_scheme_supported(90, error=False, match_exact=True):
                    return CompressedTensorsW8A8Fp8(strategy=weight_quant.strategy)
                else:
                    logger.warning_once("slower")
                    return CompressedTensorsW8A16Fp8()
            if format == CompressionFormat.pack_quantized.value and weight_quant.num_bits in BITS:
                assert weight_quant.symmetric
                return CompressedTensorsWNA16()
            if is_activation_quantization_format(format):
                if strange(weight_quant) and weight_quant.strategy == QuantizationStrategy.TENSOR_GROUP:
                    return CompressedTensorsOdd()
            raise NotImplementedError("none")
"""
UTILS = """
    def is_activation_quantization_format(format):
        listed = [CompressionFormat.int_quantized.value]
        return format in listed
"""
SCHEME = "TYPES = {4: uint4, 8: uint8}\nBITS = list(TYPES.keys())\n"


def read(choice=CHOICE):
    files = {
        f"{FOLDER}/compressed_tensors.py": dedent(choice),
        f"{FOLDER}/utils.py": dedent(UTILS),
        f"{FOLDER}/schemes/one.py": SCHEME,
    }
    return schemes.read(Wheel("vllm", "0.24.0", files, {}))


def test_a_choice_is_what_it_takes_in_the_names_of_a_groups_keys():
    whole = (
        "((not ((weights is None) or (inputs is None))) and "
        "(((weights.num_bits == inputs.num_bits) and (inputs.num_bits == 8)) and (weights.type == 'float')))"
    )
    packed = "((format == 'pack-quantized') and (weights.num_bits in (4, 8,)))"
    odd = "((format in ('int-quantized',)) and (unknown and (weights.strategy == 'tensor_group')))"
    assert read() == {"compressed-tensors": f"({whole} or ({packed} or {odd}))"}


def test_what_nobody_can_read_is_not_written_down():
    looped = CHOICE.replace(
        "raise NotImplementedError", "for each in self.groups:\n                return each\n            raise X"
    )
    assert read(looped) == {}
    assert read("class CompressedTensorsConfig: ...\n") == {}
    assert schemes.read(Wheel("vllm", "0.5.0", {}, {})) == {}


def test_one_generation_is_asked_for_exactly():
    alone = CHOICE.replace("if self._is_whole(weight_quant, input_quant):", "if self._is_hopper():")
    asked = "return self._check_scheme_supported(90, error=False, match_exact=True)"
    method = f"def _is_hopper(self):\n            {asked}\n        "
    alone = alone.replace("def _get_scheme", f"{method}def _get_scheme", 1)
    assert read(alone)["compressed-tensors"].startswith("((capability == 9.0) or ")


def test_experts_have_a_choice_of_their_own_once_the_parts_of_their_group_are_known():
    choice = """
    class CompressedTensorsMoEMethod:
        @staticmethod
        def get_moe_method(quant_config, layer, layer_name):
            for each in layer.names:
                quant_config.add(each)
            found = quant_config.get_scheme_dict(layer)
            weight_quant = found.get("weights")
            input_quant = found.get("input_activations")
            if quant_config._is_whole(weight_quant, input_quant):
                return CompressedTensorsW8A8Fp8MoEMethod(layer)
            raise RuntimeError("Unsupported FusedMoe scheme")
"""
    files = {
        f"{FOLDER}/compressed_tensors.py": dedent(CHOICE),
        f"{FOLDER}/utils.py": dedent(UTILS),
        f"{FOLDER}/compressed_tensors_moe/compressed_tensors_moe.py": dedent(choice),
    }
    assert schemes.read(Wheel("vllm", "0.24.0", files, {}))["compressed-tensors experts"] == (
        "((not ((weights is None) or (inputs is None))) and "
        "(((weights.num_bits == inputs.num_bits) and (inputs.num_bits == 8)) and (weights.type == 'float')))"
    )
