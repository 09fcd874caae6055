"""Where an inventory sets a variable: file and line, so that a complaint can point at the line to change."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from vllm_doctor.preflight.judged import Checked

_SUFFIXES = {".yml", ".yaml", ".json", ""}
_WHOLE_FILE_VAULT = "$ANSIBLE_VAULT"
# What Ansible passes over in a folder of inventories (REJECT_EXTS and INVENTORY_IGNORE_EXTS of ansible-core 2.19).
_NO_INVENTORY = (".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry")
_VARIABLES = {"group_vars", "host_vars"}
ON_COMMAND_LINE = "on the command line (-e)"
IN_INVENTORY = "in the inventory"


@dataclass(frozen=True)
class Definition:
    """One key of an inventory file. `node` is the composed YAML value; lines count from 1."""

    variable: str
    path: Path
    line: int
    node: yaml.Node

    def at(self, base: Path | None = None) -> str:
        """`group_vars/gpu.yml:12`, relative to `base` where possible."""
        path = self.path
        if base is not None and path.is_relative_to(base):
            path = path.relative_to(base)
        return f"{path}:{self.line}"


class Sources:
    """The variable files of an inventory, read once. Vault-encrypted files are left alone."""

    def __init__(
        self,
        inventories: Sequence[Path],
        playbook_dir: Path | None = None,
        files: Sequence[Path] = (),
        typed: Collection[str] = (),
    ) -> None:
        self.typed = frozenset(typed)  # after -e, written out: no file has a say in these
        self._extra = [path for path in files if path.is_file()]  # after -e, stronger than all others
        folders = [path if path.is_dir() else path.parent for path in inventories]
        self.base = folders[0] if folders else playbook_dir
        listed = (_inventory_files(path) if path.is_dir() else [path] for path in inventories)
        self._files = [path for paths in listed for path in paths if path.is_file()]
        self._folders = list(dict.fromkeys([*folders, *([playbook_dir] if playbook_dir else [])]))

    def definitions(self, host: str, groups: Sequence[str]) -> tuple[Definition, ...]:
        """What is set for this host, from the weakest to the strongest file."""
        ranked = ("all", *(name for name in groups if name != "all"))
        inside = [one for path in self._files for one in _inventory_keys(path)]
        found = [one.item for group in ranked for one in inside if one.group == group]
        for group in ranked:
            for folder in self._folders:
                found += [item for path in _files(folder / "group_vars", group) for item in _keys(path)]
        found += [one.item for one in inside if one.hosts and _names(one.hosts, host)]
        for folder in self._folders:
            found += [item for path in _files(folder / "host_vars", host) for item in _keys(path)]
        return (*found, *self.given())

    def given(self) -> tuple[Definition, ...]:
        """What files after -e set."""
        return tuple(item for path in self._extra for item in _keys(path))

    def strays(self, hosts: Collection[str], groups: Collection[str]) -> tuple[str, ...]:
        """Files of variables that belong to no host and no group, as an inventory without a slip has none."""
        found = []
        for kind, names in (("host_vars", {*hosts}), ("group_vars", {*groups, "all", "ungrouped"})):
            for folder in self._folders:
                for path in sorted((folder / kind).glob("[!.]*")):
                    name = path.name if path.is_dir() or path.name in names else path.stem
                    if name not in names and (path.is_dir() or path.suffix in _SUFFIXES):
                        found.append(f"{kind}/{path.name}")
        return tuple(found)

    def located(self, row: Checked, definitions: Sequence[Definition]) -> Checked:
        """The row with the line to change before its action, where an inventory file sets what the row speaks of."""
        places = {item.variable: item for item in definitions}  # the strongest definition is the last one
        spoken = re.findall(r"[a-z]\w+", f"{row.action} {row.found} {row.needed}") if row.action else []
        name = next((word for word in spoken if word in places or word in self.typed), None)
        if name is None:
            return row
        place = ON_COMMAND_LINE if name in self.typed else places[name].at(self.base)
        return replace(row, action=f"{place}: {row.action}")


def _files(folder: Path, name: str) -> Iterator[Path]:
    for suffix in sorted(_SUFFIXES):
        path = folder / f"{name}{suffix}"
        if path.is_file():
            yield path
    if (folder / name).is_dir():
        yield from (p for p in sorted((folder / name).rglob("*")) if p.is_file() and p.suffix in _SUFFIXES)


def _compose(path: Path) -> yaml.Node | None:
    text = path.read_text(encoding="utf-8", errors="replace")
    if text.startswith(_WHOLE_FILE_VAULT):
        return None
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None  # Ansible itself reports a file that it cannot parse


def _keys(path: Path) -> Iterator[Definition]:
    root = _compose(path)
    if root is not None:
        yield from _defined(root, path)


def _defined(node: yaml.Node, path: Path) -> Iterator[Definition]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            yield Definition(key.value, path, key.start_mark.line + 1, value)


@dataclass(frozen=True)
class _Line:
    """A variable of an inventory file, and whose it is: a group's, or that of the hosts that a pattern names."""

    item: Definition
    group: str = ""
    hosts: str = ""


def _inventory_files(folder: Path) -> Iterator[Path]:
    """The files of a folder of inventories, as Ansible takes them: all, also below, but for those that it ignores."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _VARIABLES or path.name.endswith(_NO_INVENTORY):
            continue
        if path.is_dir():
            yield from _inventory_files(path)
        elif path.read_bytes()[:2] != b"#!":  # a program that writes an inventory has no lines of its own
            yield path


def _names(pattern: str, host: str) -> bool:
    """Whether a host's name in an inventory, which may have ranges such as [01:04] and [a:f], can be this host's."""
    parts = re.split(r"(\[[0-9a-zA-Z]+:[0-9a-zA-Z]+(?::\d+)?\])", pattern)
    wanted = "".join("[0-9a-zA-Z]+" if part.startswith("[") else re.escape(part) for part in parts)
    return re.fullmatch(wanted, host) is not None


def _inventory_keys(path: Path) -> Iterator[_Line]:
    """Variables inside an inventory file: below `vars:` or a host in YAML, `name=value` in INI."""
    root = _compose(path)
    if isinstance(root, yaml.MappingNode):
        yield from _of_groups(root, path)
        return
    section, kind = "ungrouped", ""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        text = line.split("#", 1)[0]
        if header := re.match(r"\s*\[([^\]:]+)(?::(\w+))?\]\s*$", text):
            section, kind = header[1], header[2] or ""
            continue
        owner = {"group": section} if kind == "vars" else {"hosts": (text.split() or [""])[0]}
        for name, value in re.findall(r"(?:^|\s)([A-Za-z_]\w*)\s*=\s*(\S+)", text):
            yield _Line(Definition(name, path, number, yaml.ScalarNode("tag:yaml.org,2002:str", value)), **owner)


def _of_groups(node: yaml.MappingNode, path: Path) -> Iterator[_Line]:
    """The variables of groups, their hosts and their children: {group: {vars: …, hosts: …, children: …}}."""
    for group, parts in _pairs(node):
        for part, content in _pairs(parts):
            if part == "vars":
                yield from (_Line(item, group=group) for item in _defined(content, path))
            elif part == "hosts":
                for host, values in _pairs(content):
                    yield from (_Line(item, hosts=host) for item in _defined(values, path))
            elif part == "children" and isinstance(content, yaml.MappingNode):
                yield from _of_groups(content, path)


def _pairs(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            yield key.value, value
