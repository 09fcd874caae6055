# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What every task's templates need is loaded in the process that tasks are forked from.

ansible-core loads Jinja's filters and tests, its own and those of the roles, where a template first names one; those of
a collection all at once. That is in the fork of a task, and what a fork has loaded ends with it: each task of each host
loaded them anew, with the package that they import. Where a collection's filter is named, ansible-core then looks
through all files of all its filters, in each fork for each name: what it would find there is kept as well.

Nor does a fork walk what the run holds: Python's garbage collector writes into every object that it looks at, so the
kernel copied each page of them for each task of each host. What is there before a fork is left alone in it. The run
itself looks seldom for garbage, and not once more at its end, which took a quarter of a run that does nothing.
"""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
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


OURS = "vllm_doctor.hosts"  # its meta/runtime.yml redirects no filter and warns of none
gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)
# In the run itself all of it is looked at after a fork as before it, so cycles in it do go.
os.register_at_fork(before=gc.freeze, after_in_parent=gc.unfreeze)
_ask = filter_loader.get
_kept: dict[str, Any] = {}


def get(name: str, *arguments: Any, **words: Any) -> Any:
    """Answer with the filter that is kept under this name; else as ansible-core answers."""
    return _kept.get(name) or _ask(name, *arguments, **words)


filter_loader.get = get


def keep_ours() -> None:
    """Keep each filter of our collection under its full name; of two with one name the later file's, as it is there."""
    found: dict[str, Any] = {}
    # Where a file fails, or an Ansible is built otherwise, each fork looks for itself and says what is wrong.
    with suppress(ImportError, KeyError, AttributeError):
        folder = Path(import_module(f"ansible_collections.{OURS}.plugins.filter").__path__[0])
        for file in sorted(folder.glob("*.py")):
            for plugin in filter_loader.get_contained_plugins(OURS, str(file), file.stem):
                name = plugin.ansible_name
                found[name] = filter_loader._wrap_func(name, name, plugin.j2_function)  # noqa: SLF001
        _kept.update(found)


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
            if collection == OURS:
                keep_ours()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Load for a handler as for a task."""
        self.v2_playbook_on_task_start(task, is_conditional=False)
