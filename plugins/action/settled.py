# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask a host whether it is as a role left it; what the role wants is known here, on the controller."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

MODULE = "vllm_doctor.hosts.settled"
# Not resolved: what a role says of itself with role_path has the path by which Ansible finds the collection.
ROLES = Path(__file__).parents[2] / "roles"
# What the outcome of a role follows from: its files, those of the role that says what a host is, the plugins, which
# stand beside all roles, and what fits what.
CODE = ("defaults", "files", "handlers", "tasks", "templates", "vars")
KNOWLEDGE = ROLES.parent / "vllm_doctor" / "knowledge" / "compat.json"


def digest(value: object) -> str:
    """A short text that differs where the values differ."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:24]


def code(role: str) -> str:
    """A digest of all files that the role's outcome follows from."""
    total = sha256(KNOWLEDGE.read_bytes() if KNOWLEDGE.exists() else b"")
    for top in (*(ROLES / name / folder for name in (role, "preflight") for folder in CODE), ROLES.parent / "plugins"):
        for path in sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROLES.parent)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:24]


def sources(paths: list[str]) -> str:
    """A digest of files on the controller, and of all files below folders."""
    total = sha256()
    for top in map(Path, paths):
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(top)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:24]


def options(role: str) -> list[str]:
    """The names of a role's variables, read by libyaml: Python's own scanner takes twenty times as long."""
    text = (ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    return sorted(yaml_load(text)["argument_specs"]["main"]["options"])


class ActionModule(ActionBase):
    """`settled: {left: {role, options, wanted, sources, files, stamps, units, packages}, keep}`; see the module.

    `role` names the record and the options that count, all of the role's unless `options` names fewer; `wanted` is
    what the outcome follows from beside them, `sources` are files and folders on the controller that it follows from.

    `settled: {roles: [NAME]}` asks for several roles at once, before any of them is played: what a role leaves is its
    variable NAME_left, taken with its defaults and variables. `settled` is said of all of them together.
    What cannot be told from outside of a role is not settled.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        if "roles" not in self._task.args:
            question = self._question(dict(self._task.args["left"]), known, self._templar)
            keep = self._task.args.get("keep", False)
            result.update(self._execute_module(MODULE, question | {"keep": keep}, task_vars=task_vars))
            return result
        try:
            asked = [self._outside(role, known) for role in self._task.args["roles"]]
        except Exception as error:  # noqa: BLE001
            result.update(changed=False, settled=False, differs=[f"cannot be told yet: {error}"])
        else:
            result.update(self._execute_module(MODULE, {"asked": asked}, task_vars=task_vars))
        return result

    def _question(self, left: dict[str, Any], known: Mapping[str, Any], templar: Any) -> dict[str, Any]:
        """What the module is asked about one role; `known` are the variables that its options are read from."""
        role, beside = left.pop("role"), left.pop("wanted", {})
        names = [name for name in left.pop("options", None) or options(role) if name in known]
        wanted = {name: digest(templar.template(known[name])) for name in names}
        wanted |= {name: digest(value) for name, value in beside.items()}
        wanted[f"role {role}"] = code(role)
        if paths := left.pop("sources", None):
            wanted["sources"] = sources(paths)
        return {**left, "wanted": wanted, "record": f"/var/lib/vllm-doctor-roles/{role}.json"}

    def _outside(self, role: str, known: Mapping[str, Any]) -> dict[str, Any]:
        """The question of a role that is not being played: its variables stand as they would stand in it."""
        folder = ROLES / role
        values: dict[str, Any] = {**self._file(folder / "defaults" / "main.yml"), **known}
        values |= self._file(folder / "vars" / "main.yml")
        facts = known.get("ansible_facts") or {}
        names = (facts.get("distribution"), facts.get("os_family"))
        platforms = [folder / "vars" / f"{name}.yml" for name in names if name]
        values |= self._file(next((path for path in platforms if path.is_file()), folder / "none"))
        values |= load_extra_vars(self._loader)
        values |= {"role_path": str(folder), "role_name": role, "ansible_search_path": [str(folder)]}
        templar = self._templar.copy_with_new_env(available_variables=values)
        return self._question(dict(templar.template(values[f"{role}_left"])), values, templar)

    def _file(self, path: Path) -> dict[str, Any]:
        """The variables of a file of a role; none where there is no such file."""
        found = self._loader.load_from_file(str(path), trusted_as_template=True) if path.is_file() else {}
        return dict(found or {})
