"""What `history` makes of what several keep: who ended a run."""

from vllm_doctor.operate.history.store import Event
from vllm_doctor.operate.history.timeline import _by_whom, _expired

UNIT = "vllm@main.service"


def kinds(*events: tuple[float, str, str]) -> list[str]:
    return [e.kind for e in _by_whom([Event(at, unit, kind, "killed") for at, unit, kind in events])]


def test_an_end_that_follows_a_restart_by_the_guard_or_recover_is_no_crash() -> None:
    assert kinds((100, UNIT, "restarted"), (101, UNIT, "crash")) == ["restarted", "end"]
    assert kinds((100, UNIT, "recover"), (160, UNIT, "crash")) == ["recover", "end"]


def test_a_crash_of_another_unit_or_at_another_time_stays_one() -> None:
    assert kinds((100, "vllm@two.service", "restarted"), (101, UNIT, "crash")) == ["restarted", "crash"]
    assert kinds((90, UNIT, "crash"), (100, UNIT, "restarted"), (300, UNIT, "crash")) == ["crash", "restarted", "crash"]


def test_who_ended_it_is_told() -> None:
    told = _by_whom([Event(100, UNIT, "restarted", "x"), Event(101, UNIT, "crash", "run 1a: killed, status=9/KILL")])
    assert told[1].text == "run 1a: killed, status=9/KILL (by the guard, which restarts it)"


def test_what_took_itself_away_has_its_end_unless_it_was_turned_off_before() -> None:
    holds = Event(100, UNIT, "debug", "holds until 1970-01-01T00:10:00+00:00")
    assert _expired([holds], 500) == []
    assert _expired([holds], 700) == [Event(600, UNIT, "debug", "expired: its timer took the drop-in away")]
    assert _expired([holds, Event(300, UNIT, "debug", "off")], 700) == []
    assert len(_expired([holds, Event(300, "vllm@two.service", "debug", "off")], 700)) == 1
    assert _expired([Event(100, UNIT, "debug", "holds until soon")], 700) == []
