"""A drop-in that takes itself away: it lies in /run, which a reboot forgets, and a timer of systemd's own ends it.

Its file's name says until when, so that `systemctl status`, `diagnose` and a person see it.
"""

import datetime
import os
from pathlib import Path

import msgspec

from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.records import excerpt
from vllm_doctor.records.temporary import name, until
from vllm_doctor.records.unit_name import is_service
from vllm_doctor.remedy.dropin import quoted

RUNTIME = Path("/run/systemd/system")


class NotDone(Exception):  # noqa: N818 - it names what the operator meets
    """systemd refused, or the name is none of a service."""


class Temporary(msgspec.Struct, frozen=True):
    """One such drop-in: what it is for (`recover`, `debug`), and whether the unit is restarted when it ends."""

    unit: str
    purpose: str
    restart: bool
    runtime: Path = RUNTIME

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.runtime / f"{self.unit}.d"

    @property
    def timer(self) -> str:
        """The transient timer's name."""
        return f"vllm-doctor-{self.purpose}-{self.unit.removesuffix('.service')}"

    def found(self) -> dict[Path, datetime.datetime]:
        """Those that are there, each with its end in UTC."""
        listed = sorted(self.folder.glob(f"zzy-vllm-doctor-{self.purpose}-until-*.conf"))
        return {file: end for file in listed if (end := until(str(file))) is not None}

    def put(self, text: str, seconds: int, now: datetime.datetime) -> Path:
        """Arm what ends it, then write it and have systemd read it. Raises NotDone; then nothing is left behind."""
        if not is_service(self.unit):
            raise NotDone(f"{self.unit!r} is not the name of a service")
        self.take_away()
        file = self.folder / name(self.purpose, now + datetime.timedelta(seconds=seconds))
        self._arm(file, seconds)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Not for all eyes: a command line may hold a key.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        systemctl("daemon-reload")
        return file

    def take_away(self) -> bool:
        """Take it away and disarm its timer; False where there was none. Nothing is restarted here."""
        found = list(self.found())
        for file in found:
            file.unlink(missing_ok=True)
        if found:
            if not any(self.folder.iterdir()):
                self.folder.rmdir()
            systemctl("daemon-reload")
        run(["systemctl", "stop", f"{self.timer}.timer"], deadline_s=20)
        return bool(found)

    def _arm(self, file: Path, seconds: int) -> None:
        # No shell: systemd 252 writes `;` and `$` of a transient unit so that it cannot read them after a reload.
        there = quoted(str(file))
        steps = [
            "Type=oneshot",
            f"ExecCondition=/usr/bin/test -e {there}",
            f"ExecStartPre=/bin/rm -f -- {there}",
        ]
        last = ["/bin/systemctl", "daemon-reload"]
        if self.restart:
            steps.append("ExecStartPre=/bin/systemctl daemon-reload")
            # What somebody stopped meanwhile stays stopped.
            last = ["/bin/systemctl", "--no-block", "try-restart", "--", self.unit]
        timed(self.timer, seconds, steps, last)


def once_free(called: str, lock: Path, last: list[str]) -> None:
    """Have systemd do something as soon as nobody holds the lock any more, whether who held it ended or was killed;
    looked at twice a minute. Raises NotDone."""
    timer = f"{called}.timer"
    steps = [
        "Type=oneshot",
        f"ExecCondition=/usr/bin/flock --nonblock {quoted(str(lock))} /bin/true",
        f"ExecStartPre=/bin/systemctl --no-block stop {quoted(timer)}",
    ]
    _armed(called, ["--on-calendar=*-*-* *:*:00/30", "--timer-property=AccuracySec=1s"], steps, last)


def timed(called: str, seconds: int, steps: list[str], last: list[str]) -> None:
    """Have systemd do something later, whoever lives then. Raises NotDone."""
    _armed(called, [f"--on-active={seconds}"], steps, last)


def _armed(called: str, when: list[str], steps: list[str], last: list[str]) -> None:
    run(["systemctl", "stop", f"{called}.timer"], deadline_s=20)
    done = run(
        [
            *("systemd-run", *when, f"--unit={called}", "--collect", "--quiet"),
            *(f"--property={step}" for step in steps),
            *("--", *last),
        ],
        deadline_s=20,
    )
    if isinstance(done, NotRun) or done.code != 0:
        why = done.reason if isinstance(done, NotRun) else excerpt.said(done.err.strip())
        raise NotDone(f"the timer {called} could not be armed, so nothing was changed: {why}")


def systemctl(*words: str, deadline_s: float = 60) -> None:
    """Run it. Raises NotDone with what it said."""
    done = run(["systemctl", *words], deadline_s=deadline_s)
    if isinstance(done, NotRun):
        raise NotDone(f"systemctl {' '.join(words)}: {done.reason}")
    if done.code != 0:
        raise NotDone(f"systemctl {' '.join(words)} failed: {excerpt.said(done.err.strip())}")
