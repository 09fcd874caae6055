"""What is on where a line of a small release runs, as its source has it."""

import json
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import behind, store  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

ARG_UTILS = """
from vllm.config import CacheConfig, ModelConfig, VllmConfig
class EngineArgs:
    enforce_eager: bool = False
    enable_prefix_caching: bool | None = None
    enable_lora: bool = False
    num_lookahead: int = 1
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--enforce-eager", action="store_true")
        parser.add_argument("--enable-prefix-caching", action="store_true")
        parser.add_argument("--enable-lora", action="store_true")
        parser.add_argument("--num-lookahead", type=int, default=1)
    def create_engine_config(self):
        cache = CacheConfig(enable_prefix_caching=self.enable_prefix_caching, num_lookahead=self.num_lookahead)
        model = ModelConfig(enforce_eager=self.enforce_eager)
        lora_config = LoRAConfig() if self.enable_lora else None
        return VllmConfig(cache_config=cache, model_config=model, lora_config=lora_config)
"""
WORKER = """
class Manager:
    def __init__(self, enable_caching):
        self.caching = enable_caching
    def free(self, blocks):
        if not self.caching:
            return
        self.keep(blocks)
    def keep(self, blocks):
        assert blocks


class Adapters:
    def load(self, path):
        raise ValueError(path)


class Runner:
    def __init__(self, vllm_config):
        self.cache_config = vllm_config.cache_config
        self.manager = Manager(self.cache_config.enable_prefix_caching)
        self.adapters = None
        if vllm_config.lora_config:
            self.adapters = Adapters()
    def step(self, batch):
        if self.adapters is not None:
            self.prepare(batch)
        if self.cache_config.num_lookahead > 1 and batch:
            return [batch]
        return self.capture(batch) if not self.model_config.enforce_eager else batch
    def prepare(self, batch):
        return batch
    def capture(self, batch):
        if batch or self.cache_config.num_lookahead > 1:
            return batch
"""


def _rows(worker: str = WORKER, **more: str) -> dict[str, str]:
    files = {"vllm/engine/arg_utils.py": ARG_UTILS, "vllm/worker.py": worker}
    files |= {f"vllm/{name}.py": text for name, text in more.items()}
    return behind.Reader().release(Wheel("vllm-1", "0.33.0", files, {})).get("worker.py", {})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("Manager.free", "3-3 option enable-prefix-caching on"),  # what is left after the `return`
        ("Manager.keep", "* option enable-prefix-caching on"),  # its only call stands there
        ("Adapters.load", "* option enable-lora on"),  # its class is made there alone
        ("Runner.prepare", "* option enable-lora on"),  # an attribute that begins as None and is set there
        ("Runner.capture", "* option enforce-eager off"),  # one of the options whose being off turns a feature on
    ],
)
def test_code_runs_with_what_the_tests_above_it_and_above_its_calls_ask_for(function: str, told: str) -> None:
    assert _rows()[function] == told


def test_a_test_of_two_things_holds_for_each_and_one_of_either_for_none() -> None:
    assert _rows()["Runner.step"].split(";")[1] == "4-4 option num-lookahead > 1"
    assert "num-lookahead" not in _rows()["Runner.capture"]


def test_a_function_that_is_called_elsewhere_too_asks_for_nothing() -> None:
    assert "Manager.keep" not in _rows(other="def drain(manager):\n    manager.keep([1])\n")
    assert "Adapters.load" not in _rows(other="MADE = {'adapters': 'vllm.worker.Adapters'}\n")


def test_a_row_stands_where_it_differs_from_the_release_before() -> None:
    rows = {"worker.py": {"Runner.step": "2-3 option a on"}}
    told = json.loads(behind.table({"0.1.0": {}, "0.2.0": rows, "0.3.0": rows, "0.4.0": {}}))
    assert told["files"] == {"worker.py": "Runner.step\t1:2-3 0|3:"}
    assert told["conditions"] == ["option a on"]


def test_the_table_has_all_releases_that_are_written_down() -> None:
    """tools/release.py behind, with the wheels of all, writes it."""
    assert json.loads(behind.FILE.read_text("utf-8"))["releases"] == store.versions()
