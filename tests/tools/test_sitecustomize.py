"""Python on a test host, of a virtual environment as well, looks seldom for garbage and not at its end."""

import argparse
import subprocess
import sys
from pathlib import Path

import host
import pytest

FOLDER = Path(__file__).parents[2] / "tools" / "host_python"
PROGRAM = """
import gc, sys
class Cycle:
    def __init__(self): self.me = self
    def __del__(self): print("collected")
kept = Cycle()
print(gc.get_threshold()[0] > 50_000)
"""


@pytest.mark.parametrize(("first", "says"), [("", ["False", "collected"]), ("import sitecustomize", ["True"])])
def test_a_cycle_is_not_looked_for_where_a_process_ends(first: str, says: list[str]) -> None:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(FOLDER)!r}); {first}\n{PROGRAM}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == says


@pytest.mark.parametrize(("release", "python"), [("12", "3.11"), ("13", "3.13")])
def test_it_lies_where_python_of_a_virtual_environment_looks(release: str, python: str) -> None:
    options = argparse.Namespace(release=release, volume=[], publish=[], has=[])
    words = host.run_arguments("group", None, options)
    assert f"{FOLDER / 'sitecustomize.py'}:/etc/python{python}/sitecustomize.py:ro" in words
    assert f"{FOLDER / 'ready_python.py'}:/usr/lib/python3/dist-packages/ready_python.py:ro" in words
