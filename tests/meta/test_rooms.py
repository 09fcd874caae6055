"""Which room of the package imports which: the ways that CONTRIBUTING lists, and no way back."""

import ast
from pathlib import Path

import pytest

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent
# Only what a room may import of the package; a room that is not here has no bounds yet.
MAY = {
    "log": {"log", "knowledge", "records"},
    "records": {"records"},
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


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
