"""The catalogue is the only owner of what messages say: rules, and every room above them, name them by id.

A pattern, or a text that is looked for in a line, is a wording of its own. The files listed here have the grammar of
logs: what stands in front of lines, times, frames of a traceback. Names of processes are rows of the catalogue.
"""

import ast
from pathlib import Path

import pytest

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent
# What a text of a log is called in the rules, and what a program's own words are called.
TEXTS = {"text", "line", "said", "told", "message", "file", "code", "why", "error", "excerpt", "health_error"}
READERS = {"re", "regex", "fnmatch", "difflib"}
# What looks for a text, or cuts at one.
LOOKS = {"startswith", "endswith", "find", "rfind", "index", "count", "partition", "rpartition", "split", "rsplit"}
LOOKS |= {"removeprefix", "removesuffix", "replace"}
# They cut our own titles where a clause ends, and our own pages.
# What our own texts have where something was taken out.
MARKS = {"HIDDEN"}
NO_READER = {"say.py", "explain.py"}
RULES = [p for p in sorted((PACKAGE / "rules").rglob("*.py")) if p.name not in NO_READER]
# Rooms that are given what was read; `gather` and `launch` read the formats of other programs, `log` those of logs.
ROOMS = ("cli", "monitor", "operate", "plan", "preflight", "remedy", "render")
OTHERS = [p for room in ROOMS for p in sorted((PACKAGE / room).rglob("*.py"))]
# What a mapping holds, fields of a configuration, and marks of our own templates.
KEYS = {"'log'", "'found'", "'float'", "'{{'", "'{to}'", "'[hidden]'", "import re"}
# Formats of what stands in front of lines, of tracebacks and of figures are grammar and not wording: one reader each.
GRAMMAR = {
    "log/read/client_answer.py",
    "log/read/prefix.py",
    "log/read/printable.py",
    "log/read/misread.py",
    "log/read/newest_first.py",
    "log/read/window.py",
    "log/read/unwrap.py",
    "log/read/servers.py",
    "log/read/status_page.py",
}
GRAMMAR |= {"log/clock.py", "log/traceback.py", "log/native_crash.py", "log/read/whole.py", "log/read/pieces.py"}
GRAMMAR |= {"log/read/viewer_table.py", "log/read/envelope.py", "log/read/json_rows.py"}
GRAMMAR |= {"log/pybind_calls.py", "log/told_calls.py"}
GRAMMAR |= {"log/read/panel.py", "log/read/pretty_answer.py"}
# Marks of quotations, figures as any language sets them, and where a sentence ends.
GRAMMAR |= {"log/read/frame.py", "log/read/retold.py", "log/told_memory.py", "log/told_step.py"}
# How the names of models and cards look, and how many there are.
GRAMMAR |= {"log/told_setup.py", "log/helping_words.py", "log/told_text.py", "log/falls_short.py"}


@pytest.mark.parametrize("path", RULES, ids=lambda p: str(p.relative_to(PACKAGE / "rules")))
def test_a_rule_has_no_wording_of_its_own(path: Path) -> None:
    assert not wordings(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_other_room_looks_for_what_a_log_says(path: Path) -> None:
    found = {
        told.replace(" not in ", " in ").partition(" in ")[0]
        for told in wordings(path.read_text(encoding="utf-8"), by_name=False)
    }
    assert not found - KEYS


def test_only_readers_of_a_grammar_have_patterns() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "log").rglob("*.py")
        if path.name != "match.py" and patterns(path.read_text(encoding="utf-8"))
    }
    assert found == GRAMMAR


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
        "any(word in line.text for word in ('CUDA out', 'of memory'))",
        "_WORDS = ('CUDA out', 'of memory')\nany(word in line.text for word in _WORDS)",
        "_OOM = 'out of memory'\n_OOM in line.text",
        "_STOP = 'Stopping '\nline.text.startswith(_STOP)",
        "from vllm_doctor.log.other import STOP\nline.text.startswith(STOP)",
        "any(line.text.startswith(word) for word in ('Stopping',))",
        "said = line.text.casefold()\nsaid.startswith('stop')",
        "line.text.casefold().startswith('stop')",
        "line.text.strip() == 'Shutting down'",
        "line.text.split() == ['Shutting', 'down']",
        "line.text in {'Killed', 'Aborted'}",
        "{'Killed', 'Aborted'} & set(line.text.split())",
        "'Killed' in line.text.split()",
        "str.startswith(line.text, 'Stop')",
        "operator.contains(line.text, 'out of')",
        "any(map(line.text.__contains__, ('CUDA out', 'of memory')))",
        "line.text[:4] == 'Stop'",
        "importlib.import_module('re').search('x', line.text)",
        "from difflib import SequenceMatcher",
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


def wordings(source: str, *, by_name: bool = True) -> list[str]:
    """Patterns, and texts that are looked for in what is called a text of a log, or in a field of a message; by_name:
    those that a name stands for too (rooms above the rules cut texts of their own with such)."""
    tree = ast.parse(source)
    names = _names_of_texts(tree) if by_name else set()

    def is_text(node: ast.expr) -> bool:
        return _is_text(node) or (isinstance(node, ast.Name) and node.id in names)

    found = patterns(source)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
                wrong = (is_text(left) and _is_said(right)) or (by_name and _is_line(left) and is_text(right))
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                wrong = is_text(right) and _is_line(left)
            case ast.Match(subject=subject):
                wrong = _named(subject) in {"text", "line"}
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                wrong = any(is_text(one) and _is_line(other) for one, other in ((left, right), (right, left)))
            case ast.Call(func=ast.Attribute(attr="contains" | "fullmatch"), args=[said, text, *_]):
                wrong = is_text(text) and _is_said(said)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="str"), attr=attr), args=[said, text, *_]):
                wrong = attr in LOOKS and is_text(text) and _is_said(said)
            case ast.Call(func=ast.Attribute(value=said, attr=attr), args=[text, *_]):
                wrong = attr in LOOKS and is_text(text) and _is_said(said)
            case ast.Attribute(value=said, attr="__contains__"):
                wrong = _is_said(said)
            case _:
                continue
        if wrong:
            found.append(ast.unparse(node))
    return found


def _names_of_texts(tree: ast.Module) -> set[str]:
    """Constants of this file or another that hold texts, and what runs through them or through texts in brackets."""
    found = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_text(node.value)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.lstrip("_").isupper()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {
                alias.asname or alias.name for alias in node.names if alias.name.isupper() and alias.name not in MARKS
            }
    through = [(node.target, node.iter) for node in ast.walk(tree) if isinstance(node, ast.comprehension | ast.For)]
    return found | {
        target.id
        for target, several in through
        if isinstance(target, ast.Name)
        and (_is_text(several) or (isinstance(several, ast.Name) and several.id in found))
    }


def _is_line(node: ast.expr) -> bool:
    """Is it a line's text, or a piece, a copy or the words of one?"""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr="lower" | "strip" | "casefold" | "split"), args=[]):
                node = inner
            case ast.Call(func=ast.Name(id="set"), args=[inner]) | ast.Subscript(value=inner, slice=ast.Slice()):
                node = inner
            case _:
                return _named(node) in {"text", "line"} and _is_said(node)


def patterns(source: str) -> list[str]:
    """Imports of `re`, and patterns that are made."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Import) and any(a.name in READERS for a in node.names)) or (
            isinstance(node, ast.ImportFrom) and node.module in READERS
        ):
            found.append("import re")
        elif isinstance(node, ast.Call) and (
            _named(node.func) == "Pattern"
            or (_named(node.func) in {"import_module", "__import__"} and _literal(node.args) in READERS)
        ):
            found.append(ast.unparse(node))
    return found


def _literal(args: list[ast.expr]) -> object:
    return args[0].value if args and isinstance(args[0], ast.Constant) else None


def _is_text(node: ast.expr) -> bool:
    """A text with a word in it, or several."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
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
        if node.func.attr in {"lower", "casefold", "split", "strip"} and not node.args:
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
