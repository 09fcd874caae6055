"""Cuts lines into runs: one run is one start of the server and all that followed from it."""

import re
from collections.abc import Sequence

import msgspec

from vllm_doctor.records.log import LogLine

SERVER = "vLLM API server version"
# The same in releases with a banner, of which this is the line that names the version.
BANNER = "█  version "
ARGUMENTS = ("non-default args:", "args: Namespace(")
ENGINE = ("Initializing a V1 LLM engine", "Initializing a V0 LLM engine", "Initializing an LLM engine")
REFUSED = ("error: unrecognized arguments", "error: argument ")
SYSTEMD = ("Started ", "Starting ")
# What systemd says between two runs of one unit, within a few lines of the second one's start.
_RESTARTS = "Scheduled restart job, restart counter is at"
_NEAR = 8
# A byte string of each kind, for a search in a file too large to read.
MARKERS = (b"vLLM API server version", b"non-default args:", b"LLM engine (v")

# A run that says one of these has a failure or an end of its own.
TOLD = re.compile(r"Application startup complete|\bERROR\b|Traceback|: error:|Main process exited|\bFATAL\b")
_FAILED = re.compile(
    r"Engine core initialization failed|EngineCore failed to start|Engine process failed to start|EngineDeadError"
    r"|error: (?:unrecognized arguments|argument )"
)
_ENDS = re.compile(r"Shutting down|Shutdown initiated|\[shutdown\]|KeyboardInterrupt|CANCELLED AT|\bKilled\b|Stopping ")
# After these nothing is served any more: uvicorn's last words, and systemd's of a unit that ended.
_COMPLETE = re.compile(r"Application shutdown complete|Finished server process \[")
_UNIT_ENDED = re.compile(r"Stopped |(?<!\S)\S+: (?:Deactivated successfully|Main process exited|Scheduled restart job)")
# A shell or the kernel says so of the process that ended, never of the next one.
_DIED = re.compile(r"core dumped|Aborted|fault|oom|Exit")
_SERVES = ("Avg prompt throughput", '" 200 OK', "Application startup complete")
# What a new process prints before it names itself.
_PREAMBLE = (
    "Automatically detected platform",
    "Available plugins",
    "No plugins for group",
    "All plugins in this group",
)


class _Seen(msgspec.Struct):
    ended: bool = False
    server: bool = False
    arguments: bool = False
    refused: bool = False
    engines: dict[str, int | None] = {}

    @property
    def anything(self) -> bool:
        return self.server or self.arguments or self.refused or bool(self.engines)


def starts(lines: Sequence[LogLine], *, headless: bool = False) -> list[int]:
    """Indices at which a new run begins, in order; a first run without a marker is not among them.

    Where the lines begin in the middle of a run (`headless`, or one that serves before any marker) the first marker
    begins another one.
    """
    found: list[int] = []
    seen = _Seen()
    first = next((i for i, line in enumerate(lines) if _starts_here(line, _Seen()) is not None), None)
    if first and (headless or any(s in line.text for line in lines[:first] for s in _SERVES)):
        seen.arguments = seen.server = True
    for index, line in enumerate(lines):
        new = _starts_here(line, seen)
        if new is None:
            seen.ended = seen.ended or _ends_here(line)
            continue
        if new:
            seen = _Seen()
            _starts_here(line, seen)
            found.append(_with_preamble(lines, index, found[-1] if found else -1))
    return found


def _starts_here(line: LogLine, seen: _Seen) -> bool | None:
    """None: no marker. True: it opens another run than `seen`. False: it belongs to it (and `seen` remembers it)."""
    text = line.text
    if line.process == "systemd":
        # The start job is announced before the process speaks; an announcement after it ("Started") is no new run.
        again = text.startswith("Starting ") or (text.startswith("Started ") and (seen.ended or not seen.server))
        return seen.anything or seen.ended if again else None
    if SERVER in text or BANNER in text:
        if (line.process or "").startswith("ApiServer"):
            return None
        new = seen.server or bool(seen.engines) or seen.refused or seen.arguments
        seen.server = True
        return new
    if any(a in text for a in ARGUMENTS):
        new = seen.arguments or bool(seen.engines) or seen.refused
        seen.arguments = True
        return new
    if "LLM engine (v" in text and any(e in text for e in ENGINE):
        name = line.process or ""
        new = name in seen.engines and (seen.engines[name] != line.pid or line.pid is None)
        seen.engines[name] = line.pid
        return new
    if any(r in text for r in REFUSED):
        new = seen.anything
        seen.refused = True
        return new
    return None


def only_begins(before: Sequence[LogLine], last: Sequence[LogLine]) -> bool:
    """Is the last run a start under way, of the very launch that failed in the run before it (a restart loop)?

    The launch is the same where both runs print it so, or where systemd says that it restarts the unit.
    """
    if any(TOLD.search(line.text) or _ENDS.search(line.text) or line.level in {"ERROR", "CRITICAL"} for line in last):
        return False
    if not any(_FAILED.search(line.text) for line in before):
        return False
    if any(line.process == "systemd" and _RESTARTS in line.text for line in (*before[-_NEAR:], *last[:_NEAR])):
        return True
    launches = [
        next((line.text for line in run if any(a in line.text for a in ARGUMENTS)), None) for run in (before, last)
    ]
    return None not in launches and launches[0] == launches[1]


def _ends_here(line: LogLine) -> bool:
    said = _UNIT_ENDED if line.process == "systemd" else _COMPLETE
    return said.match(line.text) is not None


def _with_preamble(lines: Sequence[LogLine], index: int, floor: int) -> int:
    """With what stands above: a process announces itself only after its imports, and signs its lines from then on.

    Where the run before signed its lines or came to its end, all that nobody signed is the new one's.
    """
    while index - 1 > floor and _comes_before(lines[index - 1]):
        index -= 1
    above = index
    while index - above < _NEAR * 4 and above - 1 > floor and _nobodys(lines[above - 1]):
        above -= 1
    before = lines[above - 1] if above - 1 > floor else None
    return above if before is not None and (_ends_here(before) or before.process is not None) else index


def _comes_before(line: LogLine) -> bool:
    announced = line.process == "systemd" and line.text.startswith(SYSTEMD)
    return announced or any(p in line.text for p in _PREAMBLE)


def _nobodys(line: LogLine) -> bool:
    """Has it no number of a process, and tells of no end?"""
    unsigned = line.pid is None and line.process is None
    return unsigned and not any(p.search(line.text) for p in (TOLD, _ENDS, _DIED, _COMPLETE))
