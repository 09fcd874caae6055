"""Runs slow readings at the same time; one that does not come back is left behind."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """A reading under way in a daemon thread, which cannot keep the process from ending."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: list[T] = []
        self._bug: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._work())
        except BaseException as bug:  # noqa: BLE001 - raised again in the thread that asks
            self._bug.append(bug)

    def result(self, until: float, late: T) -> T:
        """The answer, or `late` when it is not there at `until` (monotonic seconds). A bug of the work is raised."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._bug:
            raise self._bug[0]
        return self._answer[0] if self._answer else late

    def within(self, seconds: float, late: T) -> T:
        """The same, with the time that it has from now on."""
        return self.result(time.monotonic() + seconds, late)
