# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Take a host for this run, and let go of it when the run is over, however it ends."""

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.preflight import running  # noqa: E402


class ActionModule(ActionBase):
    """`run_lock:`; see the module. A playbook that does not begin as ours do (filter preflight_start) takes nothing."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer; a host that another run has is a failure, in check mode a warning."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        run = running.current()
        if run is None:
            return result | {"changed": False, "other": None, "taken": False}
        arguments = {"folder": running.FOLDER, **self._task.args, "run": run.plain()}
        result.update(self._execute_module("vllm_doctor.hosts.run_lock", arguments, task_vars=task_vars))
        if result.get("taken"):
            running.keep(running.shell_of(self), arguments["folder"])
        if other := result.get("other"):
            message = f"Another run has this host: {running.said(other)}. {running.way_out(other).capitalize()}."
            if self._task.check_mode:
                self._display.warning(f"{(task_vars or {}).get('inventory_hostname')}: {message}")
            else:
                return {"failed": True, "changed": False, "msg": f"{message} Nothing was changed on this host."}
        return result
