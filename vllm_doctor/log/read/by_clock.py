"""Puts what several processes wrote into the order of their clocks: pods one after another, the files of two hosts.

`kubectl logs -l`, `cat leader.log worker.log` and Ray's driver print one process after another. The rank that failed
first then stands below the ones that only waited for it.
"""

from collections.abc import Sequence
from itertools import chain

from vllm_doctor.log.clock import second_of_year
from vllm_doctor.log.read.runs import announces, launched_with
from vllm_doctor.records.log import LogLine

# Seconds that a line may come late where all write into one place: Ray holds lines back for 5 s to find equal ones
# (ray/_private/ray_logging: LogDeduplicator, RAY_DEDUP_LOGS_AGG_WINDOW_S).
_LATE = 5
_DAY = 86_400
# More is no process that wrote earlier, but the turn of a year.
_YEAR_TURNS = 180 * _DAY

_Speaker = tuple[int, str | None, str | None, int | None]


def in_order_of_time(files: Sequence[Sequence[LogLine]]) -> list[LogLine] | None:
    """The lines of all files by their times; None where they stand in that order, or the times do not tell it.

    A line without a time stays below the one above it. The order is left alone where one process' own clock goes back
    (another run, a clock that was set) or more than one server begins: these are told apart elsewhere.
    """
    keys: list[int] = []
    own: dict[_Speaker, int] = {}
    newest = 0
    back = False
    for number, lines in enumerate(files):
        first, latest = len(keys), None
        for line in lines:
            now = second_of_year(line.at)
            speaker = (number, line.stream, line.process, line.pid)
            if now is not None:
                if own.get(speaker, now) - now > _LATE or newest - now > _YEAR_TURNS:
                    return None
                own[speaker] = max(now, own.get(speaker, now))
                back = back or newest - now > _LATE
                if latest is None:
                    keys[first:] = [now] * (len(keys) - first)  # what stands above the first time of a file
                # Below a step back another process speaks, from there on.
                latest = now if latest is None or latest - now > _LATE else max(now, latest)
                newest = max(now, newest)
            # A process writes nothing before its own last line, whatever stands between.
            said = own.get(speaker, 0) if line.process is not None else 0
            keys.append(newest if latest is None else max(latest, said))
        for index in range(len(keys) - 2, first - 1, -1):
            line = lines[index - first]
            if line.at is None and line.module == "uvicorn":  # it was written before the next line, not with the last
                keys[index] = max(keys[index], keys[index + 1])
    together = list(chain.from_iterable(files))
    if not back or sum(announces(line.text) for line in together) > 1 or _launches(together) > 1:
        return None
    return [line for _, line in sorted(zip(keys, together, strict=True), key=lambda row: row[0])]


def _launches(lines: Sequence[LogLine]) -> int:
    return sum(launched_with(line.text) for line in lines)
