"""What tools/releases/checkpoints.py writes down of a release's quantizations: their tests of a checkpoint's keys."""

import sys
from pathlib import Path
from textwrap import dedent

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import checkpoints  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

FOLDER = "vllm/model_executor/layers/quantization"
INIT = """
    def get_quantization_config(quantization):
        from .packed import PackedConfig
        table = {"packed": PackedConfig}
        return table[quantization]
"""
BASE = """
    class QuantizationConfig:
        LEAST = 2
        @classmethod
        def normal(cls, kind):
            return "fp" if kind == "fp8" else kind
        @property
        def wide(self):
            return self.bits > 4
"""
PACKED = """
    from .base_config import QuantizationConfig
    KINDS = ["int", "fp"]
    def even(size):
        if size % 2:
            raise ValueError("odd")
        return size
    class PackedConfig(QuantizationConfig):
        SUPPORTED = {2, 4, 8}
        def __init__(self, bits, size, kind="int", scheme=None):
            super().__init__()
            if bits not in self.SUPPORTED:
                raise ValueError("bits")
            self.bits, self.other = bits, size
            self.bits = bits
            if self.wide and kind not in KINDS:
                raise ValueError("kind")
            if scheme is not None:
                if scheme < self.LEAST:
                    raise ValueError("scheme")
            for part in self.parts:
                if part:
                    raise ValueError("a part")
            assert size != 3, "three"
            if current_platform.is_cuda() and size > 9:
                raise ValueError("large")
        @classmethod
        def from_config(cls, config):
            def safe(config, keys, standard=None):
                try:
                    return cls.get_from_keys(config, keys)
                except ValueError:
                    return standard
            bits = cls.get_from_keys(config, ["bits", "w_bit"])
            size = even(cls.get_from_keys_or(config, ["size"], 8))
            return cls(bits, size, kind=cls.normal(config.get("kind", "int")), scheme=safe(config, ["scheme"]))
"""
SIZE = "(config['size'] if 'size' in config else 8)"
BITS = "(config['bits'] if 'bits' in config else config['w_bit'])"
KIND = "('fp' if config.get('kind', 'int') == 'fp8' else config.get('kind', 'int'))"
SCHEME = "(config['scheme'] if not (not 'scheme' in config) else None)"


def read(packed=PACKED, base=BASE):
    files = {
        f"{FOLDER}/__init__.py": dedent(INIT),
        f"{FOLDER}/base_config.py": dedent(base),
        f"{FOLDER}/packed.py": dedent(packed),
    }
    return [test.removeprefix("packed: ").replace('"', "'") for test in checkpoints.read(Wheel("vllm", "1", files, {}))]


def test_each_error_is_written_in_the_keys_of_the_checkpoint():
    found = read()
    assert "not 'bits' in config and (not 'w_bit' in config)" in found
    assert f"not {BITS} in (2, 4, 8)" in found  # a constant of the class
    assert f"{BITS} > 4 and (not {KIND} in ['int', 'fp'])" in found  # a property of its base, a function's default
    assert "(config['size'] if 'size' in config else 8) % 2" in found  # a function of the module
    assert f"not {SIZE} != 3" in found  # an assert


def test_a_key_that_is_asked_for_where_its_error_is_caught_ends_nothing():
    found = read()
    assert not [test for test in found if test == "not 'scheme' in config"]
    assert any("config['scheme']" in test and " < 2" in test for test in found)


def test_what_nobody_can_answer_is_left_out():
    found = " ".join(read())
    assert "part" not in found  # a loop over what nobody knows
    assert "> 9" not in found  # behind the card
    assert len(read()) == 6


def test_a_method_that_changes_a_field_leaves_it_unknown():
    changed = PACKED.replace("if self.wide and", "self.turned()\n            if self.wide and")
    turned = BASE + "        def turned(self):\n            self.bits = later()\n"
    assert not [test for test in read(changed, turned) if "> 4" in test]


def test_a_wheel_without_quantizations_has_none():
    assert checkpoints.read(Wheel("vllm", "1", {}, {})) == {}
