"""What tools/releases/ropes.py and configurations.py write down of how a release reads a config.json."""

import sys
from pathlib import Path
from textwrap import dedent

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import configurations, ropes  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

LENGTH = """
    def _get_and_verify_max_len(hf_config, max_model_len):
        derived = float("inf")
        for key in KEYS:
            derived = min(derived, getattr(hf_config, key, derived))
        if derived == float("inf"):
            return max_model_len
        rope_scaling = getattr(hf_config, "rope_scaling", None)
        if rope_scaling is not None and rope_scaling["type"] != "su":
            assert "factor" in rope_scaling
"""
ROTARY = """
    _ROPE_DICT = {}
    def get_rope(head_size, rope_scaling=None):
        if head_size in _ROPE_DICT:
            return _ROPE_DICT[head_size]
        if rope_scaling is None:
            return Plain(head_size)
        kind = rope_scaling["type"] if "type" in rope_scaling else rope_scaling["rope_type"]
        if kind == "yarn":
            return Yarn(head_size, rope_scaling["factor"])
        raise ValueError(kind)
"""
REGISTRY = """
    _MODELS = {"AForCausalLM": ("a", "AForCausalLM"), "BForCausalLM": ("b", "BForCausalLM")}
"""
CONFIG = """
    _CONFIG_REGISTRY: dict = LazyConfigDict(chatglm="ChatGLMConfig", jais="JAISConfig")
    def get_config(model, trust):
        {first}
        {then}
"""
ASKS, LOOKS = "config = AutoConfig.from_pretrained(model)", "if model_type in _CONFIG_REGISTRY: return 1"
KIND = "(config['type'] if 'type' in config else config['rope_type'])"
MODELS = "vllm/model_executor/models"


def wheel(**files):
    return Wheel("vllm", "1", {path: dedent(text) for path, text in files.items()}, {})


def test_tests_of_a_scaling_are_written_in_its_keys():
    files = {
        "vllm/config.py": LENGTH,
        "vllm/model_executor/layers/rotary_embedding.py": ROTARY,
        f"{MODELS}/registry.py": REGISTRY,
        f"{MODELS}/a.py": "    rotary = get_rope(64, rope_scaling=scaling)\n",
        f"{MODELS}/b.py": "    rotary = get_rope(64)\n",
    }
    found = ropes.read(wheel(**files))
    assert list(found["ropes"]) == [
        "length: config is not None and (not 'type' in config)",
        "length: config is not None and config['type'] != 'su' and (not 'factor' in config)",
        f"rotary: not config is None and {KIND} == 'yarn' and (not 'factor' in config)",
        "rotary: not config is None and (not 'type' in config) and (not 'rope_type' in config)",
        f"rotary: not config is None and (not {KIND} == 'yarn')",
    ]
    assert list(found["scaled"]) == ["AForCausalLM"]


def test_types_of_the_releases_own_count_where_it_looks_there_first():
    place = "vllm/transformers_utils/config.py"
    before, after = CONFIG.format(first=LOOKS, then=ASKS), CONFIG.format(first=ASKS, then=LOOKS)
    assert list(configurations.read(wheel(**{place: before}))) == ["chatglm", "jais"]
    assert configurations.read(wheel(**{place: after})) == {}
