"""Each `raise` of a release, and what the plan makes of it."""

import re
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import options, raises  # noqa: E402
from releases.fields import Fields  # noqa: E402
from releases.raises import KINDS, Site, kind, rows, sites  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

CONFIG = """
class CacheConfig:
    a: int = 0
    b: int = 0
    @model_validator(mode="after")
    def _both(self):
        if self.a > 1 and self.b > 1:
            raise ValueError("not both")
    def asked(self):
        if self.a:
            pass
        else:
            for one in self.all():
                raise ValueError(f"no {one} here")
"""
LORA = """
def create_lora_manager(model):
    if not isinstance(model, SupportsLoRA):
        raise ValueError(f"Model {type(model)} is not supported for LoRA.")
"""


def wheel():
    files = {
        "vllm/config/cache.py": CONFIG,
        "vllm/lora/model_manager.py": LORA,
        "vllm/engine/arg_utils.py": "class EngineArgs:\n    a: int = 0\n",
        "vllm/entrypoints/x.py": "raise ValueError('out of scope')\n",
    }
    return Wheel("vllm", "0.33.0", files, {})


def test_each_raise_in_scope_is_found_with_its_tests_and_its_message():
    found = list(sites(wheel(), options.read(wheel(), Fields(wheel()))))
    assert [(s.where, s.says) for s in found] == [
        ("config/cache.py::CacheConfig._both", "self.a > 1 and self.b > 1 | ValueError: 'not both'"),
        ("config/cache.py::CacheConfig.asked", "not (self.a) | ValueError: f'no {one} here'"),
        (
            "lora/model_manager.py::create_lora_manager",
            "not isinstance(model, SupportsLoRA) | ValueError: f'Model {type(model)} is not supported for LoRA.'",
        ),
    ]
    assert [s.written for s in found] == ["history/joint.json", "", ""]
    assert kind(found[0]) == ("asked", "history/joint.json")
    assert kind(found[2]) == ("asked", "plan/launch/traits.py")


def test_what_no_row_names_is_unread():
    assert kind(Site("somewhere.py::f", "x | ValueError: 'y'", 1, "")) == ("unread", "")


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.where.pattern[:40])
def test_a_row_says_one_of_the_kinds_and_by_what(row):
    assert row.kind in KINDS
    assert row.by
    if row.kind == "asked":
        files = re.findall(r"[\w/]+\.(?:py|json)", row.by)
        package = REPO / "vllm_doctor"
        assert all(list(package.glob(f"**/{file}")) for file in files), row.by


def test_the_table_is_kept_row_by_row():
    assert raises.rows() is raises.rows()
