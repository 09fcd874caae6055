"""A journal that has no line of a run: who may not read it is told how, and root where it went."""

import os
from unittest.mock import patch

import pytest

from vllm_doctor.gather import journal, systemd, unit_runs
from vllm_doctor.records.host import Unit
from vllm_doctor.records.reading import Known, Unknown


@pytest.mark.parametrize(("user", "told"), [(0, "journalctl --disk-usage"), (1000, "the journal's own advice")])
def test_the_advice_is_one_for_who_asks(user: int, told: str) -> None:
    unit = Unit("vllm@main.service", "loaded", "active", "running", "", invocation_id="ab12", main_pid=7)
    found = systemd.Found(unit, ("vllm", "serve", "m"), {}, "/system.slice/x", None)
    with (
        patch.object(os, "geteuid", lambda: user),
        patch.object(journal, "entries", lambda *_: Known(journal.Entries(()), "journal")),
        patch.object(journal, "remedy", lambda: "the journal's own advice"),
    ):
        log = unit_runs.judged_log(found, Known((), "journal"), healthy=True, deadline_s=5.0)
    assert isinstance(log, Unknown)
    assert log.remedy.endswith(told)
