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
    assert told["modules"] == {"vllm": "0-1 vllm;2- vllm.pace"}
    assert told["names"] == {"vllm": "1-1 MODULE_ATTRS;0-1 Engine", "vllm.engine": "0-1 LIMIT"}
    assert told["members"] == {"Engine": "0-1 runner"}
    assert told["arguments"] == {
        "Engine.__init__": "0-1 pace",
        "Engine.step": "0-1 tokens",
        "start": "0-1 quick;2- quiet",
    }


def test_what_a_module_only_imports_is_not_its_own() -> None:
    assert "slow" not in _told()["names"]["vllm.engine"]


def test_the_table_has_all_releases_that_are_written_down() -> None:
    """tools/release.py api, with the wheels of all, writes it."""
    assert json.loads(api.FILE.read_text("utf-8"))["releases"] == store.versions()


MODULES = {
    "vllm/base.py": "class Base(ABC):\n    def __init__(self, rows): self.rows = rows\n"
    "    @abstractmethod\n    def pull(self): ...\n",
    "vllm/engine.py": "class Engine(Base):\n    def __init__(self, rows, pace=1, *, lanes=2): self.config = pace\n",
    "vllm/v1/engine.py": "class Engine:\n    def __init__(self, rows, pace, *, lanes):\n        self.lanes = lanes\n",
    "vllm/args.py": "@dataclass\nclass Args:\n    rows: int\n    @property\n    def lanes(self): ...\n"
    "@config\nclass AsyncArgs(Args):\n    pace: int = 1\n",
}


def _one() -> api.Names:
    return api.names(_wheel("0.9.0", MODULES))


def test_a_class_has_what_its_bases_have() -> None:
    assert _one()["members"]["Engine"] == {"__init__", "pull", "rows", "config", "lanes"}


def test_what_a_call_must_give_is_told_apart_from_what_it_may() -> None:
    has = api.names(_wheel("0.9.0", {"vllm/engine.py": MODULES["vllm/engine.py"]}))
    assert has["required"]["Engine.__init__"] == {"self", "rows"}
    assert api.names(_wheel("0.9.0", {"vllm/e.py": MODULES["vllm/v1/engine.py"]}))["required"]["Engine.__init__"] == {
        "self", "rows", "pace", "lanes",
    }  # fmt: skip


def test_a_record_is_made_with_its_fields_and_those_of_its_base_and_not_with_a_property() -> None:
    assert _one()["arguments"]["AsyncArgs.__init__"] == {"rows", "pace"}
    assert _one()["required"]["Args.__init__"] == {"rows"}


def test_an_abstract_method_is_of_the_class_that_asks_for_it() -> None:
    assert _one()["abstract"] == {"Base": {"pull"}}


def test_of_two_classes_of_one_name_what_the_older_engines_alone_has() -> None:
    assert _one()["v0"] == {"Engine": {"pull", "rows", "config"}}


def test_what_the_older_engines_class_of_another_name_alone_has() -> None:
    files = {
        "vllm/engine/a.py": "class AsyncLLMEngine:\n    engine = None\n    def stop(self): ...\n",
        "vllm/v1/engine/a.py": "class AsyncLLM:\n    def stop(self): ...\n",
    }
    assert api.names(_wheel("0.9.0", files))["v0"] == {"AsyncLLM": {"engine"}}
