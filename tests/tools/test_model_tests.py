"""What tools/releases/model_tests.py writes down of the tests that a model's own classes ask."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import constant_tests, model_tests  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

MODELS = "vllm/model_executor/models"
REGISTRY = '_MODELS = {"AForCausalLM": ("a", "AForCausalLM")}'
DIVIDES = """
    def divide(numerator, denominator):
        assert numerator % denominator == 0, "{} is not divisible by {}".format(numerator, denominator)
        return numerator // denominator
"""
LINEAR = """
    from vllm.distributed import *
    class LinearBase:
        def __init__(self, size, disable_tp=False):
            self.tp_size = 1 if disable_tp else get_tensor_model_parallel_world_size()
    class RowParallelLinear(LinearBase):
        def __init__(self, size, *, disable_tp=False):
            self.tp_size = get_tensor_model_parallel_world_size() if not disable_tp else 1
            self.each = divide(size, self.tp_size)
"""
HEAD = """
    from vllm.model_executor.layers.linear import RowParallelLinear
    class AForCausalLM(nn.Module):
        model_cls = AModel
        def __init__(self, *, vllm_config, prefix=""):
            super().__init__()
            self.config = vllm_config.model_config.hf_config
            self.model = self.model_cls(vllm_config=vllm_config)
    class AModel(nn.Module):
        def __init__(self, *, vllm_config, layer_type=ALayer):
            config = vllm_config.model_config.hf_text_config
            self.start, self.layers = make_layers(config.num_hidden_layers, lambda prefix: layer_type(config, prefix))
"""


def asked(*lines, head=HEAD):
    """What is written down of a layer whose `__init__` has these lines."""
    body = "\n".join(f"            {line}" for line in lines)
    layer = f"    class ALayer(nn.Module):\n        def __init__(self, config, prefix):\n{body}\n"
    files = {
        f"{MODELS}/registry.py": REGISTRY,
        f"{MODELS}/a.py": head.rstrip(" ") + layer,
        "vllm/model_executor/layers/linear.py": LINEAR,
        "vllm/distributed/utils.py": DIVIDES,
    }
    found = model_tests.read(Wheel("vllm", "1", {path: dedent(text) for path, text in files.items()}, {}))
    return {name.removeprefix("AForCausalLM: "): said for name, said in found.items()}


RAISES = "    raise ValueError(f'Unsupported activation: {config.hidden_act}.')"


def test_a_layer_that_is_made_on_the_way_asks_keys_of_the_language_model():
    assert asked("if config.hidden_act != 'silu':", RAISES) == {
        "text['hidden_act'] != 'silu'": {"in": "ALayer", "says": "Unsupported activation: …."}
    }


def test_a_parallel_layer_asks_whether_the_ranks_divide_its_width():
    told = {"in": "", "says": "… is not divisible by …"}
    assert asked("self.o = RowParallelLinear(config.intermediate_size)") == {
        "not text['intermediate_size'] % tp == 0": told
    }
    assert asked("self.o = RowParallelLinear(config.intermediate_size, disable_tp=True)") == {
        "not text['intermediate_size'] % 1 == 0": told
    }


@pytest.mark.parametrize(
    ("lines", "test"),
    [
        (["if extract_layer_index(prefix) in config.sparse:", RAISES], "layer in text['sparse']"),
        (["if int(prefix.split('.')[-1]) in config.sparse:", RAISES], "layer in text['sparse']"),
        (["if hasattr(config, 'gate'):", RAISES], "'gate' in text"),
        (["if getattr(config, 'gate', False):", RAISES], "text['gate']"),
        (["if get_pp_group().world_size > 1:", RAISES], "pp > 1"),
        (["if not current_platform.has_device_capability(90):", RAISES], "not capability >= 90"),
        (
            ["if get_vit_attn_backend(dtype=config.dtype) not in {_Backend.XFORMERS, _Backend.TORCH_SDPA}:", RAISES],
            "not tower_backend in ('XFORMERS', 'TORCH_SDPA')",
        ),
        (["if check_upstream_fa_availability(torch.float16):", RAISES], "own_flash"),
        (["heads = config.heads if config.heads else 4", "assert heads > 2"], None),
        (["a, b = config.width, config.heads", "assert a % b == 0"], "not text['width'] % text['heads'] == 0"),
    ],
)
def test_what_a_test_may_ask(lines, test):
    found = list(asked(*lines))
    assert found == [test] if test else len(found) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ["if something(config):", RAISES],  # a function that nobody follows
        ["if config.rope_scaling is None:", RAISES],  # a key that a release writes anew
        ["if current_platform.is_rocm():", RAISES],
        ["if config.hidden_act != 'silu':", "    raise NotImplementedError"],
        ["if something():", "    if config.hidden_act != 'silu':", "        raise ValueError('behind the unknown')"],
    ],
)
def test_what_is_left_out(lines):
    assert asked(*lines) == {}


def test_a_tower_is_made_where_it_is_marked_and_whole_where_the_launch_says_so():
    head = """
    from vllm.model_executor.layers.linear import RowParallelLinear
    class AForCausalLM(nn.Module):
        def __init__(self, *, vllm_config, prefix=""):
            config = vllm_config.model_config.hf_config
            with self._mark_tower_model(vllm_config, "image"):
                self.visual = ALayer(config.vision_config, prefix)
    """
    lines = ["tp_size = 1 if is_vit_use_data_parallel() else get_tensor_model_parallel_world_size()"]
    lines += ["self.heads = dist_utils.divide(config.num_heads, tp_size)"]
    assert list(asked(*lines, head=head)) == [
        "tower and (not config['vision_config']['num_heads'] % (1 if whole else tp) == 0)"
    ]


VISUAL = """
    from vllm.model_executor.layers.linear import RowParallelLinear
    class AForCausalLM(nn.Module):
        def __init__(self, *, vllm_config, prefix=""):
            config = vllm_config.model_config.hf_config
            multimodal_config = vllm_config.model_config.multimodal_config
            {made}
"""
HEADS = ["self.heads = dist_utils.divide(config.num_heads, get_tensor_model_parallel_world_size())"]
SPLIT = "(not config['vision_config']['num_heads'] % tp == 0)"


@pytest.mark.parametrize(
    ("made", "test"),
    [
        # Before towers were marked, a limit of nothing left one out.
        (
            (
                "if multimodal_config.get_limit_per_prompt('image') "
                "or multimodal_config.get_limit_per_prompt('video'): "
                "self.visual = ALayer(config.vision_config, prefix)"
            ),
            f"tower and {SPLIT}",
        ),
        (
            "self.visual = ALayer(config.vision_config if multimodal_config is not None else None, prefix)",
            SPLIT.removeprefix("(").removesuffix(")"),
        ),
        (
            "self.visual = ALayer(deepcopy(config).vision_config, prefix)",
            SPLIT.removeprefix("(").removesuffix(")"),
        ),
        (
            "self.visual = ALayer(**{'config': config.vision_config, 'prefix': prefix})",
            SPLIT.removeprefix("(").removesuffix(")"),
        ),
        (
            "if isinstance(config.vision_config, CLIPVisionConfig): self.visual = ALayer(config.vision_config, prefix)",
            f"config['vision_config']['model_type'] == 'clip_vision_model' and {SPLIT}",
        ),
    ],
)
def test_a_tower_is_followed_through_what_a_model_asks_before_it_makes_one(made, test):
    assert list(asked(*HEADS, head=VISUAL.format(made=made))) == [test]


def test_what_stands_behind_a_line_that_may_have_raised_is_asked_all_the_same():
    lines = ["if self.backend() not in KNOWN:", "    raise RuntimeError('another backend')", *HEADS]
    assert list(asked(*lines)) == ["not text['num_heads'] % tp == 0"]


@pytest.mark.parametrize(
    ("test", "holds"),
    [("(not False)", True), ("(None is None)", True), ("(not ('' or None))", True), ("(1 == 2)", False), ("tp", None)],
)
def test_of_constants_alone_it_is_known_whether_they_hold(test, holds):
    assert constant_tests.truth(test) is holds


def test_elements_of_a_list_that_stands_there_are_known():
    assert constant_tests.elements("([a['b']] * 2)") == ["a['b']"]
    assert constant_tests.elements("a['b']") == ["unknown"]


def test_a_class_that_makes_objects_of_others_is_asked_nothing():
    head = HEAD.replace("        model_cls = AModel\n", "        model_cls = AModel\n        def __new__(cls): pass\n")
    assert asked("if config.hidden_act != 'silu':", RAISES, head=head) == {}
