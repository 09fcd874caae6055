"""Which room of the package imports which: the ways that CONTRIBUTING lists, and no way back."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import vllm_doctor
from vllm_doctor.rules import order

PACKAGE = Path(vllm_doctor.__file__).parent
# What a room may import of the package beside itself. `plan` reads a model's files, and `gather.bounded` is how.
MAY: dict[str, set[str]] = {
    "records": set(),
    "knowledge": {"records"},
    "launch": {"knowledge", "records"},
    "log": {"knowledge", "records"},
    "redact": {"log", "knowledge", "records"},
    "gather": {"launch", "log", "knowledge", "redact", "records"},
    "plan": {"gather", "launch", "log", "knowledge", "records"},
    "rules": {"plan", "launch", "log", "knowledge", "redact", "records"},
    "remedy": {"launch", "knowledge", "redact", "records"},
    "preflight": {"plan", "launch", "knowledge", "redact", "records"},
}
# What an operator does shows nothing, what Prometheus is told knows what was done, and what is shown knows both.
_BELOW = {*MAY} - {"preflight"}
MAY["operate"] = _BELOW
MAY["monitor"] = {*_BELOW, "operate"}
MAY["render"] = {*_BELOW, "operate", "monitor"}


def test_plan_asks_gather_for_a_bounded_file_and_for_nothing_else() -> None:
    names = {name for path in (PACKAGE / "plan").rglob("*.py") for name in _imports(path)}
    assert {name for name in names if name.startswith("vllm_doctor.gather.")} <= {
        f"vllm_doctor.gather.bounded{end}" for end in ("", ".all_of", ".json_value")
    }


@pytest.mark.parametrize("room", MAY)
def test_a_room_imports_only_what_stands_below_it(room: str) -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in (PACKAGE / room).rglob("*.py")
        for name in _imports(path)
        if name.startswith("vllm_doctor.") and name.split(".")[1] not in {room, "__version__", *MAY[room]}
    }
    assert not found


def test_no_file_needs_itself_by_way_of_others() -> None:
    """Imports inside functions count too: a circle cannot be read from any end."""
    needed = {path: {_file(name) for name in _imports(path)} - {None, path} for path in PACKAGE.rglob("*.py")}
    assert len(list(TopologicalSorter(needed).static_order())) == len(needed)


FAMILIES = [PACKAGE / "rules" / family for family in order.FAMILIES.values()]
# What a rule may import of the room rules: no other rule, of its own family or another.
SHARED = {"case", "outcome", "say", "gates", "remedies"}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name)
def test_a_rule_imports_no_other_rule(family: Path) -> None:
    found = {f"{path.name}: {name}" for path in family.glob("*.py") for name in _of_rules(path) if name not in SHARED}
    assert not found


@pytest.mark.parametrize(
    ("room", "may"),
    [("gates", {"case", "outcome", "say", "gates"}), ("remedies", {"case", "outcome", "say", "gates", "remedies"})],
)
def test_what_rules_share_imports_no_rule(room: str, may: set[str]) -> None:
    found = {
        f"{path.name}: {name}"
        for path in (PACKAGE / "rules" / room).glob("*.py")
        for name in _of_rules(path)
        if name not in may
    }
    assert not found


def _file(name: str) -> Path | None:
    """The module's own file, of a name in a module too; None where it is no module of ours."""
    parts = name.split(".")
    if parts[0] != PACKAGE.name:
        return None
    whole, of_name = (PACKAGE.joinpath(*parts[1:end]) for end in (len(parts), -1))
    places = [file for place in (whole, of_name) for file in (place.with_suffix(".py"), place / "__init__.py")]
    return next(file for file in places if file.is_file())


def _of_rules(path: Path) -> set[str]:
    return {name.split(".")[2] for name in _imports(path) if name.startswith("vllm_doctor.rules.")}


@cache
def _imports(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)
