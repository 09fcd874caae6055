# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask a host what it is, in one task: preflight's own facts, and Ansible's where they are wanted too."""

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """The module's options, and `gather`: whether Ansible's smallest set of facts is asked for as well.

    A host whose tasks do not run as root is not asked for more: the judge refuses it by what it has said.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer, with ansible_facts."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        gathers = arguments.pop("gather", False)
        result.update(self._execute_module("vllm_doctor.hosts.preflight_facts", arguments, task_vars=task_vars))
        if gathers and (result.get("facts") or {}).get("root"):
            told = self._execute_module("ansible.legacy.setup", {"gather_subset": ["min"]}, task_vars=task_vars)
            if told.get("failed") or told.get("unreachable"):
                return dict(told)
            result["ansible_facts"] = told["ansible_facts"]
        return result
