"""Readings in processes of their own, so that a deadline holds also against what computes: a thread cannot be stopped,
and a pattern that is matched keeps the interpreter from every other thread.

The child is a copy of this process (fork), which costs a few milliseconds and imports nothing again. It must be made
before this process has threads. What it read comes back as msgpack.
"""

import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from vllm_doctor.records import excerpt

T = TypeVar("T")
_CHUNK = 1 << 20
# Of processor time. A unit with 8,000 lines in its journal takes 3 s on a busy machine.
_WORK_S = 6
_MOST = 256 << 20


class Worker(Generic[T]):
    """One reading under way; `collect` fetches what it says."""

    def __init__(self, work: Callable[[], T], kind: Any, deadline_s: float) -> None:
        """`kind` is the type of what `work` gives; after `deadline_s` from now it is killed."""
        self._kind = kind
        self._said = bytearray()
        self.until = time.monotonic() + deadline_s
        self.pipe, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _child(work, end)
        os.close(end)

    def take(self) -> bool:
        """Take what is there; False when nothing more will come."""
        piece = os.read(self.pipe, _CHUNK)
        self._said += piece
        return bool(piece) and len(self._said) <= _MOST

    def end(self) -> None:
        """Nothing more is wanted of it. It is killed, and not waited for where it cannot die (a hung driver)."""
        os.close(self.pipe)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for _ in range(100):
            with suppress(ChildProcessError):
                if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                    time.sleep(0.001)
                    continue
            return

    def result(self, late: Callable[[str], T]) -> T:
        """What it read, or `late(why)` where it did not come to an end."""
        if not self._said:
            return late("not read in time")
        try:
            told: T | str = msgspec.msgpack.decode(self._said[1:], type=self._kind if self._said[0] else str)
        except msgspec.DecodeError:
            return late("not read in time")
        return told if self._said[0] else late(f"internal error while it was read: {told}")  # type: ignore[return-value]


def collect(workers: Iterable[Worker[Any]]) -> None:
    """Wait for all of them, each until its own deadline."""
    with selectors.DefaultSelector() as under_way:
        for worker in workers:
            under_way.register(worker.pipe, selectors.EVENT_READ, worker)
        while under_way.get_map():
            first = min(key.data.until for key in under_way.get_map().values())
            ready = {key.data for key, _ in under_way.select(max(0.0, first - time.monotonic()))}
            for key in list(under_way.get_map().values()):
                late = key.data.until <= time.monotonic() and key.data not in ready
                if late or (key.data in ready and not key.data.take()):
                    under_way.unregister(key.fileobj)
                    key.data.end()


def _child(work: Callable[[], Any], end: int) -> None:
    """Work, say what came of it, and end without the parent's own ending (buffers, handlers)."""
    try:
        try:
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            most = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (min(_WORK_S, most) if most >= 0 else _WORK_S, most))
            said = b"\x01" + _packed(work())
        except Exception as bug:  # noqa: BLE001 - told to the parent, which lives on
            if os.environ.get("VLLM_DOCTOR_TRACEBACK"):
                sys.excepthook(*sys.exc_info())
            said = b"\x00" + _packed(excerpt.said(f"{type(bug).__name__}: {bug}"))
        with os.fdopen(end, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(0)


def _packed(value: object) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:  # a file's name that is no text
        return msgspec.msgpack.encode(_written(msgspec.to_builtins(value)))


def _written(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_written(k): _written(v) for k, v in value.items()}
        case list() | tuple():
            return [_written(item) for item in value]
        case _:
            return value
