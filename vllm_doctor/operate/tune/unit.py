"""The unit under a trial: a drop-in in /run that a reboot forgets, a restart, and the way back.

A guard is a timer of systemd's own: if this program is killed or the login lost, the trial ends all the same.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vllm_doctor.gather import systemd
from vllm_doctor.gather.http import NoResponse, get
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.gather.unit_line import UnitLine
from vllm_doctor.knowledge.human_int import scaled
from vllm_doctor.launch.positions import option_text
from vllm_doctor.operate import launch_text
from vllm_doctor.operate.tune.decide import TrialSetting
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.reading import Known
from vllm_doctor.records.unit_name import is_service
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.dropin import quoted

NAME = "zzz-vllm-doctor-tune.conf"
GUARD = "vllm-doctor-tune-guard"
POLL_S = 0.5

_NO_LINE = UnitLine("", (), "")


class OutOfTime(Exception):  # noqa: N818 - no error: the ramp's time ended inside a step
    """The time for the ramp ended before a step could be judged."""


class TuneNotDone(Exception):  # noqa: N818 - it names what the operator meets
    """systemd refused, or the service did not come back."""


class TunedUnit(msgspec.Struct, frozen=True):
    """The unit's name, its command line without any trial, where it answers, and what the unit says word for word."""

    unit: str
    argv: tuple[str, ...]
    base: str
    line: UnitLine = _NO_LINE
    runtime: Path = Path("/run/systemd/system")

    @property
    def drop_in(self) -> Path:
        """Where a trial's drop-in lies: the name sorts behind every other, and /run does not outlive a reboot."""
        return self.runtime / f"{self.unit}.d" / NAME


def changes(argv: tuple[str, ...], setting: TrialSetting, variable: Callable[[str], str | None]) -> tuple[Change, ...]:
    """The setting as changes of the launch, what stays left out. `variable` names a flag's inventory variable."""
    wanted = {"max-num-seqs": setting.seqs, "max-num-batched-tokens": setting.tokens}
    found: list[Change] = []
    for name, value in wanted.items():
        before = flag_number(argv, name)
        if value is None or value == before:
            continue
        raised = before is not None and value > before
        found.append(
            Change(
                kind=ChangeKind.FLAG,
                name=name,
                before=before,
                after=value,
                direction=Direction.SET if before is None else Direction.RAISE if raised else Direction.LOWER,
                applicability=Applicability.NEEDS_REVIEW,
                inventory_var=variable(name),
                why="measured under load on this host",
            )
        )
    return tuple(found)


def flag_number(argv: tuple[str, ...], name: str) -> int | None:
    """A flag's whole number on a command line, `8k` too; None where it is not said."""
    text = option_text(argv, name) or ""
    return int(text) if text.isdecimal() else scaled(text)


def trial(service: TunedUnit, setting: TrialSetting) -> str:
    """The drop-in's text."""
    comment = "A trial of `vllm-doctor tune`; tune removes it when the trial ends, and a reboot removes it too."
    return launch_text.text(comment, service.line, changes(service.argv, setting, lambda _: None))


def apply(service: TunedUnit, setting: TrialSetting) -> None:
    """Write the drop-in and restart. Raises NotDone."""
    if not is_service(service.unit):
        raise TuneNotDone(f"{service.unit!r} is not the name of a service")
    service.drop_in.parent.mkdir(parents=True, exist_ok=True)
    # Not for all eyes: a command line may hold a key.
    descriptor = os.open(service.drop_in, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(trial(service, setting))
    _systemctl("daemon-reload")
    _restart(service)


def restore(service: TunedUnit) -> bool:
    """Take the drop-in away and restart on what was there before; False where there was no trial to end."""
    if not service.drop_in.exists():
        return False
    service.drop_in.unlink()
    if not any(service.drop_in.parent.iterdir()):
        service.drop_in.parent.rmdir()
    _systemctl("daemon-reload")
    _restart(service)
    return True


def _restart(service: TunedUnit) -> None:
    # A trial that failed may have used up the unit's start limit; the way back must not be refused for that.
    _systemctl("reset-failed", service.unit, tolerate=True)
    _systemctl("restart", service.unit, deadline_s=300)


def guard(service: TunedUnit, seconds: int) -> None:
    """Arm the timer that ends a trial which nobody ends. Raises NotDone: without it there is no trial."""
    disarm()
    # No shell: systemd 252 writes `;` and `$` of a transient unit so that it cannot read them after a daemon-reload.
    there = quoted(str(service.drop_in))
    steps = [
        "Type=oneshot",
        f"ExecCondition=/usr/bin/test -e {there}",
        f"ExecStartPre=/bin/rm -f -- {there}",
        "ExecStartPre=/bin/systemctl daemon-reload",
    ]
    done = run(
        [
            *("systemd-run", f"--on-active={seconds}", f"--unit={GUARD}", "--collect", "--quiet"),
            *(f"--property={step}" for step in steps),
            *("--", "/bin/systemctl", "--no-block", "restart", "--", service.unit),
        ],
        deadline_s=20,
    )
    if isinstance(done, NotRun) or done.code != 0:
        why = done.reason if isinstance(done, NotRun) else done.err.strip()
        raise TuneNotDone(f"the timer that would end the trial could not be armed: {why}")


def disarm() -> None:
    """The trial ended in order: the guard is not needed."""
    run(["systemctl", "stop", f"{GUARD}.timer"], deadline_s=20)


def _systemctl(*words: str, deadline_s: float = 60, tolerate: bool = False) -> None:
    done = run(["systemctl", *words], deadline_s=deadline_s)
    if tolerate:
        return
    if isinstance(done, NotRun):
        raise TuneNotDone(f"systemctl {' '.join(words)}: {done.reason}")
    if done.code != 0:
        raise TuneNotDone(f"systemctl {' '.join(words)} failed: {excerpt.said(done.err.strip())}")


def main_pid(unit: str) -> int | None:
    """The unit's main process; None where it has none."""
    found = systemd.find(unit, 5)
    return found.value[0].unit.main_pid if isinstance(found, Known) and found.value else None


def ready(service: TunedUnit, within_s: float) -> str | None:
    """Wait until /health answers 200; why it does not, or None. A service that ends meanwhile is not waited for."""
    end = time.monotonic() + within_s
    began: int | None = None
    while time.monotonic() < end:
        found = systemd.find(service.unit, 5)
        if isinstance(found, Known) and found.value:
            unit = found.value[0].unit
            began = unit.main_pid if began is None else began
            if unit.active_state == "failed" or (began is not None and unit.main_pid != began):
                return "the service ended while it started"
        answer = get(f"{service.base}/health", deadline_s=3, max_bytes=1 << 16)
        if not isinstance(answer, NoResponse) and answer.status == 200:
            return None
        time.sleep(POLL_S)
    return f"the service was not ready within {within_s:.0f} s"
