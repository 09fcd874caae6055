"""A wording or a list of names has one owner: whoever needs it in another file imports it."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

import vllm_doctor
from vllm_doctor.knowledge.versions import default_port

PACKAGE = Path(vllm_doctor.__file__).parent
Named = TypeVar("Named", bound=Hashable)
MAKERS = {"compile", "Pattern", "fullmatch", "search", "match", "sub", "findall", "split", "finditer"}
# The same words by chance: ({words}, why).
CHANCE = [
    ({"(", "[", "{"}, "three readers of brackets"),
]


def test_no_two_files_have_the_same_pattern() -> None:
    assert not _in_several(patterns)


def test_no_two_files_list_the_same_names() -> None:
    assert not {names: files for names, files in _in_several(lists).items() if names not in _by_chance()}


def test_a_pattern_and_a_list_are_seen() -> None:
    source = "A = Pattern('abc ([0-9]+)')\nB = {'x', 'y', 'z'}\nC = ('z', 'y', 'x')\nD = re.split('[0-9]+', s)"
    assert list(patterns(source)) == ["abc ([0-9]+)"]
    assert list(lists(source)) == [frozenset("xyz")] * 2


def patterns(source: str) -> Iterator[str]:
    """Regular expressions with a word in them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and _called(node) in MAKERS:
            first = node.args[0]
            if (
                isinstance(first, ast.Constant)
                and isinstance(first.value, str)
                and re.search(r"[A-Za-z]{3}", first.value)
            ):
                yield first.value


def lists(source: str) -> Iterator[frozenset[str]]:
    """Sets, tuples and lists of three texts and more."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and len(node.elts) >= 3:
            texts = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            if len(texts) == len(node.elts):
                yield frozenset(texts)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _in_several(found_in: Callable[[str], Iterator[Named]]) -> dict[Named, set[str]]:
    found: dict[Named, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        for one in found_in(path.read_text(encoding="utf-8")):
            found[one].add(str(path.relative_to(PACKAGE)))
    return {one: files for one, files in found.items() if len(files) > 1}


def _by_chance() -> set[frozenset[str]]:
    return {frozenset(words) for words, _ in CHANCE}


REPOSITORY = PACKAGE.parent
VLLM = yaml.safe_load((REPOSITORY / "roles/vllm/defaults/main.yml").read_text(encoding="utf-8"))
VLLM |= yaml.safe_load((REPOSITORY / "roles/vllm/vars/main.yml").read_text(encoding="utf-8"))
# Facts of the role vllm where nothing can refer to their owner: another role runs without it, a module is copied to
# the host alone. (the owner's value, how a copy looks, how many there are at least).
_TEXT = r"['\"]?([^'\",}]{2,})['\"]?"  # a path; "/" alone is the root of a file system
COPIES: list[tuple[object, tuple[str, ...], int]] = [
    (default_port(), (r"vllm_port \| default\((\d+)\)", r"^vllm_port: (\d+)$"), 2),
    (
        VLLM["vllm_root"],
        (
            r"vllm_root \| default\('([^']+)'\)",
            r"\"vllm_root\"\) or \"([^\"]+)\"",
            rf"\broot\"?: \{{\"?type\"?: \"?path\"?, \"?default\"?: {_TEXT}",
        ),
        7,
    ),
    (VLLM["vllm_models_dir"], (r"vllm_models_dir \| default\('([^']+)'\)", r"\b_STORE = \"([^\"]+)\""), 3),
    (VLLM["__vllm_drained_file"], (r"(/etc/systemd/system/vllm\S*drained[^\s\"']*)",), 3),
    (
        Path(VLLM["__vllm_drained_file"]).name,
        (r"DRAINED = \"[^\"]*/([^\"/]+)\"", r"endswith\(\"/([^\"]*drained[^\"]*)\"\)"),
        2,
    ),
    (
        "/etc/vllm",
        (
            r"secrets_file: (\S+)/\{\{",
            r"\"secrets_file\": f\"([^{\"]+)/\{",
            rf"\bsecrets\"?: \{{\"?type\"?: \"?path\"?, \"?default\"?: {_TEXT}",
        ),
        5,
    ),
    (
        "/var/lib/vllm-doctor-roles",
        (r"FOLDER = \"([^\"]+-roles)\"", r"default: (/\S+-roles)$", r"\"record\": f\"([^{\"]+)/\{"),
        4,
    ),
]


@cache
def _ours() -> str:
    rooms = ("roles", "plugins", "playbooks", "vllm_doctor/preflight", "vllm_doctor/records")
    files = (path for room in rooms for path in sorted((REPOSITORY / room).rglob("*")))
    return "\n".join(
        path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in {".py", ".yml", ".j2"} and "molecule" not in path.parts
    )


@pytest.mark.parametrize(("value", "patterns", "least"), COPIES, ids=[str(row[0]) for row in COPIES])
def test_a_copy_of_a_roles_value_is_the_owners(value: object, patterns: tuple[str, ...], least: int) -> None:
    copies = [next(filter(None, found.groups())) for found in re.finditer("|".join(patterns), _ours(), re.MULTILINE)]
    assert len(copies) >= least
    assert set(copies) == {str(value)}
