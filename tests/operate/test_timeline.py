"""What `history` makes of what several keep: who ended a run."""

import json
from pathlib import Path

import pytest

from vllm_doctor.gather import journal
from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.history.past import past
from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_format import UnitEvent
from vllm_doctor.operate.history.timeline import _by_whom, _expired, starts
from vllm_doctor.records.past import Peak
from vllm_doctor.records.reading import Known
from vllm_doctor.records.sample import CardUse, Look

UNIT = "vllm@main.service"
NOW = 1_700_000_000.0


def kinds(*events: tuple[float, str, str]) -> list[str]:
    return [e.kind for e in _by_whom([UnitEvent(at, unit, kind, "killed") for at, unit, kind in events])]


def test_an_end_that_follows_a_restart_by_the_guard_or_recover_is_no_crash() -> None:
    assert kinds((100, UNIT, "restarted"), (101, UNIT, "crash")) == ["restarted", "end"]
    assert kinds((100, UNIT, "recover"), (160, UNIT, "crash")) == ["recover", "end"]


def test_a_crash_of_another_unit_or_at_another_time_stays_one() -> None:
    assert kinds((100, "vllm@two.service", "restarted"), (101, UNIT, "crash")) == ["restarted", "crash"]
    assert kinds((90, UNIT, "crash"), (100, UNIT, "restarted"), (300, UNIT, "crash")) == ["crash", "restarted", "crash"]


def test_a_run_that_the_guard_started_and_that_ends_at_once_crashed() -> None:
    events = [
        UnitEvent(10, UNIT, "start", "run 1a: 15.00 GiB"),
        UnitEvent(100, UNIT, "restarted", "by the guard"),
        UnitEvent(101, UNIT, "crash", "run 1a: killed"),
        UnitEvent(103, UNIT, "start", "run 2b: no memory logged"),
        UnitEvent(140, UNIT, "crash", "run 2b: Failed with result 'exit-code'."),
    ]
    assert [e.kind for e in _by_whom(events)] == ["start", "restarted", "end", "start", "crash"]


def test_a_playbook_s_deed_is_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    deeds.record(UNIT, "recover", "begun", at=10)
    told = {"at": 5.5, "unit": UNIT, "kind": "playbook", "text": "drained: fans"}
    (tmp_path / "deed-5-vllm_main.json").write_text(json.dumps(told))
    (tmp_path / "deed-6-x.json").write_text("{")
    assert [(e.at, e.kind, e.text) for e in deeds.events(UNIT)] == [
        (5.5, "playbook", "drained: fans"),
        (10, "recover", "begun"),
    ]


def test_who_ended_it_is_told() -> None:
    told = _by_whom(
        [UnitEvent(100, UNIT, "restarted", "x"), UnitEvent(101, UNIT, "crash", "run 1a: killed, status=9/KILL")]
    )
    assert told[1].text == "run 1a: killed, status=9/KILL (by the guard, which restarts it)"


def test_what_took_itself_away_has_its_end_unless_it_was_turned_off_before() -> None:
    holds = UnitEvent(100, UNIT, "debug", "holds until 1970-01-01T00:10:00+00:00")
    assert _expired([holds], 500) == []
    assert _expired([holds], 700) == [UnitEvent(600, UNIT, "debug", "expired: its timer removed the drop-in")]
    assert _expired([holds, UnitEvent(300, UNIT, "debug", "off")], 700) == []
    again = UnitEvent(300, UNIT, "debug", "holds until 1970-01-01T00:20:00+00:00")
    assert _expired([holds, again], 700) == []
    assert [e.at for e in _expired([holds, again], 2000)] == [1200]
    assert len(_expired([holds, UnitEvent(300, "vllm@two.service", "debug", "off")], 700)) == 1
    assert _expired([UnitEvent(100, UNIT, "debug", "holds until soon")], 700) == []


def test_a_restart_of_the_host_takes_it_away_before_its_time() -> None:
    holds = UnitEvent(100, UNIT, "recover", "holds until 1970-01-01T00:10:00+00:00")
    told = [UnitEvent(300, UNIT, "recover", "expired: the host's restart removed the drop-in")]
    assert _expired([holds], 400, booted=300) == told
    assert [e.at for e in _expired([holds], 700, booted=50)] == [600]


def test_a_start_has_systemds_time_and_runs_of_earlier_boots_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = (
        journal.Invocation(
            "a" * 32, ("Stopped vLLM.", "vllm@main.service: Deactivated successfully."), False, NOW, NOW + 1
        ),
        journal.Invocation(
            "b" * 32, ("Starting vLLM...", "vllm@main.service: Failed with result 'x'."), True, NOW + 2, NOW + 9
        ),
    )
    asked: list[float | None] = []

    def invocations(
        _unit: str, _deadline_s: float, *, since: float | None = None
    ) -> Known[tuple[journal.Invocation, ...]]:
        asked.append(since)
        return Known(runs, "journal")

    monkeypatch.setattr(journal, "invocations", invocations)
    monkeypatch.setattr(journal, "head", lambda *_: ("2023-11-14T22:14:30+00:00 h vllm[7]: it loads",))
    told, why = starts(UNIT, NOW)
    assert (why, asked) == ("", [NOW])
    assert [(e.at - NOW, e.kind) for e in told] == [(1, "end"), (2, "start"), (9, "crash")]


def test_a_diagnosis_knows_the_guards_restart_of_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    Store(tmp_path / "history.sqlite").keep(Look(UNIT, NOW, 0, 0))
    deeds.record(UNIT, "restarted", "by the guard: engine-dead: no token for 50 s", at=NOW - 60)
    read = past(UNIT, NOW)
    assert isinstance(read, Known)
    assert read.value.restarted == "2023-11-14 22:12:20Z by the guard: engine-dead: no token for 50 s"
    later = past(UNIT, NOW + 2 * 86400)
    assert isinstance(later, Known)
    assert later.value.restarted == ""


def test_the_fullest_minute_of_the_present_run_knows_the_other_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    store = Store(tmp_path / "history.sqlite")
    store.event(UnitEvent(NOW - 4000, UNIT, "started", "a new run"))
    held = {-3900: (1, 70), -600: (40, 38), -60: (40, 33)}  # the first one while it loads
    for at, (own, others) in held.items():
        for unit, mine, rest in ((UNIT, own, others), ("vllm@two.service", 30, own)):
            store.keep(Look(unit, NOW + at, 0, 0, cards=(CardUse("GPU-1", mine, rest, 80, 80 - own - others),)))
    found = past(UNIT, NOW)
    store.close()
    assert isinstance(found, Known)
    assert found.value.peaks == (Peak("GPU-1", "2023-11-14 22:03:20Z", 40, 30, 8),)
