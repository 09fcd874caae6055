"""What tools/releases/expert_kernels.py writes down of the kernels of experts that a launch may ask for by name."""

from textwrap import dedent

import pytest
from releases import kernels
from releases.wheel import Wheel

ORACLE = """
    FLASHINFER_NVFP4_MOE_BACKENDS = [NvFp4MoeBackend.CUTLASS, NvFp4MoeBackend.TRTLLM]
    def backend_to_kernel_cls(backend):
        if backend == NvFp4MoeBackend.CUTLASS:
            return CutlassExperts
        elif backend in (NvFp4MoeBackend.MARLIN, NvFp4MoeBackend.BATCHED):
            return [MarlinExperts, BatchedExperts]
        elif backend == NvFp4MoeBackend.TRTLLM:
            raise NotImplementedError("no class of its own")
    def map_nvfp4_backend(runner_backend):
        mapping = {"cutlass": NvFp4MoeBackend.CUTLASS, "marlin": NvFp4MoeBackend.MARLIN}
        if backend := mapping.get(runner_backend):
            return backend
        raise ValueError(runner_backend)
    def select_nvfp4_moe_backend(config):
        if envs.VLLM_USE_FLASHINFER_MOE_FP4:
            pass
        raise ValueError(_make_log_unsupported(backend, reason))
"""
KERNELS = """
    class Experts:
        @staticmethod
        def _supports_no_act_and_mul():
            return True
    class CutlassExperts(Experts):
        @staticmethod
        def _supports_current_device():
            {cutlass}
    class MarlinExperts(Experts):
        @staticmethod
        def _supports_current_device():
            return current_platform.is_cuda() and current_platform.has_device_capability((8, 0))
        @staticmethod
        def _supports_no_act_and_mul():
            return {gate}
    class BatchedExperts(MarlinExperts):
        pass
    def _supports_current_device():
        return current_platform.is_cuda() and current_platform.is_device_capability_family(100)
"""


def on(cutlass="return current_platform.is_device_capability(90)", gate="True", oracle=ORACLE):
    files = {
        "vllm/model_executor/layers/fused_moe/oracle/nvfp4.py": dedent(oracle),
        "vllm/model_executor/layers/fused_moe/kernels.py": dedent(KERNELS).format(cutlass=cutlass, gate=gate),
    }
    return kernels.read(Wheel("vllm", "0.19.0", files, {}))["moe_by_format"]["nvfp4"]


def test_each_name_has_the_cards_of_its_classes_and_the_variable_those_of_one_of_the_list():
    assert on() == {
        "names": ["cutlass", "marlin"],
        "on": {
            "cutlass": "(capability == 9.0)",
            "marlin": "(capability >= 8.0)",
            "VLLM_USE_FLASHINFER_MOE_FP4": "((capability == 9.0) or (major == 10))",
        },
    }


def test_a_kernel_that_takes_no_experts_without_a_gate_asks_for_one():
    assert on(gate="False")["on"]["marlin"] == "((capability >= 8.0) and gated)"


@pytest.mark.parametrize(
    "body",
    [
        "return has_flashinfer()",  # of a library
        "return current_platform.is_cuda()",
        'raise NotImplementedError("not asked")',
    ],
)
def test_what_no_launch_could_fail_is_left_out(body):
    assert "cutlass" not in on(body)["on"]


def test_a_choice_that_goes_on_to_another_kernel_refuses_nothing():
    oracle = ORACLE.replace("raise ValueError(_make_log_unsupported(backend, reason))", "return None")
    assert on(oracle=oracle) == {"names": ["cutlass", "marlin"]}
