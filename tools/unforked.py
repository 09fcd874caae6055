"""Tasks of runs on test hosts that ask no host are done in the run itself, and not in a fork of it.

Ansible forks a process for each task of each host, also for one whose `when` is false and for one that only sets facts:
two thirds of what a run forks that changes nothing. A fork and the pages that it copies cost 30 to 40 ms of a
processor; the same code in the run itself a few. Here a task goes through Ansible's own executor, on a copy of it and
of its variables, as far as its `when`; where that is true and the task is for a host, it is forked as ever. Nothing
else differs: what a task answers goes the same way back. Without COMPILED_TEMPLATES, which tools/hosttest and
tools/run_tests.py name, nothing is done.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ansible._internal import _task
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_result import _RawTaskResult
from ansible.playbook.handler import Handler

# What these do, they do on the controller, with their variables alone.
OF_NO_HOST = {
    "assert",
    "debug",
    "fail",
    "include_role",
    "include_tasks",
    "set_fact",
    "validate_argument_spec",
}
_start = WorkerProcess.start


class IsForAHostError(BaseException):
    """The task is not skipped: no Exception, which the executor would take for the task's own."""


def _is_for_a_host(**_: Any) -> NoReturn:
    raise IsForAHostError


def answer(worker: WorkerProcess) -> _RawTaskResult | None:
    """What the task of this worker answers; None if a host is to be asked, or if a fork would be asked more."""
    task = worker._task  # noqa: SLF001
    of_no_host = task.action.removeprefix("ansible.builtin.") in OF_NO_HOST
    if isinstance(task, Handler) or task.timeout or task.loop_with or not (of_no_host or task.when):
        return None
    copy = task.copy(exclude_parent=True, exclude_tasks=True)
    copy._parent = task._parent  # noqa: SLF001
    if not of_no_host:
        if task.loop is not None:
            return None
        copy.post_validate = _is_for_a_host
    executor = TaskExecutor(
        worker._host,  # noqa: SLF001
        copy,
        dict(worker._task_vars),  # noqa: SLF001
        worker._play_context.copy(),  # noqa: SLF001
        worker._loader,  # noqa: SLF001
        worker._shared_loader_obj,  # noqa: SLF001
        worker._final_q,  # noqa: SLF001
        worker._variable_manager,  # noqa: SLF001
    )
    with _task.TaskContext(copy):
        try:
            told = executor.run()
        except IsForAHostError:
            return None
    return _RawTaskResult(host=worker._host, task=copy, return_data=told, task_fields=copy.dump_attrs())  # noqa: SLF001


def start(worker: WorkerProcess) -> None:
    """Answer for the worker's process, or start it."""
    told = answer(worker)
    if told is None:
        _start(worker)
    else:
        worker._final_q.send_task_result(told)  # noqa: SLF001


def begin() -> None:
    """From now on, in this process."""
    WorkerProcess.start = start
