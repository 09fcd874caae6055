"""A reading in a process of its own: its deadline holds while it computes, and its failure is its own."""

import re
import time
from pathlib import Path

import pytest

from vllm_doctor.gather import live, procfs, systemd
from vllm_doctor.gather.worker import Worker, collect
from vllm_doctor.records.host import Unit
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import Known, Unknown

DEADLINE_S = 0.3


def told(work: "Worker[str]") -> str:
    collect([work])
    return work.result(lambda why: f"late: {why}")


def for_ever() -> str:
    """A pattern that keeps the interpreter to itself: no thread of the same process runs meanwhile."""
    return str(re.match(r"(a+)+$", "a" * 60 + "b"))


def test_what_is_read_comes_back() -> None:
    assert told(Worker(lambda: "é" * 1_000_000, str, 60)) == "é" * 1_000_000


def test_a_deadline_holds_against_what_computes() -> None:
    began = time.monotonic()
    assert told(Worker(for_ever, str, DEADLINE_S)) == "late: not read in time"
    assert time.monotonic() - began < 20


def test_a_bug_is_the_reading_s_own_and_the_others_are_read() -> None:
    broken: Worker[str] = Worker(lambda: str(1 / 0), str, 60)
    whole: Worker[str] = Worker(lambda: "read", str, 60)
    collect([broken, whole])
    assert broken.result(str) == "internal error while it was read: ZeroDivisionError: division by zero"
    assert whole.result(str) == "read"


def test_half_of_a_character_does_not_lose_the_reading() -> None:
    assert told(Worker(lambda: "name\udc80", str, 60)) == "name?"


def test_a_unit_whose_reading_computes_for_ever_is_unknown_and_the_others_are_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The patience of the whole is made small; what is simulated is the work on one unit's log."""
    units = [
        systemd.Found(Unit(f"vllm@{name}.service", "loaded", "inactive", "dead", "success"), (), {}, "", None)
        for name in ("slow", "sound")
    ]

    def judged(found: systemd.Found, *_: object, **__: object) -> Known[Log] | Unknown:
        return Unknown(for_ever() if "slow" in found.unit.name else "no journal")

    monkeypatch.setattr(procfs, "PROC", tmp_path)  # servers of test hosts that run beside this are no units of ours
    monkeypatch.setattr(live.systemd, "find", lambda *_: Known(tuple(units), "systemctl"))
    monkeypatch.setattr(live, "judged_log", judged)
    monkeypatch.setattr(live.nvml, "DEADLINE_S", 1.0)
    monkeypatch.setattr(live, "SILENCE_S", 0.0)
    monkeypatch.setattr(live.procfs, "processes", lambda: iter(()))  # of whatever else runs here
    slow, sound = live.gather_all(1.0)
    assert slow.log == Unknown("vllm@slow.service: not read in time", "look at the load: uptime")
    assert sound.log == Unknown("no journal")
    assert (slow.subject.unit, sound.subject.unit) == ("vllm@slow.service", "vllm@sound.service")
