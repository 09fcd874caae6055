"""What tools/releases/constructors.py writes down of the class behind a backend: the tests of its `__init__`."""

from textwrap import dedent

from releases.constructors import read
from releases.wheel import Wheel

SIZES = "[64, 128]"
SOURCE = """
    class OneBackend:
        @staticmethod
        def get_name() -> str:
            return "{name}"
        @staticmethod
        def get_supported_head_sizes():
            return {sizes}
        @staticmethod
        def get_impl_cls():
            return OneImpl
    class OneImpl:
        def __init__(self, num_heads, head_size, scale, num_kv_heads, sliding_window, kv_cache_dtype, logits_soft_cap):
            if sliding_window is not None:
                raise ValueError("no windows")
            if logits_soft_cap is None:
                logits_soft_cap = 0
            assert num_heads % num_kv_heads == 0
            if kv_cache_dtype != "auto":
                raise NotImplementedError("no such cache")
            sizes = OneBackend.get_supported_head_sizes()
            if head_size not in sizes:
                raise ValueError(f"no heads of {{head_size}}")
"""


def made(path, name):
    return read(Wheel("vllm", "0.8.5", {path: dedent(SOURCE.format(name=name, sizes=SIZES))}, {}))


def test_windows_and_heads_are_asked_and_what_is_put_together_elsewhere_is_not():
    told = ["sliding_window is not None", "not head_size in [64, 128]"]
    assert made("vllm/attention/backends/one.py", "one") == {"ONE": {"V0": told}}


def test_a_backend_of_the_second_engine_has_the_name_that_a_launch_gives_it():
    assert set(made("vllm/v1/attention/backends/one.py", "ONE_VLLM_V1")["ONE"]) == {"V1"}
    assert set(made("vllm/attention/backends/one.py", "one-two")) == {"ONE_TWO"}


def test_backends_of_other_devices_are_not_read():
    assert made("vllm/v1/attention/backends/rocm_one.py", "ONE") == {}
