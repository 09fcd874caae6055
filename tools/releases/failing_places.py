"""Where a release has the line that a known issue fails in: by its calls, its line, or the sentence that it raises."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from releases import failing, texts
from vllm_doctor.knowledge.known_issues import Issue

# Longer than any function that fails: a pattern that any of a folder's calls fits.
_MOST = 14_000
_MANY = 140
# What a value of a message is written as where a pattern asks for one.
_SAMPLES = ("7", "'7'", "a7.b", "(7, 7)")
# The name that a message of Python's own misses: it stands in the code that asks for it.
_NAMED = re.compile(r"has no attribute '([A-Za-z]\w{2,})'")
_PYTHON = frozenset({"AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError", "TypeError"})
_DEFINED = re.compile(r"^[ \t]*(?:async )?def (\w+)", re.MULTILINE)
# What a traceback calls the statements of a file outside of its functions: imports, and what it defines.
_MODULE = "<module>"
# What of a pattern is no text of its own: classes, groups with alternatives, and a character that may be missing.
_HELD = re.compile(
    r"\\[wdSsbDWAZ](?:[*+?]|\{[^}]*\})*|\[[^\]]*\](?:[*+?]|\{[^}]*\})*|\(\?[^)]*\)\??|.(?:\{[^}]*\}|[*?])\??|\.\+"
)


@dataclass(frozen=True)
class Place:
    """What an entry names of vLLM's code; `calls` are its own, or those that a person found."""

    calls: tuple[str, ...]
    code: str
    said: str
    python: bool = False  # the message is Python's own: no source has it

    @property
    def outside(self) -> bool:
        """Does it fail outside of every function: an import, or a name that a file does not define?"""
        return any(_MODULE in call for call in self.calls)

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """Words of which a source must have all of one row, to be parsed; the longest first."""
        pattern = self.code or self.said
        bare = (
            re.sub(r"\((?!\?)[^()]*\)", "\0", re.sub(r"\\([()\[\].{}+*?|])", "\x01", one))
            for one in _alternatives(pattern)
        )
        found = (re.findall(r"[A-Za-z_]{4,}", _HELD.sub("\0", one)) for one in bare)
        return tuple(tuple(sorted(set(words), key=lambda word: (-len(word), word))) for words in found)


def place(one: Issue, found: Mapping[str, str]) -> Place:
    """Of an entry's own patterns, or of those by which a person found it (`call`, `line`)."""
    if found:
        return Place((found["call"],), found.get("line", ""), one.said)
    return Place(one.calls, one.code, one.said, all(kind in _PYTHON for kind in one.kind.split("|")))


class Source:
    """One file: each thing about it is read once, for all the releases that have it as it is."""

    def __init__(self, text: str) -> None:
        """Keep the text."""
        self.text = text
        self._able: dict[Place, bool] = {}
        self._found: dict[Place, list[tuple[failing.Function, ast.stmt]]] = {}

    @cached_property
    def functions(self) -> list[str]:
        """The names of its functions."""
        return list(dict.fromkeys(_DEFINED.findall(self.text)))

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @cached_property
    def statements(self) -> list[tuple[failing.Function, ast.stmt]]:
        """Each statement with the innermost function that it is in."""
        return [*_statements(self._module, None)] if self._module is not None else []

    @cached_property
    def outside(self) -> list[tuple[failing.Function, ast.stmt]]:
        """Each statement outside of its functions, as if the file were one."""
        if self._module is None:
            return []
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        whole = ast.FunctionDef(name=_MODULE, args=nothing, body=self._module.body, decorator_list=[])
        inside = {id(stmt) for _, stmt in self.statements}
        every = (node for node in ast.walk(self._module) if isinstance(node, ast.stmt))
        return [(whole, stmt) for stmt in every if id(stmt) not in inside and not isinstance(stmt, failing.Function)]

    @cached_property
    def _module(self) -> ast.Module | None:
        """None where it is no Python of today."""
        try:
            return ast.parse(self.text)
        except SyntaxError:
            return None

    @cached_property
    def calls(self) -> failing.Calls:
        """Which statement calls which function."""
        made: dict[str, list[tuple[failing.Function, ast.stmt]]] = {}
        for function, stmt in self.statements:
            for called in set(failing.called(stmt)):
                made.setdefault(called, []).append((function, stmt))
        return made

    def may_have(self, one: Place) -> bool:
        """Has it the words of an entry's line?"""
        if one not in self._able:
            self._able[one] = any(
                (words or one.calls) and all(word in self.text for word in words) for words in one.words
            )
        return self._able[one]

    def failing(self, one: Place) -> list[tuple[failing.Function, ast.stmt]]:
        """The lines that an entry names, with their functions."""
        if one not in self._found:
            lines = [*self.statements, *(self.outside if one.outside else ())] if self.may_have(one) else []
            self._found[one] = [(f, stmt) for f, stmt in lines if _is_line(one, self, stmt)]
        return self._found[one]


class Release:
    """The sources of a release by their names; those that `before` has as well are not read again."""

    def __init__(self, files: Mapping[str, str], before: Release | None = None) -> None:
        """Keep them."""
        known = {source.text: source for source in before.files.values()} if before is not None else {}
        self.files: dict[str, Source] = {
            name: known.get(text) or Source(text) for name, text in files.items() if name.endswith(".py")
        }


def rests_on(one: Place, release: Release) -> tuple[list[str], str]:
    """The calls (`file:function`) that a release fails in, and what their failing lines rest on; empty: it has none."""
    named = [_named(call, release) for call in one.calls]
    own = [places for places in named if places]
    if one.calls and not own:
        return [], ""
    files = sorted({name for places in own for name, _ in places}) if own else list(release.files)
    calls = {(name, function) for places in own for name, function in places if function}
    found: list[tuple[str, str]] = []
    if one.code or (one.said and (one.calls or not one.python)):
        able = [name for name in files if release.files[name].may_have(one)]
        # So many files have words that are too common to tell of one.
        able = [] if len(able) > _MANY and not one.calls else able
        lines = [(name, f, stmt) for name in able for f, stmt in release.files[name].failing(one)]
        # A line that the named function has lost is not looked for in the others.
        inner = [row for row in lines if (row[0], row[1].name) in calls] or [
            row for row in lines if not one.calls or any(re.search(c, f"{row[0]}:{row[1].name}") for c in one.calls)
        ]
        found = [(f"{name}:{f.name}", failing.path(release.files[name].calls, f, stmt)) for name, f, stmt in inner]
    if not found and not one.code and calls:
        inmost = next(places for places in reversed(own) if any(function for _, function in places))
        for name, wanted in inmost:
            source = release.files[name]
            functions = {id(f): f for f, _ in source.statements if f.name == wanted}
            for f in functions.values():
                asking = [stmt for inside, stmt in source.statements if inside is f and _asks(one, source, stmt)]
                rests = [failing.path(source.calls, f, stmt) for stmt in asking] or [failing.whole(source.calls, f)]
                found += [(f"{name}:{wanted}", text) for text in rests]
    told = "\n\n".join(dict.fromkeys(text for _, text in found))
    # A pattern that names no function in particular tells of none.
    return ([], "") if len(told) > _MOST else (sorted({where for where, _ in found}), told)


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern as a whole; those inside its groups are left together."""
    told, depth = [""], 0
    for part in re.findall(r"\\.|\[(?:\\.|[^\]])*\]|.", pattern, re.DOTALL):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if part == "|" and depth == 0:
            told.append("")
        else:
            told[-1] += part
    return told


def digest(text: str) -> str:
    """A short name of what a failing line rests on; empty where there is none."""
    return hashlib.sha256(text.encode()).hexdigest()[:6] if text else ""


def _named(call: str, release: Release) -> list[tuple[str, str]]:
    """(File, function, or empty where the file alone is named) that the pattern of a call names."""
    pattern = re.compile(call)
    # Of a pattern without alternatives the file can be asked first, which is most of the time.
    file, colon, _ = call.rpartition(":")
    outside = re.compile(f"(?:{file})$" if colon and "|" not in call and "(" not in call else "")
    told = []
    for name, source in release.files.items():
        if not outside.search(name):
            continue
        if pattern.search(f"{name}:"):
            told.append((name, ""))
        else:
            functions = [*source.functions, *([_MODULE] if _MODULE in call else [])]
            told += [(name, function) for function in functions if pattern.search(f"{name}:{function}")]
    return told


def _is_line(one: Place, source: Source, stmt: ast.stmt) -> bool:
    head = _head(source.lines, stmt)
    if one.code:
        return any(re.search(one.code, text) for text in ("\n".join(head), " ".join(line.strip() for line in head)))
    if not any(all(word in line for word in words) for line in (" ".join(head),) for words in one.words):
        return False
    told = texts.templates(ast.Module([_own(stmt)], []))
    return any(re.search(one.said, template.replace(texts.HOLE, by)) for template in told for by in _SAMPLES)


def _asks(one: Place, source: Source, stmt: ast.stmt) -> bool:
    """Does a statement ask for the name that a message of Python's own misses?"""
    named = _NAMED.search(one.said)
    return named is not None and re.search(rf"\b{named[1]}\b", " ".join(_head(source.lines, stmt))) is not None


def _head(lines: list[str], stmt: ast.stmt) -> list[str]:
    """The lines of a statement without those of the statements inside it."""
    first = getattr(stmt, "body", None)
    end = first[0].lineno - 1 if isinstance(first, list) and first else stmt.end_lineno or stmt.lineno
    return lines[stmt.lineno - 1 : max(end, stmt.lineno)]


def _own(stmt: ast.stmt) -> ast.stmt:
    """A statement without those inside it."""
    if isinstance(getattr(stmt, "body", None), list):
        test = getattr(stmt, "test", None)
        return ast.Return(test) if isinstance(test, ast.expr) else ast.Pass()
    return ast.Return(stmt.value) if isinstance(stmt, ast.Expr) and not isinstance(stmt.value, ast.Constant) else stmt


def _statements(node: ast.AST, function: failing.Function | None) -> Iterator[tuple[failing.Function, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and function is not None and not isinstance(child, failing.Function):
            yield function, child
        yield from _statements(child, child if isinstance(child, failing.Function) else function)
