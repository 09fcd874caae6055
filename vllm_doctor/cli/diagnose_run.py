"""Gathers what `diagnose` was given, or the host itself, judges it and prints the verdict."""

import fcntl
import os
import re
import select
import stat
import struct
import sys
import termios
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vllm_doctor.cli import terminal
from vllm_doctor.cli.command_line import STDIN, missing, refuse_missing
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.given import Given, aimed, readings, unread
from vllm_doctor.cli.output import settle, unwritten
from vllm_doctor.cli.progress import waiting
from vllm_doctor.cli.streams import say
from vllm_doctor.gather.target import Target
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Severity, Verdict
from vllm_doctor.render.file import put
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.order import INTERNAL, by_code

if TYPE_CHECKING:
    from vllm_doctor.monitor.host_text import GaugeRow
    from vllm_doctor.operate.notify import NotifyTarget as Whom

Judged: TypeAlias = Sequence[tuple[Diagnosis, Snapshot]]

_GIB = 1 << 30
_MOST_GIB = 1024
_UNIT = re.compile(r"vllm@[A-Za-z0-9:_.\\-]{1,200}|[A-Za-z0-9:_.@\\-]{1,200}\.service")
# How long the program before the pipe has for its first line; a socket is what sshd leaves open beside a command.
_PIPE_S, _SOCKET_S = 2.0, 0.1
_WORST = (Verdict.FINDING, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)


def run(
    given: Given,
    output: str,
    fail_on: str,
    target: str | None = None,
    *,
    force: bool = False,
    tell: str | None = None,
) -> int:
    """The whole command; returns its exit code. `target` is a file to write instead of standard output, `tell` one that
    says whom to tell of findings."""
    given = _unit_named(_piped(given))
    whom = _whom(tell)
    if given.gpu_gib is not None and not given.gpu_gib <= _MOST_GIB:  # nan is no size either
        raise UsageProblem(f"--gpu-memory-gib {given.gpu_gib:g}: needed: one card's memory in GiB, up to {_MOST_GIB}")
    if len(piped := given.piped) > 1:
        raise UsageProblem(f"{' and '.join(piped)}: standard input can be read once; give the other as a file")
    if given.offline and given.unit:
        raise UsageProblem("--unit reads this host and --log, --launch, --metrics … read files: give one or the other")
    if given.offline and given.canary and not aimed(given.logs)[0]:
        raise UsageProblem("--canary asks this host's server and --log, --launch, --metrics … read files")
    if target == STDIN:
        target = None  # to most programs that is standard output
    if target is not None:
        target = settle(target, force=force, reads=given.files, refreshed=output == "prometheus")
    gone = missing(given.files)
    if gone and len(gone) == sum(name is not None for _, name in given.files):
        refuse_missing(gone)  # there is nothing to judge
    with waiting("reading and judging"):
        judged = [(_judged(snapshot, memory=given.memory), snapshot) for snapshot in _snapshots(given)]
    if not any(diagnosis.findings for diagnosis, _ in judged):
        refuse_missing(gone)  # what the rest shows is worth more than a mistyped name
    judged.sort(key=lambda pair: _WORST.index(pair[0].verdict))
    _write(judged, output, target, given)
    found = [verdict for verdict, _ in judged if exit_code(verdict, Severity(fail_on)) == Exit.FINDINGS]
    if whom is not None and found:
        _tell(whom, found)
    codes = {exit_code(verdict, Severity(fail_on)) for verdict, _ in judged}
    return next(code for code in (Exit.INTERNAL, Exit.FINDINGS, Exit.INCOMPLETE, Exit.OK) if code in codes)


def _whom(tell: str | None) -> "Whom | None":
    """Whom to tell, read before anything is judged. Raises UsageProblem."""
    if tell is None:
        return None
    from vllm_doctor.operate.notify import BadTargetError
    from vllm_doctor.operate.notify import notify_target as whom

    try:
        return whom(tell)
    except BadTargetError as problem:
        raise UsageProblem(f"--notify {problem}") from None


def _tell(whom: "Whom", found: list[Diagnosis]) -> None:
    """The answer stands by now: that nobody was told is a line beside it, and no other exit code."""
    from vllm_doctor.operate.notify import notify

    if problem := notify(whom, found):
        print(f"--notify: no message was sent: {problem}", file=sys.stderr)


def _judged(snapshot: Snapshot, *, memory: bool) -> Diagnosis:
    """The diagnosis, on a live host with the repair there."""
    told = diagnose(snapshot, preview=os.environ.get("VLLM_DOCTOR_PREVIEW") == "1", memory=memory)
    if not snapshot.live or not told.findings:
        return told
    from vllm_doctor.remedy.repair import repaired

    return repaired(told, snapshot)


def _unit_named(given: Given) -> Given:
    """`diagnose vllm@main`: a word that is a unit's name, and no file's, is the unit."""
    alone = given.logs[0] if len(given.logs) == 1 else ""
    rest = msgspec.structs.replace(given, logs=())
    if not _UNIT.fullmatch(alone) or rest.offline or given.unit or os.path.lexists(alone):
        return given
    return msgspec.structs.replace(rest, unit=alone)


def _piped(given: Given) -> Given:
    """`… | vllm-doctor diagnose`: what is piped into it, and nothing else is given, is the log."""
    if given.offline or given.unit or given.canary or given.bundle or not _is_fed():
        return given
    return msgspec.structs.replace(given, logs=(STDIN,))


def _is_fed() -> bool:
    """Does a pipe or a file with something in it stand at standard input? Nothing is waited for: a service that was
    started with an idle pipe must not hang on it."""
    try:
        at = os.fstat(0)
        if stat.S_ISREG(at.st_mode):
            return at.st_size > 0
        if not (stat.S_ISFIFO(at.st_mode) or stat.S_ISSOCK(at.st_mode)):
            return False
        patience = _PIPE_S if stat.S_ISFIFO(at.st_mode) else _SOCKET_S
        return bool(select.select([0], [], [], patience)[0]) and _holds_something()
    except (OSError, ValueError):
        return False


def _holds_something() -> bool:
    """Bytes that wait, and not the end of a pipe that nobody wrote into."""
    waiting = fcntl.ioctl(0, termios.FIONREAD, struct.pack("i", 0))
    return bool(struct.unpack("i", waiting)[0] > 0)


def exit_code(diagnosis: Diagnosis, fail_on: Severity) -> int:
    """1 wins over 3: something unknown never hides a finding, and is never 0 where the question needs it."""
    order = list(Severity)
    real = [f for f in diagnosis.findings if f.code != INTERNAL]
    if any(order.index(f.severity) <= order.index(fail_on) for f in real):
        return Exit.FINDINGS
    if len(real) < len(diagnosis.findings):
        return Exit.INTERNAL
    return Exit.INCOMPLETE if diagnosis.verdict is Verdict.UNKNOWN else Exit.OK


def _rendered(judged: Judged, output: str, target: str | None, given: Given) -> str:
    """All units' diagnoses, the worst first; JSON is one object, the worst unit's, with the others in it."""
    if output == "json":
        from vllm_doctor.render.machine import dumps

        return dumps(judged[0][0], [verdict for verdict, _ in judged[1:]])
    if output == "prometheus":
        from vllm_doctor.render import prometheus

        return prometheus.text([verdict for verdict, _ in judged], time.time(), _codes(), _rows(judged))
    if output == "html":
        from vllm_doctor.render.html import page

        return page([(verdict, _argv(snapshot)) for verdict, snapshot in judged], taken_at=judged[0][1].taken_at)
    if output == "markdown":
        from vllm_doctor.render import markdown

        return markdown.text([told for told, _ in judged])
    if output == "junit":
        from vllm_doctor.render import junit

        return junit.text([told for told, _ in judged])
    from vllm_doctor.render import human

    color = target is None and terminal.colored()
    asked: dict[str, Any] = {
        "why": given.why,
        "path": given.path,
        "memory": given.memory,
        "medium": given.medium,
        "width": terminal.width(),
    }
    return "\n".join(human.text(told, color=color, argv=_argv(shot), **asked) for told, shot in judged)


def _argv(snapshot: Snapshot) -> tuple[str, ...]:
    return snapshot.launch.value.argv if isinstance(snapshot.launch, Known) else ()


def _codes() -> list[str]:
    return list(by_code())


def _rows(judged: Judged) -> "list[GaugeRow]":
    from vllm_doctor.monitor.host_text import host_rows

    return host_rows([snapshot for _, snapshot in judged])


def _write(judged: Judged, output: str, target: str | None, given: Given) -> None:
    if target is None:
        say(_rendered(judged, output, None, given))
        return
    try:
        if output == "prometheus":
            from vllm_doctor.render import prometheus

            prometheus.write(target, [verdict for verdict, _ in judged], time.time(), _codes(), _rows(judged))
        else:
            put(target, _rendered(judged, output, target, given))
    except OSError as problem:
        raise unwritten(target, problem) from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _snapshots(given: Given) -> tuple[Snapshot, ...]:
    if given.bundle is not None:
        from vllm_doctor.gather.bundle import read_bundle

        kept = read_bundle(given.bundle)
        if isinstance(kept, Unknown):
            raise UsageProblem(f"--from {kept.reason}. {kept.remedy}")
        return _with_given(kept, given)
    aims, files = aimed(given.logs)
    if aims and files:
        raise UsageProblem(f"{aims[0].name} is asked directly, and {files[0]} is a file: give one or the other")
    if aims or not given.offline:
        return _with_given(_live(given, aims), msgspec.structs.replace(given, logs=()))
    from vllm_doctor.gather.documents import sort

    sorted_ = sort(given.logs)
    if len(sorted_.launches) > (given.launch is None):
        raise UsageProblem(f"{sorted_.launches[-1]} is a launch, and --launch gives another: give one of them")
    launch = given.launch if given.launch is not None else next(iter(sorted_.launches), None)
    told = readings(msgspec.structs.replace(given, logs=sorted_.logs, launch=launch))
    if sorted_.containers:
        from vllm_doctor.cli.described import snapshots

        return snapshots(sorted_, told, _now(), unread(told))
    return (Snapshot(taken_at=_now(), unread=unread(told), **told),)


_OF_ONE_UNIT = ("log", "launch", "metrics")


def _with_given(found: tuple[Snapshot, ...], given: Given) -> tuple[Snapshot, ...]:
    """What is said on the command line counts beside what a host or a bundle tells; but what the host saw of its cards
    is more than a name."""
    told = readings(given)
    own = [name for name in _OF_ONE_UNIT if name in told]
    if own and len(found) > 1:
        units = ", ".join(shot.subject.unit or "?" for shot in found)
        raise UsageProblem(
            f"--from {given.bundle} holds {len(found)} units ({units}), and --{own[0]} belongs to one: "
            "judge it without --from"
        )
    return tuple(
        msgspec.structs.replace(
            snapshot,
            unread=(*snapshot.unread, *unread(told)),
            **{
                name: reading
                for name, reading in told.items()
                if name != "gpus" or _more(reading, snapshot.gpus, given)
            },
        )
        for snapshot in found
    )


def _more(cards: Reading[tuple[Gpu, ...]], seen: Reading[tuple[Gpu, ...]], given: Given) -> bool:
    """Do the given cards tell more than those that the host saw?"""
    return not isinstance(seen, Known) or (given.nvidia_smi is not None and isinstance(cards, Known))


def _live(given: Given, aims: Sequence[Target] = ()) -> tuple[Snapshot, ...]:
    from vllm_doctor.gather.live import NotThereError, discover, gather_all

    try:
        found = gather_all(unit=given.unit, canary=given.canary, aims=aims)
    except NotThereError as problem:
        raise UsageProblem(f"{problem}{f': {problem.remedy}' if problem.remedy else ''}") from None
    if given.unit is not None and isinstance(found[0].unit, Absent):
        known = discover()
        names = ", ".join(known.value) if isinstance(known, Known) else "none"
        raise UsageProblem(f"--unit {given.unit}: {found[0].unit.reason}. vLLM units here: {names}")
    return tuple(_with_past(shot) for shot in found)


def _with_past(shot: Snapshot) -> Snapshot:
    """The snapshot with what the guard's records say of its unit."""
    if shot.subject.unit is None:
        return shot
    from vllm_doctor.operate.history.past import past

    return msgspec.structs.replace(shot, past=past(shot.subject.unit))
