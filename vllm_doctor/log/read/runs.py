"""Cuts lines into runs: one run is one start of the server and all that followed from it."""

from collections.abc import Sequence

import msgspec

from vllm_doctor.log.match import anchors, consequences, says
from vllm_doctor.log.traceback import START
from vllm_doctor.records.log import LogLine

# What a server says when it announces itself, and what it was launched with.
SERVER = ("server-version", "banner-line")
ARGUMENTS = ("args-non-default", "args-namespace")
# entrypoints/openai/cli_args.py: where a server listens that names no port.
_PORT = "8000"
# What systemd says between two runs of one unit, within a few lines of the second one's start.
_NEAR = 8
_SERVES = ("stats", "request-ok", "app-started")
# What an engine writes last of a step that ended it: V1's process, V0's, and V0's task in the front end.
_DEATHS = ("fatal-of-engine", "v0-step-error", "engine-task-failed")
# What a new process prints before it names itself.
_PREAMBLE = ("platform-detected", "plugins-available", "plugins-none", "plugins-all")


class _Seen(msgspec.Struct):
    ended: bool = False
    server: bool = False
    arguments: bool = False
    refused: bool = False
    typed: bool = False
    failed: bool = False
    engines: dict[str, int | None] = {}

    @property
    def anything(self) -> bool:
        return self.server or self.arguments or self.refused or bool(self.engines)


def announces(text: str) -> bool:
    """Does a server announce itself in this line?"""
    return any(a in text for a in anchors(*SERVER))


def launched_with(text: str) -> bool:
    """Does this line print the arguments of the launch?"""
    return any(a in text for a in anchors(*ARGUMENTS))


def starts(lines: Sequence[LogLine], *, headless: bool = False) -> list[int]:
    """Indices at which a new run begins, in order; a first run without a marker is not among them.

    Where the lines begin in the middle of a run (`headless`, or one that serves before any marker) the first marker
    begins another one.
    """
    found: list[int] = []
    seen = _Seen()
    first = next((i for i, line in enumerate(lines) if _starts_here(line, _Seen()) is not None), None)
    typed = {i for i, line in enumerate(lines) if _is_typed(line)}
    others = _of_other_units(lines)
    last_failure = next((i for i in reversed(range(len(lines))) if _fails(lines[i])), -1) if typed else -1
    if first and (headless or any(s in line.text for line in lines[:first] for s in anchors(*_SERVES))):
        seen.arguments = seen.server = True
    for index, line in enumerate(lines):
        if index in others:
            continue
        new = _typed_again(seen, fails_below=index < last_failure) if index in typed else _starts_here(line, seen)
        if new is None:
            seen.ended = seen.ended or _ends_here(line)
            seen.failed = seen.failed or (seen.typed and _fails(line))
            continue
        if new:
            seen = _Seen()
            _starts_here(line, seen)
            seen.typed = index in typed
            found.append(_with_preamble(lines, index, found[-1] if found else -1))
    return found


def _of_other_units(lines: Sequence[LogLine]) -> frozenset[int]:
    """Where systemd begins a unit of the host in whose run no server announces itself, in a journal in which one does:
    what turns logs or asks for updates is none of the server's."""
    begins = [(i, unit) for i, line in enumerate(lines) if line.process == "systemd" and (unit := _unit(line.text))]
    announced = [i for i, line in enumerate(lines) if announces(line.text) or launched_with(line.text)]
    if not begins or not announced:
        return frozenset()
    ends = [index for index, _ in begins[1:]] + [len(lines)]
    pairs = zip(begins, ends, strict=True)
    own = {unit for (begin, unit), end in pairs if any(begin < index < end for index in announced)}
    return frozenset(index for index, unit in begins if unit not in own and "vllm" not in unit.lower())


def _unit(text: str) -> str | None:
    """The unit, or its description, that systemd says it starts."""
    word, _, rest = text.partition(" ")
    return rest.split(" - ")[0] if word in {"Starting", "Started"} and rest else None


def _typed_again(seen: _Seen, *, fails_below: bool) -> bool:
    """Is the launch that somebody types here a second one, below one that failed?

    What only is typed, with nothing below that fails, is what they try next or were told to try.
    """
    again = seen.typed and (seen.failed or seen.refused) and fails_below
    seen.typed = True
    return again


def _is_typed(line: LogLine) -> bool:
    return line.level is None and line.process is None and says(line.text, "launch-typed")


def _fails(line: LogLine) -> bool:
    return line.level in {"ERROR", "CRITICAL"} or says(line.text, "run-has-spoken") or "Error: " in line.text


def _starts_here(line: LogLine, seen: _Seen) -> bool | None:
    """None: no marker. True: it opens another run than `seen`. False: it belongs to it (and `seen` remembers it)."""
    text = line.text
    if line.process == "systemd":
        # The start job is announced before the process speaks; an announcement after it ("Started") is no new run.
        again = says(text, "systemd-starting", "systemd-no-start") or (
            says(text, "systemd-started") and (seen.ended or not seen.server)
        )
        return seen.anything or seen.ended if again else None
    if announces(text):
        if (line.process or "").startswith("ApiServer"):
            return None
        new = seen.server or bool(seen.engines) or seen.refused or seen.arguments
        seen.server = True
        return new
    if launched_with(text):
        new = seen.arguments or bool(seen.engines) or seen.refused
        seen.arguments = True
        return new
    if says(text, "engine-config"):
        name = line.process or ""
        new = name in seen.engines and (seen.engines[name] != line.pid or line.pid is None)
        # a server that announced itself has several (vllm-omni's stages) before it announces itself again
        new = new and not (seen.server and line.pid is not None)
        seen.engines[name] = line.pid
        return new
    if any(r in text for r in anchors("unrecognized-arguments", "argument-invalid")):
        new = seen.anything
        seen.refused = True
        return new
    return None


def only_begins(before: Sequence[LogLine], last: Sequence[LogLine]) -> bool:
    """Is the last run a start under way, of the very launch that failed in the run before it (a restart loop)?

    The launch is the same where both runs print it so, or where systemd says that it restarts the unit.
    """
    if any(says(line.text, "run-has-spoken", "run-ending") or line.level in {"ERROR", "CRITICAL"} for line in last):
        return False
    if not any(says(line.text, "start-failed") for line in before):
        return False
    if any(
        line.process == "systemd" and says(line.text, "systemd-restart") for line in (*before[-_NEAR:], *last[:_NEAR])
    ):
        return True
    return _same_launch(before, last)


def not_yet_as_long(before: Sequence[LogLine], last: Sequence[LogLine]) -> bool:
    """Did the engine of the run before die under its load, and has the last run, of the same launch, not yet served as
    much? What starts a server again after its end does not mend it."""
    died = next((i for i, line in enumerate(before) if line.level == "ERROR" and says(line.text, *_DEATHS)), None)
    if died is None or not _same_launch(before, last) or any(map(_tells_its_end, last)):
        return False
    return _served(last) <= _served(before[:died])


def silent_ends(runs: Sequence[Sequence[LogLine]]) -> int:
    """How many runs of the last one's launch served, and then were no more, without a word; none where the last has
    answered a request."""
    if len(runs) < 2 or any(s in line.text for line in runs[-1] for s in anchors("request-ok")):
        return 0
    return sum(
        _served(run) > 0 and _same_launch(run, runs[-1]) and not any(map(_tells_its_end, run)) for run in runs[:-1]
    )


def start_failed(run: Sequence[LogLine]) -> bool:
    """Did something fail in this run, before it served?"""
    return not _served(run) and any(map(_fails, run))


def _served(run: Sequence[LogLine]) -> int:
    return sum(any(s in line.text for s in anchors(*_SERVES)) for line in run)


def _tells_its_end(line: LogLine) -> bool:
    return line.level in {"ERROR", "CRITICAL"} or says(line.text, "run-ending", "server-finished") or START in line.text


def printed_launch(run: Sequence[LogLine]) -> tuple[str, str | None] | None:
    """(Port, model) of the launch that this run prints, or of the engine that a program made in it."""
    from vllm_doctor.knowledge.launchline import from_engine_config, from_log_arguments

    printed = next((line.text for line in run if launched_with(line.text)), None)
    launch = from_log_arguments(printed) if printed is not None else None
    if launch is not None:
        return str(launch.flags.get("port", _PORT)), launch.model
    made = next((line.text for line in run if says(line.text, "engine-config")), None)
    model = from_engine_config(made).get("model") if made is not None else None
    return (_PORT, str(model)) if model else None


def model_of(run: Sequence[LogLine]) -> str | None:
    """The model of that launch."""
    told = printed_launch(run)
    return told[1] if told is not None else None


def _same_launch(one: Sequence[LogLine], other: Sequence[LogLine]) -> bool:
    launches = [next((line.text for line in run if launched_with(line.text)), None) for run in (one, other)]
    return None not in launches and launches[0] == launches[1]


def _ends_here(line: LogLine) -> bool:
    return says(line.text, "systemd-unit-over" if line.process == "systemd" else "server-finished")


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
    announced = line.process == "systemd" and says(line.text, "systemd-starting", "systemd-started")
    return announced or any(p in line.text for p in anchors(*_PREAMBLE))


def _nobodys(line: LogLine) -> bool:
    """Has it no number of a process, and tells of no end?"""
    if line.pid is not None or line.process is not None:
        return False
    return not says(line.text, "run-has-spoken", "run-ending", "process-ended", "server-finished", *consequences())
