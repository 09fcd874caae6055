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


# Files of one name in several rooms: the places and why no reader mixes them up. A command's own file is `cli/NAME.py`.
_THING = "each room does its part with the same thing"
_SAME_NAME: dict[str, tuple[set[str], str]] = {
    "answer": ({"render", "rules/remedies"}, "an answer as it is shown, and an answer that is data as changes"),
    "bundle": ({"cli", "gather"}, "the command and what it writes"),
    "container": ({"launch", "records", "rules/gates"}, _THING),
    "decide": ({"operate/guard", "operate/tune"}, "the pure function that decides, beside what acts"),
    "described": ({"cli", "gather"}, "a description as a file and as JSON"),
    "encoder_decoder": ({"plan/launch", "rules/remedies"}, _THING),
    "experts": ({"plan/model", "plan/support"}, _THING),
    "explain": ({"cli", "rules"}, "the command and the pages that it shows"),
    "fleet": ({"cli", "render"}, "the command and how its answer looks"),
    "fragmentation": ({"cli", "render"}, "the command and how its answer looks"),
    "goal": ({"plan/question", "render"}, _THING),
    "history": ({"cli", "knowledge"}, "the command of a unit's past, and the reader of the data history/"),
    "host": ({"plan/terms", "records"}, "a term has the name of what holds the memory"),
    "host_memory": ({"plan/launch", "rules/remedies"}, _THING),
    "hub": ({"gather", "knowledge"}, _THING),
    "kv_cache": ({"rules/gates", "rules/remedies"}, _THING),
    "launch": ({"gather", "redact"}, _THING),
    "ledger": ({"redact", "rules"}, "what was taken out of a bundle, and what is counted of a card's memory"),
    "memory_use": ({"render", "rules"}, _THING),
    "named": ({"plan/model", "redact"}, "modules that a checkpoint names, and values that stand behind a name"),
    "past": ({"operate/history", "records"}, "the record and who reads it"),
    "plan": ({"cli", "render"}, "the command and how its answer looks"),
    "plan_host": ({"cli", "render"}, "what the command takes and shows of the host"),
    "pod": ({"gather", "rules/remedies"}, _THING),
    "program": ({"gather", "rules/remedies"}, "a program that drives vLLM: what is there, and what to change"),
    "prometheus": ({"gather", "render"}, "read from it, and written for it"),
    "refusal": ({"launch", "rules/remedies"}, _THING),
    "release": ({"gather", "preflight", "remedy"}, _THING),
    "report": ({"cli", "render"}, "the command and how its answer looks"),
    "shapes": ({"plan/support", "redact"}, "of tensors, and of secrets"),
    "shared_memory": ({"plan/support", "rules/gates"}, "of a multiprocessor, and of the host"),
    "step": ({"plan/launch", "rules/remedies"}, _THING),
    "temporary": ({"operate", "records"}, "the names of such drop-ins and who makes them"),
    "text": ({"redact", "render"}, "what each room does with any text"),
    "towers": ({"plan/launch", "plan/model"}, _THING),
    "traits": ({"knowledge", "plan/launch"}, _THING),
    "tune": ({"cli", "render"}, "the command and how its answer looks"),
    "watch": ({"cli", "operate/tune", "render"}, "what is seen while a server serves"),
    "weights": ({"plan/terms", "rules/remedies"}, _THING),
}


def test_files_of_one_name_in_several_rooms_are_listed_with_a_reason() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            found[path.stem].add(str(path.parent.relative_to(PACKAGE)))
    listed = {name: places for name, (places, _) in _SAME_NAME.items()}
    assert {name: places for name, places in found.items() if len(places) > 1} == listed


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
