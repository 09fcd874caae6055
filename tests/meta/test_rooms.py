"""Which room of the package imports which: the ways that CONTRIBUTING lists, and no way back."""

import ast
from pathlib import Path

import pytest

import vllm_doctor
from vllm_doctor.rules import order

PACKAGE = Path(vllm_doctor.__file__).parent
# Only what a room may import of the package; a room that is not here has no bounds yet.
MAY = {
    "log": {"log", "knowledge", "records"},
    "records": {"records"},
    "rules": {"rules", "plan", "launch", "log", "knowledge", "records", "redact"},
}


@pytest.mark.parametrize("room", MAY)
def test_a_room_imports_only_what_stands_below_it(room: str) -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in (PACKAGE / room).rglob("*.py")
        for name in _imports(path)
        if name.startswith("vllm_doctor.") and name.split(".")[1] not in MAY[room]
    }
    assert not found


FAMILIES = [PACKAGE / "rules" / family for family in order.FAMILIES.values()]
# What a rule may import of the room rules: no other rule, of its own family or another.
SHARED = {"case", "registry", "say", "gates", "remedies"}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name)
def test_a_rule_imports_no_other_rule(family: Path) -> None:
    found = {f"{path.name}: {name}" for path in family.glob("*.py") for name in _of_rules(path) if name not in SHARED}
    assert not found


@pytest.mark.parametrize(
    ("room", "may"),
    [("gates", {"case", "registry", "say", "gates"}), ("remedies", {"case", "registry", "say", "gates", "remedies"})],
)
def test_what_rules_share_imports_no_rule(room: str, may: set[str]) -> None:
    found = {
        f"{path.name}: {name}"
        for path in (PACKAGE / "rules" / room).glob("*.py")
        for name in _of_rules(path)
        if name not in may
    }
    assert not found


def _of_rules(path: Path) -> set[str]:
    return {name.split(".")[2] for name in _imports(path) if name.startswith("vllm_doctor.rules.")}


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
