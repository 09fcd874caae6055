# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask a host whether it is as a role left it; what the role wants is known here, on the controller."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from ansible.plugins.action import ActionBase

ROLES = Path(__file__).resolve().parents[2]
# What the outcome of a role follows from: its files, those of the role that says what a host is, and what fits what.
CODE = (
    *("action_plugins", "defaults", "files", "filter_plugins", "handlers", "library"),
    *("module_utils", "tasks", "templates", "vars"),
)
KNOWLEDGE = ROLES.parent / "vllm_doctor" / "knowledge" / "compat.json"


def digest(value: object) -> str:
    """A short text that differs where the values differ."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:24]


def code(role: str) -> str:
    """A digest of all files that the role's outcome follows from."""
    total = sha256(KNOWLEDGE.read_bytes() if KNOWLEDGE.exists() else b"")
    for name in (role, "preflight"):
        for folder in CODE:
            for path in sorted((ROLES / name / folder).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    total.update(str(path.relative_to(ROLES)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:24]


def options(role: str) -> list[str]:
    """The names of a role's variables."""
    text = (ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    return sorted(yaml.safe_load(text)["argument_specs"]["main"]["options"])


class ActionModule(ActionBase):
    """`settled: {left: {role, options, wanted, files, stamps, units, packages}, keep}`; see the module.

    `role` names the record and the options that count, all of the role's unless `options` names fewer; `wanted` is
    what the outcome follows from beside them.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        arguments = dict(self._task.args["left"]) | {"keep": self._task.args.get("keep", False)}
        role, beside = arguments.pop("role"), arguments.pop("wanted", {})
        names = [name for name in arguments.pop("options", None) or options(role) if name in known]
        arguments["wanted"] = {name: digest(self._templar.template(known[name])) for name in names}
        arguments["wanted"].update({name: digest(value) for name, value in beside.items()})
        arguments["wanted"][f"role {role}"] = code(role)
        arguments["record"] = f"/var/lib/vllm-doctor-roles/{role}.json"
        result.update(self._execute_module("settled", arguments, task_vars=task_vars))
        return result
