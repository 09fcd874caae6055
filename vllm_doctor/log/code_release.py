"""The release that wrote a log which has no version in it, by where its code stands: calls and the logger's stamps."""

from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge.functions import CodePlace, releases_of
from vllm_doctor.log.match import says
from vllm_doctor.log.traceback import Crash
from vllm_doctor.records.log import LogLine

_STAMP = ".py:"


def releases_by_code(lines: Sequence[LogLine], crashes: Sequence[Crash]) -> tuple[str, ...]:
    """The releases whose code stands at the lines that were printed, oldest first; none where too few agree."""
    return releases_of((*_called(crashes), *_stamped(lines)))


def _called(crashes: Sequence[Crash]) -> Iterator[CodePlace]:
    for crash in crashes:
        for link in crash.links:
            for frame in link.frames:
                if frame.line and not frame.function.startswith("<") and says(frame.file, "call-of-vllm"):
                    yield CodePlace(frame.file, frame.line, frame.function)


def _stamped(lines: Sequence[LogLine]) -> Iterator[CodePlace]:
    for stamp in {line.module for line in lines if line.module is not None and _STAMP in line.module}:
        file, _, number = stamp.rpartition(":")
        if number.isascii() and number.isdecimal() and len(number) < 7:
            yield CodePlace(file, int(number))
