"""The names that programs take from vLLM, as the wheels of several releases have them."""

import json
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import api, store  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

OLD = """
from vllm.pace import slow
class Engine:
    rows: int = 8
    def __init__(self, model, pace=1):
        self.model = model
        self.runner = None
    def step(self, prompt, tokens=None): ...
    def _own(self, secret): ...
def start(model, quick=False): ...
if True:
    LIMIT = 4
"""
NEW = """
class Engine:
    rows: int = 8
    def __init__(self, model):
        self.model = model
    def step(self, prompt): ...
def start(model, quiet=False): ...
"""


def _wheel(version: str, files: dict[str, str]) -> Wheel:
    return Wheel(name=f"vllm-{version}", version=version, files=files, metadata={})


def _told() -> dict[str, dict[str, str]]:
    wheels = [
        _wheel("0.1.0", {"vllm/__init__.py": "from vllm.engine import Engine\n", "vllm/engine.py": OLD}),
        _wheel("0.2.0", {"vllm/__init__.py": "MODULE_ATTRS = {'Engine': '.engine'}\n", "vllm/engine.py": OLD}),
        _wheel("0.3.0", {"vllm/engine.py": NEW, "vllm/pace.py": "def slow(): ...\n"}),
    ]
    table: dict[str, dict[str, str]] = json.loads(api.table({wheel.version: api.names(wheel) for wheel in wheels}))
    return table


def test_what_came_and_went_has_its_releases_and_what_is_always_there_has_none() -> None:
    told = _told()
    assert told["modules"] == {"vllm": "vllm:0-1 vllm.pace:2-"}
    assert told["names"] == {"vllm": "Engine:0-1 MODULE_ATTRS:1-1", "vllm.engine": "LIMIT:0-1", "vllm.pace": "slow:2-"}
    assert told["members"] == {"Engine": "runner:0-1"}
    assert told["arguments"] == {
        "Engine.__init__": "pace:0-1",
        "Engine.step": "tokens:0-1",
        "start": "quick:0-1 quiet:2-",
    }


def test_what_a_module_only_imports_is_not_its_own() -> None:
    assert "slow" not in _told()["names"]["vllm.engine"]


def test_the_table_has_all_releases_that_are_written_down() -> None:
    """tools/release.py api, with the wheels of all, writes it."""
    assert json.loads(api.FILE.read_text("utf-8"))["releases"] == store.versions()
