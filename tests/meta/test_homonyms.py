"""A name means one thing in the whole package: who searches for a class finds it, and it alone."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent
TESTS = Path(__file__).parents[1]


def test_no_two_modules_define_a_class_or_a_type_of_the_same_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in types(path.read_text(encoding="utf-8")):
            found[name].append(str(path.relative_to(PACKAGE)))
    assert not {name: places for name, places in found.items() if len(places) > 1}


def test_no_two_test_files_outside_packages_have_one_name() -> None:
    """pytest imports a file whose folder has no __init__.py by its bare name: a second one ends the run."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        if not (path.parent / "__init__.py").exists():
            found[path.name].append(str(path.relative_to(TESTS)))
    assert not {name: places for name, places in found.items() if len(places) > 1}


# What a command or a page begins with, called once each by the module of the command's options.
_ENTRIES = {"run", "page"}


def test_a_function_that_is_imported_by_its_bare_name_means_one_thing() -> None:
    """`module.read(…)` says whose it is; `read(…)` does not."""
    sources = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    defined = {
        (".".join(("vllm_doctor", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"), n.name)
        for path, tree in sources.items()
        for n in tree.body
        if isinstance(n, ast.FunctionDef)
    }
    found: dict[str, set[str]] = defaultdict(set)
    for tree in sources.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (node.module, alias.name) in defined and alias.asname is None:
                        found[alias.name].add(node.module)
    assert not {name: places for name, places in found.items() if len(places) > 1 and name not in _ENTRIES}


def test_classes_and_aliases_are_types_and_what_is_private_or_a_constant_is_none() -> None:
    source = (
        "class Card: ...\nclass _Own: ...\nKind = Literal['a']\nRow: TypeAlias = int\nGIB = 1 << 30\nT = TypeVar('T')\n"
    )
    assert list(types(source)) == ["Card", "Kind", "Row"]


def types(source: str) -> Iterator[str]:
    """The public classes and aliases of types that a module defines."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if name[0].isupper() and not name.isupper():
            yield name
