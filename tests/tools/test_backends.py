"""What tools/releases/backends.py writes down of a backend's class: the bodies of its methods as expressions."""

import ast
from textwrap import dedent

import pytest
from releases import backends, kernels
from releases.wheel import Wheel

BASE = """
    class AttentionBackend:
        supported_kv_cache_dtypes = ["auto"]
        @classmethod
        def get_supported_head_sizes(cls):
            return []
        @classmethod
        def supports_head_size(cls, head_size):
            sizes = cls.get_supported_head_sizes()
            return (not sizes) or head_size in sizes
        @classmethod
        def supports_kv_cache_dtype(cls, kv_cache_dtype):
            if kv_cache_dtype is None:
                return True
            return (not cls.supported_kv_cache_dtypes) or kv_cache_dtype in cls.supported_kv_cache_dtypes
        @staticmethod
        def get_supported_kernel_block_sizes():
            return [MultipleOf(1)]
        @classmethod
        def supports_block_size(cls, block_size):
            for size in cls.get_supported_kernel_block_sizes():
                if block_size % size == 0:
                    return True
            return False
        @classmethod
        def supports_compute_capability(cls, capability):
            return True
        @classmethod
        def supports_sink(cls):
            return False
        @classmethod
        def validate_configuration(cls): ...
    class AttentionImpl:
        can_return_lse_for_decode: bool = False
"""
ONE = "vllm/v1/attention/backends/one.py"


def takes(body, *, caches="", more=""):
    files = {
        "vllm/v1/attention/backend.py": dedent(BASE),
        ONE: "class One(AttentionBackend):\n"
        + "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
        + dedent(more),
        "vllm/config/cache.py": f"CacheDType = Literal[{caches}]\n" if caches else "",
    }
    return backends.read(Wheel("vllm", "0.24.0", files, {})).takes("One")


@pytest.mark.parametrize(
    ("body", "question", "said"),
    [
        ("supported_kv_cache_dtypes = ['auto', 'fp8']", "kv_cache_dtype", "(kv_cache_dtype in ('auto', 'fp8',))"),
        ("supported_kv_cache_dtypes = []", "kv_cache_dtype", None),  # any
        ("def get_supported_head_sizes(cls):\n    return [64, 128]", "head_size", "(head_size in (64, 128,))"),
        ("pass", "head_size", None),
        (
            "def supports_head_size(cls, size):\n    if size % 8 != 0:\n        return False\n    return size <= 256",
            "head_size",
            "((not ((head_size % 8) != 0)) and (head_size <= 256))",
        ),
        (
            "def get_supported_kernel_block_sizes():\n    if wide():\n        return [32]\n    return [MultipleOf(16)]",
            "block_size",
            "((block_size % 16 == 0) or (block_size % 32 == 0))",  # any of the lists may be the one
        ),
        ("def get_supported_kernel_block_sizes():\n    return sizes()", "block_size", None),
        ("def supports_sink(cls):\n    return has_sinks()", "sink", None),  # a library's answer is not known
        ("pass", "sink", "False"),
        (
            """
            def supports_compute_capability(cls, capability):
                return capability >= DeviceCapability(8, 0) and capability <= DeviceCapability(12, 1)
            """,
            "capability",
            "((capability >= 8.0) and (capability <= 12.1))",
        ),
        (
            """
            def supports_compute_capability(cls, capability):
                if current_platform.is_xpu():
                    return True
                return capability.major in [9, 10]
            """,
            "capability",
            "(major in (9, 10,))",
        ),
        ("def supports_sink(cls):\n    return super().supports_sink()", "sink", "False"),
    ],
)
def test_a_method_is_an_expression_of_what_it_is_asked(body, question, said):
    assert takes(body).get(question) == said


def test_a_text_that_begins_so_is_one_of_those_that_the_release_lists():
    body = """
        def supports_kv_cache_dtype(cls, kv_cache_dtype):
            if kv_cache_dtype.startswith("fp8"):
                return library_has_fp8()
            return kv_cache_dtype in ["auto"]
    """
    listed = "('fp8', 'fp8_e5m2')"
    fp8, other = f"((kv_cache_dtype in {listed}) and unknown)", "(kv_cache_dtype in ('auto',))"
    said = f"({fp8} or ((not (kv_cache_dtype in {listed})) and {other}))"
    assert takes(body, caches="'auto', 'fp8', 'fp8_e5m2', 'int8'")["kv_cache_dtype"] == said


def test_ranks_that_share_a_context_are_asked_of_the_kernels_class():
    body = "def get_impl_cls():\n    return OneImpl"
    assert takes(body, more="class OneImpl(AttentionImpl[Some]): ...\n")["dcp"] == "False"
    assert "dcp" not in takes(body, more="class OneImpl(AttentionImpl[Some]):\n    can_return_lse_for_decode = True\n")


SIZED = """
    def get_supported_kernel_block_sizes(cls, spec=None):
        if size := cls._wide(spec):
            return [size]
        return [MultipleOf(16)]
    def _wide(cls, spec=None):
        if spec is None:
            return None
        return WIDE
"""


def test_a_block_of_a_size_that_a_condition_names_is_read_where_the_size_is_a_number():
    sizes = "((block_size % 16 == 0) or (block_size % 128 == 0))"
    assert takes(SIZED, more="WIDE = 128\n")["block_size"] == sizes
    assert "block_size" not in takes(SIZED, more="WIDE = of_the_card()\n")


def test_one_composed_of_two_takes_nothing_that_neither_of_them_takes():
    files = {
        "vllm/v1/attention/backend.py": dedent(BASE),
        ONE: """
class One(AttentionBackend):
    def get_supported_head_sizes(cls):
        return [64]
    def supports_sink(cls):
        return True
class Two(AttentionBackend):
    def get_supported_head_sizes(cls):
        return [128]
Both = create_composite_attention_backend(One, Two, name="Both")
""",
    }
    told = backends.read(Wheel("vllm", "0.33.0", files, {})).takes("Both")
    assert told["head_size"] == "((head_size in (64,)) or (head_size in (128,)))"
    assert "sink" not in told


def test_a_class_without_that_base_is_no_backend_of_this_kind():
    files = {ONE: "class One(Other):\n    supported_kv_cache_dtypes = ['auto']\n"}
    assert backends.read(Wheel("vllm", "0.9.2", files, {})).takes("One") == {}


def test_the_order_stands_under_its_condition_and_names_what_may_be_left_out():
    cuda = """
        def _get_backend_priorities(use_mla, device_capability, num_heads=None):
            if use_mla:
                rest = [AttentionBackendEnum.C, AttentionBackendEnum.D]
                return [AttentionBackendEnum.B, *rest]
            elif device_capability.major == 10 and not odd:
                return [AttentionBackendEnum.A]
            return [AttentionBackendEnum.A, AttentionBackendEnum.E]
    """
    found = backends.order(Wheel("vllm", "0.24.0", {"vllm/platforms/cuda.py": dedent(cuda)}, {}))
    assert found == {
        "mla": {"names": ["B", "C", "D"], "maybe": ["C", "D"]},
        "((not mla) and ((major == 10) and unknown))": {"names": ["A"]},
        "True": {"names": ["A", "E"]},
    }


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("unknown", False),
        ("head_size and unknown", True),
        ("head_size or unknown", False),
        ("not unknown", False),
        ("True", False),
    ],
)
def test_what_can_never_be_false_refuses_nothing(text, can):
    assert backends.fails(ast.parse(text, mode="eval").body) is can


def test_the_kernels_of_a_format_are_those_that_are_looked_up_or_left_alone():
    oracle = """
        def map_unquantized_backend(runner_backend):
            mapping = {"triton": Kind.TRITON, "cutlass": Kind.CUTLASS}
            if backend := mapping.get(runner_backend):
                return backend
            raise ValueError("none")
        def select(config):
            runner_backend = config.moe_backend
            if runner_backend not in ["auto", "marlin"]:
                return map_unquantized_backend(runner_backend)
    """
    folder = "vllm/model_executor/layers/fused_moe/oracle"
    files = {
        f"{folder}/unquantized.py": dedent(oracle),
        f"{folder}/fp8.py": "def map_fp8_backend(name):\n    return name\n",
    }
    found = kernels.read(Wheel("vllm", "0.24.0", files, {}))["moe_by_format"]
    assert found == {"unquantized": {"names": ["auto", "cutlass", "marlin", "triton"]}}  # of fp8 nothing is refused
