"""The rooms of the plan stand in an order: each imports only those before it."""

import ast
from pathlib import Path

import pytest

PLAN = Path(__file__).parents[2] / "vllm_doctor" / "plan"
ROOMS = ("model", "launch", "calibration", "terms", "support", "prediction", "question", "advice")
FILES = sorted(file for room in ROOMS for file in (PLAN / room).rglob("*.py"))


def rooms_imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm_doctor.plan."):
            yield node.module.split(".")[2]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PLAN)))
def test_a_room_imports_only_those_before_it(file):
    own = ROOMS.index(file.relative_to(PLAN).parts[0])
    later = [room for room in rooms_imported(file) if room in ROOMS[own + 1 :]]
    assert not later
