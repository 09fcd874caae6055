"""Gathers what `diagnose` was given, or the host itself, judges it and prints the verdict."""

import fcntl
import os
import select
import stat
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from vllm_doctor.cli import terminal
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.named import STDIN, missing, refuse_missing
from vllm_doctor.cli.output import settle
from vllm_doctor.cli.streams import say
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.records.finding import Diagnosis, Missing
from vllm_doctor.records.host import Driver, Gpu, Kernel, Launch, Metrics
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Severity, Verdict
from vllm_doctor.render.file import put
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.order import INTERNAL, by_code

Judged: TypeAlias = Sequence[tuple[Diagnosis, Snapshot]]

FORMATS = ("human", "json", "html", "prometheus")
MEDIA = ("command", "unit", "docker", "compose", "pod", "slurm", "python", "inventory")
_GIB = 1 << 30
_MOST_LAUNCH = 1 << 16
_MOST_GIB = 1024
# How long the program before the pipe has for its first line; a socket is what sshd leaves open beside a command.
_PIPE_S, _SOCKET_S = 2.0, 0.1
_WORST = (Verdict.FINDING, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)


class Given(msgspec.Struct, frozen=True):
    """The options of the command, as typed."""

    logs: tuple[str, ...] = ()
    launch: str | None = None
    version: str | None = None
    gpu: str | None = None
    gpu_gib: float | None = None
    gpus: int | None = None
    metrics: str | None = None
    kernel_log: str | None = None
    nvidia_smi: str | None = None
    model_config: str | None = None
    bundle: str | None = None
    unit: str | None = None
    canary: bool = False
    why: bool = False
    path: bool = False
    medium: str | None = None

    @property
    def files(self) -> tuple[tuple[str, str | None], ...]:
        """The options that name a file, with what they name."""
        return (
            *(("--log", name) for name in self.logs), ("--kernel-log", self.kernel_log), ("--metrics", self.metrics),
            ("--nvidia-smi", self.nvidia_smi), ("--model-config", self.model_config), ("--from", self.bundle),
        )  # fmt: skip

    @property
    def piped(self) -> list[str]:
        """The options that ask for standard input."""
        return [f"{option} -" for option, name in self.files if name == STDIN]

    @property
    def offline(self) -> bool:
        """Anything to judge was given, so this host is not asked."""
        read = (self.launch, self.metrics, self.kernel_log, self.nvidia_smi, self.bundle)
        return bool(self.logs) or any(one is not None for one in read)


def run(given: Given, output: str, fail_on: str, target: str | None = None, *, force: bool = False) -> int:
    """The whole command; returns its exit code. `target` is a file to write instead of standard output."""
    given = _piped(given)
    if output not in FORMATS:
        raise UsageProblem(f"--format {output}: needed is one of {', '.join(FORMATS)}")
    if fail_on not in tuple(Severity):
        raise UsageProblem(f"--fail-on {fail_on}: needed is one of {', '.join(Severity)}")
    if given.medium is not None and given.medium not in MEDIA:
        raise UsageProblem(f"--as {given.medium}: needed is one of {', '.join(MEDIA)}")
    if given.gpu_gib is not None and not given.gpu_gib <= _MOST_GIB:  # nan is no size either
        raise UsageProblem(f"--gpu-memory-gib {given.gpu_gib:g}: needed is one card's memory in GiB, up to {_MOST_GIB}")
    if len(piped := given.piped) > 1:
        raise UsageProblem(f"{' and '.join(piped)}: standard input can be read once; give the other as a file")
    if given.offline and given.unit:
        raise UsageProblem("--unit reads this host and --log, --launch, --metrics … read files: give one or the other")
    if given.offline and given.canary:
        raise UsageProblem("--canary asks this host's server and --log, --launch, --metrics … read files")
    if target == STDIN:
        target = None  # to most programs that is standard output
    if target is not None:
        target = settle(target, force=force, reads=given.files, refreshed=output == "prometheus")
    gone = missing(given.files)
    if gone and len(gone) == sum(name is not None for _, name in given.files):
        refuse_missing(gone)  # there is nothing to judge
    judged = [(_judged(snapshot), snapshot) for snapshot in _snapshots(given)]
    if not any(diagnosis.findings for diagnosis, _ in judged):
        refuse_missing(gone)  # what the rest shows is worth more than a mistyped name
    judged.sort(key=lambda pair: _WORST.index(pair[0].verdict))
    _write(judged, output, target, given)
    codes = {exit_code(verdict, Severity(fail_on)) for verdict, _ in judged}
    return next(code for code in (Exit.INTERNAL, Exit.FINDINGS, Exit.INCOMPLETE, Exit.OK) if code in codes)


def _judged(snapshot: Snapshot) -> Diagnosis:
    """The diagnosis, on a live host with the repair there."""
    told = diagnose(snapshot)
    if not snapshot.live or not told.findings:
        return told
    from vllm_doctor.remedy.repair import repaired

    return repaired(told, snapshot)


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

        return prometheus.text([verdict for verdict, _ in judged], time.time(), _codes())
    if output == "html":
        from vllm_doctor.render.html import page

        return page([(verdict, _argv(snapshot)) for verdict, snapshot in judged], taken_at=judged[0][1].taken_at)
    from vllm_doctor.render.human import text

    color = target is None and terminal.colored()
    asked: dict[str, Any] = {"why": given.why, "path": given.path, "medium": given.medium, "width": terminal.width()}
    return "\n".join(text(told, color=color, argv=_argv(shot), **asked) for told, shot in judged)


def _argv(snapshot: Snapshot) -> tuple[str, ...]:
    return snapshot.launch.value.argv if isinstance(snapshot.launch, Known) else ()


def _codes() -> list[str]:
    return list(by_code())


def _write(judged: Judged, output: str, target: str | None, given: Given) -> None:
    if target is None:
        say(_rendered(judged, output, None, given))
        return
    try:
        if output == "prometheus":
            from vllm_doctor.render import prometheus

            prometheus.write(target, [verdict for verdict, _ in judged], time.time(), _codes())
        else:
            put(target, _rendered(judged, output, target, given))
    except OSError as problem:
        raise UsageProblem(f"--output {target}: {problem.strerror}: name a file that you may write") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _snapshots(given: Given) -> tuple[Snapshot, ...]:
    if given.bundle is not None:
        from vllm_doctor.gather.bundle import read_bundle

        kept = read_bundle(given.bundle)
        if isinstance(kept, Unknown):
            raise UsageProblem(f"--from {kept.reason}. {kept.remedy}")
        return _with_given(kept, given)
    if not given.offline:
        return _with_given(_live(given), given)
    told = _readings(given)
    return (Snapshot(taken_at=_now(), unread=_unread(told), **told),)


def _unread(told: Mapping[str, Reading[Any]]) -> tuple[Missing, ...]:
    """What was named and gave nothing. Not every output of nvidia-smi names a driver: that one was read."""
    found = [
        Missing(name, reading.reason, reading.remedy)
        for name, reading in told.items()
        if isinstance(reading, Unknown) and name != "driver"
    ]
    log = told.get("log")
    of_log = log.value.unread if isinstance(log, Known) else ()
    return (*found, *(Missing("log", one.reason, one.remedy) for one in of_log))


def _readings(given: Given) -> dict[str, Any]:
    """What the options tell, by the fields of a snapshot."""
    gpus, driver = _cards(given)
    told: dict[str, Reading[Any]] = {
        "log": read_logs(given.logs) if given.logs else NOT_GIVEN,
        "launch": _launch(given),
        "version": _version(given),
        "gpus": gpus,
        "driver": driver,
        "model_config": _model_config(given.model_config),
        "kernel": _kernel(given),
        "metrics": _metrics(given),
    }
    return {name: reading for name, reading in told.items() if reading != NOT_GIVEN}


_OF_ONE_UNIT = ("log", "launch", "metrics")


def _with_given(found: tuple[Snapshot, ...], given: Given) -> tuple[Snapshot, ...]:
    """What is said on the command line counts beside what a host or a bundle tells; but what the host saw of its cards
    is more than a name."""
    told = _readings(given)
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
            unread=_unread(told),
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


def _live(given: Given) -> tuple[Snapshot, ...]:
    from vllm_doctor.gather.live import discover, gather_all

    found = gather_all(unit=given.unit, canary=given.canary)
    if given.unit is not None and isinstance(found[0].unit, Absent):
        known = discover()
        names = ", ".join(known.value) if isinstance(known, Known) else "none"
        raise UsageProblem(f"--unit {given.unit}: {found[0].unit.reason}. vLLM units here: {names}")
    return found


def _launch(given: Given) -> Reading[Launch]:
    if given.launch is None:
        return NOT_GIVEN
    from vllm_doctor.knowledge.versions import parse_version
    from vllm_doctor.launch.command import parse_line
    from vllm_doctor.launch.line import LaunchError

    text, source = _launch_text(given.launch)
    try:
        return Known(parse_line(text, parse_version(given.version or "")), source)
    except LaunchError as problem:
        return Unknown(f"--launch: {problem}", "give the command as it is typed, the model included")
    except ValueError as problem:
        raise UsageProblem(f"--launch: {problem}: give the command as a shell would read it") from None


def _launch_text(named: str) -> tuple[str, str]:
    """The launch itself, or what the file of this name holds (a compose or pod file, a script), and where it stood."""
    try:
        is_file = " " not in named and Path(named).is_file()
    except (OSError, ValueError):  # no name of a file: too long, or a NUL in it
        is_file = False
    if not is_file:
        return named, "--launch"
    from vllm_doctor.gather.bounded import whole

    read = whole(named, _MOST_LAUNCH)
    if not isinstance(read, Known):
        raise UsageProblem(f"--launch {read.reason}")
    return read.value.decode(errors="replace"), named


def _version(given: Given) -> Reading[str]:
    return Known(given.version, "--vllm-version") if given.version else NOT_GIVEN


def _cards(given: Given) -> tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]:
    """What nvidia-smi told, else what the command line says of the cards."""
    if given.nvidia_smi is not None:
        from vllm_doctor.gather.nvidia_smi import read_both

        return read_both(given.nvidia_smi)
    if given.gpu is None and given.gpu_gib is None and given.gpus is None:
        return NOT_GIVEN, NOT_GIVEN
    size = round(given.gpu_gib * _GIB) if given.gpu_gib else None
    cards = tuple(Gpu(i, given.gpu or "", total_bytes=size) for i in range(given.gpus or 1))
    return Known(cards, "the command line"), NOT_GIVEN


def _model_config(name: str | None) -> Reading[dict[str, object]]:
    if name is None:
        return NOT_GIVEN
    from vllm_doctor.gather.release import read_model_config

    return read_model_config(name)


def _kernel(given: Given) -> Reading[Kernel]:
    if given.kernel_log is None:
        return NOT_GIVEN
    from vllm_doctor.gather.kernel import read_file

    return read_file(given.kernel_log)


def _metrics(given: Given) -> Reading[Metrics]:
    if given.metrics is None:
        return NOT_GIVEN
    from vllm_doctor.gather.metrics import read_file

    return read_file(given.metrics)
