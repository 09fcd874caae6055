# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What every task's templates need is loaded in the process that tasks are forked from.

ansible-core loads Jinja's filters and tests, its own and those of the roles, where a template first names one; those of
a collection all at once. That is in the fork of a task, and what a fork has loaded ends with it: each task of each host
loaded them anew, with the package that they import.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader

DOCUMENTATION = """
name: loaded_once
type: notification
short_description: Load filters and tests of Jinja once, not for each task of each host
description:
  - Says nothing and changes nothing but the time that a run takes.
"""


class CallbackModule(CallbackBase):
    """Loads before the forks of a task."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "loaded_once"

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        """Load what the roles of this task brought; nothing where all is there."""
        filter_loader.get("bool")
        test_loader.get("defined")
        # An Ansible without a word about a role's collection loads in its forks, as it would without this.
        collection = getattr(getattr(task, "_role", None), "_role_collection", None)
        if collection and collection not in self._seen:
            self._seen.add(collection)
            with suppress(KeyError):  # a collection without filters
                filter_loader.get(f"{collection}.bool")  # whatever the name: each file is loaded to find it

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Load for a handler as for a task."""
        self.v2_playbook_on_task_start(task, is_conditional=False)
