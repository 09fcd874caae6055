# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ansible's own screen, where a task that refuses says it once."""

from __future__ import annotations

from typing import Any

from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: once
type: stdout
short_description: Ansible's own screen, where a refusal is said once
description:
  - ansible-core prints the message of a failed task as an error with the place of the task, and again in its result.
    Where the message is the task's whole purpose, the second is enough; -v shows both.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

REFUSALS = {"assert", "fail", "preflight_judge"}


class CallbackModule(Default):
    """The default, but for tasks that do nothing but refuse."""

    CALLBACK_NAME = "once"

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Leave the first of the two out."""
        if not self._display.verbosity and hasattr(result, "task"):  # ansible-core 2.19; site.yml refuses an older one
            if result.task.action.rpartition(".")[2] in REFUSALS:
                result.result.pop("exception", None)
            result.result.pop("rows", None)  # of the judge, whose message is their table; they are for the report
        super().v2_runner_on_failed(result, ignore_errors)
