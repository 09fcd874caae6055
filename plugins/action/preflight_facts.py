# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask a host what it is, in one task: preflight's own facts, and Ansible's where they are wanted too."""

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.preflight import running  # noqa: E402


class ActionModule(ActionBase):
    """The module's options, and `gather`: whether Ansible's smallest set of facts is asked for as well; and `lock`:
    whether the host is taken for this run, before it is asked (action run_lock, which is a question of its own).

    A host whose tasks do not run as root is not asked for more: the judge refuses it by what it has said.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer, with ansible_facts."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        gathers = arguments.pop("gather", False)
        run = running.current() if arguments.pop("lock", False) else None
        if run is not None:
            arguments["run"] = run.plain()
        result.update(self._execute_module("vllm_doctor.hosts.preflight_facts", arguments, task_vars=task_vars))
        if (result.get("run") or {}).get("taken"):
            running.keep(running.shell_of(self), running.FOLDER)
        if gathers and (result.get("facts") or {}).get("root"):
            told = self._execute_module("ansible.legacy.setup", {"gather_subset": ["min"]}, task_vars=task_vars)
            if told.get("failed") or told.get("unreachable"):
                return dict(told)
            result["ansible_facts"] = told["ansible_facts"]
        return result
