"""Where functions stand in several releases, as their wheels have them."""

import json
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "tools"))

from releases import functions, store  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

FIRST = '''class Engine:
    def step(self, tokens):
        """Run one step."""
        logger.info("one step")
        return tokens

def start(model):
    return Engine(model)
'''
# The same code two lines further down, under other words.
MOVED = "import logging\n\n" + FIRST.replace("Run one step.", "Run a step.")
LAID_OUT = MOVED.replace("return Engine(model)", "return Engine(\n        model\n    )")
CHANGED = MOVED.replace("return tokens", "return tokens + 1")
GONE = MOVED.replace("def start", "def begin")


def _row(*texts: str | None) -> str:
    reader = functions.Reader()
    wheels = [Wheel(f"vllm-{at}", f"0.{at}.0", {"vllm/engine.py": t} if t else {}, {}) for at, t in enumerate(texts)]
    told = json.loads(functions.table({wheel.version: reader.release(wheel) for wheel in wheels}))
    row: str = told["files"]["engine.py"]
    return row


def test_a_body_that_only_moves_is_the_same_and_words_of_documentation_are_none_of_it() -> None:
    assert _row(FIRST, FIRST, MOVED) == "0-1,2-2|4/6|Engine.step @2+3 2;start @7+1 2"


def test_a_body_that_is_laid_out_anew_is_the_same_and_one_that_does_something_else_is_another() -> None:
    assert _row(MOVED, LAID_OUT) == "0-0,1-1|6/6|Engine.step @4+3 =;start @9+1 ~9+3"
    assert _row(MOVED, CHANGED) == "0-0,1-1|6/6|Engine.step @4+3 @4+3;start @9+1 ="


def test_what_is_gone_and_comes_again_has_its_old_body() -> None:
    assert _row(MOVED, GONE, None, MOVED) == "0-0,1-1,3-3|6/6/6|Engine.step @4+3 = =;begin - @9+1 -;start @9+1 - ="


def test_the_second_of_a_property_and_its_setter_is_a_function_of_its_own() -> None:
    read, write = "    @property\n    def rows(self): ...\n", "    @rows.setter\n    def rows(self, to): ...\n"
    both = f"class A:\n{read}{write}"
    assert _row(both) == "0-0||A.rows @3+0;A.rows' @5+0"


def test_the_table_has_all_releases_that_are_written_down() -> None:
    """tools/release.py functions, with the wheels of all, writes it."""
    assert json.loads(functions.FILE.read_text("utf-8"))["releases"] == store.versions()
