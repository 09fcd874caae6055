"""Where an inventory sets a variable: file and line, so that a complaint can point at the line to change."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from vllm_doctor.preflight.records import Checked

_SUFFIXES = {".yml", ".yaml", ".json", ""}
_WHOLE_FILE_VAULT = "$ANSIBLE_VAULT"
ON_COMMAND_LINE = "on the command line (-e)"


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
        self._files = [path for path in inventories if path.is_file()]
        for folder in folders:
            self._files += [
                p for p in sorted(folder.glob("*")) if p.suffix in {".yml", ".yaml"} and p not in self._files
            ]
        self._folders = list(dict.fromkeys([*folders, *([playbook_dir] if playbook_dir else [])]))

    def definitions(self, host: str, groups: Sequence[str]) -> tuple[Definition, ...]:
        """What is set for this host, from the weakest to the strongest file."""
        found: list[Definition] = []
        for path in self._files:
            found += _inventory_keys(path)
        for group in ("all", *(name for name in groups if name != "all")):
            for folder in self._folders:
                found += [item for path in _files(folder / "group_vars", group) for item in _keys(path)]
        for folder in self._folders:
            found += [item for path in _files(folder / "host_vars", host) for item in _keys(path)]
        return (*found, *(item for path in self._extra for item in _keys(path)))

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
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if isinstance(key, yaml.ScalarNode):
                yield Definition(key.value, path, key.start_mark.line + 1, value)


def _inventory_keys(path: Path) -> Iterator[Definition]:
    """Variables inside an inventory file: below `vars:` or a host in YAML, `name=value` in INI."""
    root = _compose(path)
    if isinstance(root, yaml.MappingNode):
        yield from _nested(root, path, inside=False)
        return
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        for name, value in re.findall(r"(?:^|\s)([A-Za-z_]\w*)\s*=\s*(\S+)", line.split("#", 1)[0]):
            yield Definition(name, path, number, yaml.ScalarNode("tag:yaml.org,2002:str", value))


def _nested(node: yaml.MappingNode, path: Path, *, inside: bool) -> Iterator[Definition]:
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if inside:
            yield Definition(key.value, path, key.start_mark.line + 1, value)
        elif isinstance(value, yaml.MappingNode):
            if key.value == "hosts":
                for _, host in value.value:
                    if isinstance(host, yaml.MappingNode):
                        yield from _nested(host, path, inside=True)
            else:
                yield from _nested(value, path, inside=key.value == "vars")
