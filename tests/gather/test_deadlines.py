"""How long the parts of a unit's picture are waited for where none of them comes back: all at once, not one by one."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest

from vllm_doctor.gather import live, systemd
from vllm_doctor.gather.concurrently import T
from vllm_doctor.records.host import Unit
from vllm_doctor.records.reading import Known, Unknown

_NOW = 1000.0


@pytest.mark.parametrize("deadline_s", [0.0, 5.0, 30.0])
def test_a_unit_whose_parts_hang_costs_its_deadline_or_one_request(deadline_s: float) -> None:
    """What was given little time still has that of one request, and what was given much is not cut short."""
    waited: list[float] = []

    class Hangs:
        def __init__(self, _: object) -> None:
            pass

        def result(self, until: float, late: T) -> T:
            waited.append(until - _NOW)
            return late

    unit = Unit("vllm@main.service", "loaded", "failed", "x", "", main_pid=0)
    found = systemd.Found(unit, ("/opt/vllm/bin/vllm", "serve", "/models/m"), {}, "/system.slice/vllm", None)
    unread = Unknown("not read", "nothing")
    with (
        patch.object(live, "Task", Hangs),
        patch.object(live, "time", SimpleNamespace(monotonic=lambda: _NOW)),
        patch.object(live.journal, "invocations", lambda *_: unread),
        patch.object(live, "judged_log", lambda *_, **__: unread),
        patch.object(live, "_version", lambda *_: unread),
    ):
        shot, _ = live._snapshot(found, deadline_s, canary=None)
    assert isinstance(shot.machine, Unknown)
    assert isinstance(shot.metrics, Unknown)
    assert not isinstance(shot.launch, Unknown)
    answer, *others = waited
    assert answer == deadline_s
    assert others == [max(deadline_s, live.HTTP_S)] * len(others)
    assert len(others) >= 3
    assert isinstance(shot.unit, Known)
