"""What a wheel says of embeddings and heads that adapters may change."""

from pathlib import Path

from releases import adapted
from releases.wheel import read as read_wheel

from tests.tools.small_wheel import wheel

MODELS = "vllm/model_executor/models"
FILES = {
    f"{MODELS}/registry.py": """
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "PhiForCausalLM": ("llama", "Phi"),
    "MistralForCausalLM": ("llama", "Mistral"),
    "PlainForCausalLM": ("llama", "Plain"),
    "CopiesForCausalLM": ("sees", "Copies"),
    "HoldsForCausalLM": ("sees", "Holds"),
    "SeesForConditionalGeneration": ("sees", "Sees"),
    "AnyForConditionalGeneration": ("sees", "Any"),
}
""",
    f"{MODELS}/llama.py": """
class LlamaForCausalLM:
    embedding_modules = {"embed_tokens": "input_embeddings", "lm_head": "output_embeddings"}
class Phi(LlamaForCausalLM):
    packed_modules_mapping = {}
class Mistral(LlamaForCausalLM):
    embedding_modules = {}
class Plain: ...
""",
    f"{MODELS}/sees.py": """
from .llama import LlamaForCausalLM, Mistral, Phi
from .utils import init_vllm_registered_model
class Copies:
    embedding_modules = LlamaForCausalLM.embedding_modules
class Holds:
    embedding_modules = ["embed_tokens"]
    def __init__(self):
        self.language_model = Mistral()
class Sees:
    def __init__(self):
        self.language_model = init_vllm_registered_model(architectures=["PhiForCausalLM"])
class Any:
    def __init__(self):
        self.language_model = init_vllm_registered_model(hf_config=config.text_config)
""",
    f"{MODELS}/utils.py": "def init_vllm_registered_model(): ...\n",
}


def test_the_nearest_class_says_it_and_so_does_a_language_model_that_is_built(tmp_path: Path) -> None:
    found = adapted.read(read_wheel(wheel(tmp_path, more=FILES)))
    assert found == {
        "LlamaForCausalLM": "embed_tokens lm_head",
        "PhiForCausalLM": "embed_tokens lm_head",  # its base does; Mistral's class says otherwise, and is not here
        "CopiesForCausalLM": "embed_tokens lm_head",
        "HoldsForCausalLM": "embed_tokens",
        "SeesForConditionalGeneration": "embed_tokens lm_head",
        "AnyForConditionalGeneration": "lost",
    }


def test_a_release_without_such_a_thing_says_nothing(tmp_path: Path) -> None:
    assert adapted.read(read_wheel(wheel(tmp_path))) == {}
