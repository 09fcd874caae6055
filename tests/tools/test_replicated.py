"""What a wheel says of ranks that split tokens, and of the shared experts that they then hold whole."""

from pathlib import Path

import pytest
from releases import replicated
from releases.wheel import read as read_wheel

from tests.tools.small_wheel import wheel

MODELS = "vllm/model_executor/models"
CONFIG = """
class ParallelConfig:
    @property
    def use_sequence_parallel_moe(self):
        return (self.all2all_backend in ("one", "two") and self.enable_expert_parallel
            and self.tensor_parallel_size > 1 and self.data_parallel_size > 1)
    def __post_init__(self):
        if self.all2all_backend in ["gone", "left"]:
            logger.warning("removed")
            self.all2all_backend = "one"
        if self.all2all_backend == "kept":
            self.all2all_backend = "other"
"""
REGISTRY = """
_TEXT_GENERATION_MODELS = {
    "DeepForCausalLM": ("deep", "DeepForCausalLM"),
    "ChildForCausalLM": ("deep", "Child"),
    "SplitForCausalLM": ("split", "SplitForCausalLM"),
    "PlainForCausalLM": ("split", "PlainForCausalLM"),
    "BothForCausalLM": ("split", "BothForCausalLM"),
    "OwnForCausalLM": ("own", "OwnForCausalLM"),
    "SeesForConditionalGeneration": ("sees", "Sees"),
    "AnyForConditionalGeneration": ("sees", "Any"),
    "LostForCausalLM": ("nowhere", "LostForCausalLM"),
}
"""
FILES = {
    "vllm/config/parallel.py": CONFIG,
    f"{MODELS}/registry.py": REGISTRY,
    f"{MODELS}/deep.py": """
class DeepMoE:
    def __init__(self, parallel_config):
        self.is_sequence_parallel = parallel_config.use_sequence_parallel_moe
        self.shared_experts = None
        self.shared_experts = DeepMLP(is_sequence_parallel=self.is_sequence_parallel)
class DeepForCausalLM:
    def __init__(self): self.mlp = DeepMoE()
class Child(DeepForCausalLM): ...
""",
    f"{MODELS}/split.py": """
from .deep import DeepMoE
class SplitMoE:
    def __init__(self):
        self.shared_expert = MLP(disable_tp=self.misaligned)
class SplitForCausalLM:
    def __init__(self): self.mlp = SplitMoE()
class PlainForCausalLM: ...
class BothForCausalLM:
    def __init__(self): self.mlp = SplitMoE() if small else DeepMoE()
""",
    f"{MODELS}/own.py": """
class OwnMoE:
    def __init__(self, use_sequence_parallel):
        self.shared_experts = MLP(is_sequence_parallel=use_sequence_parallel)
class OwnForCausalLM:
    def __init__(self): self.mlp = OwnMoE()
""",
    f"{MODELS}/sees.py": """
from .utils import init_vllm_registered_model
class Sees:
    def __init__(self):
        self.language_model = init_vllm_registered_model(architectures=["DeepForCausalLM"])
class Any:
    def __init__(self):
        self.language_model = init_vllm_registered_model(hf_config=config.text_config)
""",
    f"{MODELS}/utils.py": "def init_vllm_registered_model(): ...\n",
}


def read(place: Path, changed: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
    return replicated.read(read_wheel(wheel(place, more={**FILES, **(changed or {})})))


def test_the_backends_are_those_of_the_condition_and_those_that_it_replaced(tmp_path: Path) -> None:
    assert read(tmp_path)["tokens"] == {"backends": "gone left one two", "needs": "data expert tensor"}


def test_a_class_is_followed_to_where_its_shared_experts_are_built(tmp_path: Path) -> None:
    assert read(tmp_path)["shared_experts"] == {
        "DeepForCausalLM": "whole",
        "ChildForCausalLM": "whole",
        "BothForCausalLM": "own",  # one of two classes
        "OwnForCausalLM": "own",  # under a condition that is not the configuration's
        "SeesForConditionalGeneration": "whole",  # builds the first
        "AnyForConditionalGeneration": "lost",  # builds what its config names
        "LostForCausalLM": "lost",
    }


@pytest.mark.parametrize(
    "config",
    [
        "class ParallelConfig: ...\n",
        CONFIG.replace("self.data_parallel_size > 1", "self.nobody_knows"),
        CONFIG.replace(" > 1 and self.data", " > 1 or self.data"),
    ],
)
def test_a_condition_of_another_kind_is_not_guessed_at(tmp_path: Path, config: str) -> None:
    assert read(tmp_path, {"vllm/config/parallel.py": config}) == {"tokens": {}, "shared_experts": {}}


def test_before_the_configuration_had_the_condition_a_model_s_file_did(tmp_path: Path) -> None:
    moe = """
class DeepMoE:
    def __init__(self, parallel_config):
        self.is_sequence_parallel = (envs.VLLM_ALL2ALL_BACKEND in ("one", "two")
            and parallel_config.enable_expert_parallel and self.tp_size > 1)
        self.shared_experts = DeepMLP(is_sequence_parallel=self.is_sequence_parallel)
class DeepForCausalLM:
    def __init__(self): self.mlp = DeepMoE()
"""
    found = read(tmp_path, {"vllm/config/parallel.py": "class ParallelConfig: ...\n", f"{MODELS}/deep.py": moe})
    assert found["tokens"] == {"backends": "one two", "needs": "expert tensor"}
    assert found["shared_experts"]["DeepForCausalLM"] == "whole"
