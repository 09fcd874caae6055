"""The catalogue is the only owner of what messages say: rules, and every room above them, name them by id.

A pattern, or a text that is looked for in a line, is a wording of its own. The files listed here still have some; the
list only shrinks.
"""

import ast
from pathlib import Path

import pytest

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent
# What a text of a log is called in the rules, and what a program's own words are called.
TEXTS = {"text", "line", "said", "told", "message", "file", "code", "why", "error", "excerpt", "health_error"}
READERS = {"re", "regex", "fnmatch"}
# What looks for a text, or cuts at one.
LOOKS = {"startswith", "endswith", "find", "rfind", "index", "count", "partition", "rpartition", "split", "rsplit"}
LOOKS |= {"removeprefix", "removesuffix", "replace"}
# They cut our own titles where a clause ends, and our own pages.
NO_READER = {"say.py", "explain.py"}
RULES = [p for p in sorted((PACKAGE / "rules").rglob("*.py")) if p.name not in NO_READER]
# Rooms that are given what was read; `gather` and `launch` read the formats of other programs, `log` those of logs.
ROOMS = ("cli", "monitor", "operate", "plan", "preflight", "remedy", "render")
OTHERS = [p for room in ROOMS for p in sorted((PACKAGE / room).rglob("*.py"))]
# What a mapping holds, fields of a configuration, and marks of our own templates.
KEYS = {"'log'", "'found'", "'float'", "'{{'", "'{to}'", "'[hidden]'", "import re"}
# Formats of what stands in front of lines, of tracebacks and of figures are grammar and not wording: one reader each.
GRAMMAR = {"log/read/prefix.py", "log/read/order.py", "log/read/window.py", "log/read/unwrap.py", "log/read/servers.py"}
GRAMMAR |= {"log/clock.py", "log/traceback.py", "log/native_crash.py", "log/read/whole.py", "log/read/pieces.py"}
# Names of processes.
STILL = {"log/run.py", "log/last_run.py"}


@pytest.mark.parametrize("path", RULES, ids=lambda p: str(p.relative_to(PACKAGE / "rules")))
def test_a_rule_has_no_wording_of_its_own(path: Path) -> None:
    assert not wordings(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_other_room_looks_for_what_a_log_says(path: Path) -> None:
    found = {
        told.replace(" not in ", " in ").partition(" in ")[0] for told in wordings(path.read_text(encoding="utf-8"))
    }
    assert not found - KEYS


def test_the_readers_that_still_have_patterns_are_known_and_become_fewer() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "log").rglob("*.py")
        if path.name != "match.py" and patterns(path.read_text(encoding="utf-8"))
    }
    assert found == (GRAMMAR | STILL) & found
    assert found >= STILL, f"take away from STILL: {STILL - found}"


@pytest.mark.parametrize(
    "code",
    [
        "import re",
        "A = Pattern('x')",
        "any('out of memory' in line.text for line in lines)",
        "'bf16' in text(case, fault)",
        "line.text.startswith('Stopping ')",
        "said.endswith('xy')",
        "from re import search",
        "import regex",
        "line.text.partition('Reason: ')",
        "(gpu.error or '').lower().startswith('gpu is')",
        "'undefined symbol' in hit.fields['why']",
        "'scaled_mm' in fault.fields('devices-with').get('what', '')",
        "line.text == 'Shutting down'",
        "match line.text:\n    case 'Shutting down': pass",
    ],
)
def test_a_wording_is_seen(code: str) -> None:
    assert wordings(code)


@pytest.mark.parametrize(
    "code",
    ["says(line.text, 'stats')", "'torch-oom' in fault.ids", "name.startswith('kv-')", "config.text('type') == 'int'"],
)
def test_an_id_is_no_wording(code: str) -> None:
    assert not wordings(code)


def wordings(source: str) -> list[str]:
    """Patterns, and texts that are looked for in what is called a text of a log, or in a field of a message."""
    found = patterns(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if _is_text(node.left) and _is_said(node.comparators[0]):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            if _is_text(node.comparators[0]) and _named(node.left) in {"text", "line"} and _is_said(node.left):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Match) and _named(node.subject) in {"text", "line"}:
            found.append(ast.unparse(node.subject))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = node.func.attr in LOOKS and node.args and _is_text(node.args[0])
            if asked and _is_said(node.func.value):
                found.append(ast.unparse(node))
    return found


def patterns(source: str) -> list[str]:
    """Imports of `re`, and patterns that are made."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Import) and any(a.name in READERS for a in node.names)) or (
            isinstance(node, ast.ImportFrom) and node.module in READERS
        ):
            found.append("import re")
        elif isinstance(node, ast.Call) and _named(node.func) == "Pattern":
            found.append(ast.unparse(node))
    return found


def _is_text(node: ast.expr) -> bool:
    """A text with a word in it, or several."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value.strip()) > 1 for part in parts
    )


def _is_said(node: ast.expr) -> bool:
    """Is it a text of a log, or a field of a message: `hit.fields["why"]`, `fault.fields("x").get("why", "")`?"""
    if isinstance(node, ast.BoolOp):
        return any(_is_said(value) for value in node.values)
    if _is_of_a_config(node):
        return False
    if _named(node) in TEXTS:
        return True
    inner = node.value if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"lower", "get", "strip"}:
            inner = node.func.value
        if node.func.attr == "lower":
            return _is_said(node.func.value)
    if isinstance(inner, ast.Call):
        inner = inner.func
    return inner is not None and _named(inner) == "fields"


def _is_of_a_config(node: ast.expr) -> bool:
    """`config.text("quant_method")`, `.lower()` or not: a value of a file, which the reader of configs gives."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        node = node.func.value
    of_reader = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "text"
    return of_reader and isinstance(node, ast.Call) and bool(node.args)


def _named(node: ast.expr) -> str:
    """The last name of an expression: `line.text`, `text(case, fault)`, `event.text.lower()`."""
    if isinstance(node, ast.Call):
        inner = _named(node.func)
        return _named(node.func.value) if inner == "lower" and isinstance(node.func, ast.Attribute) else inner
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
