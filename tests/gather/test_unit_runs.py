"""Which run of a unit is judged, and what is told of the runs before it: the journal stands in for itself."""

import os

import pytest

from vllm_doctor.gather import journal, kernel, procfs, unit_runs
from vllm_doctor.gather.systemd import Found
from vllm_doctor.gather.unit_runs import judged_log, since_start
from vllm_doctor.records.host import Kernel, KernelEvent, Unit
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import Known, Reading, Unknown

CONFIG = "INFO 03-14 09:00:00 [utils.py:300] non-default args: {{'model': '{model}'}}"
KV = "INFO 03-14 09:01:00 [gpu_worker.py:400] Available KV cache memory: {gib} GiB"
FAILED = "2026-03-14T09:05:00+00:00 gpu7 systemd[1]: vllm.service: Failed with result 'exit-code'."


def run_(number: int, *, failed: bool = False, said: tuple[str, ...] = ()) -> journal.Invocation:
    return journal.Invocation(f"{number:08d}ffff", said, failed, began=0.0, last=0.0)


def found(**over: object) -> Found:
    fields: dict[str, object] = {"invocation_id": None, "restarts": 0, **over}
    unit = Unit("vllm@a b.service", "loaded", "activating", "start", "success", **fields)  # type: ignore[arg-type]
    return Found(unit, ("vllm",), {}, "", None)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Reading[journal.Entries]]:
    """By invocation what its journal holds; of one that is not named here there is a line."""
    held: dict[str, Reading[journal.Entries]] = {}
    one = Known(journal.Entries(("2026-03-14T09:00:00+00:00 gpu7 vllm[1]: INFO a line",)), "journal")
    monkeypatch.setattr(journal, "entries", lambda name, _: held.get(name, one))
    monkeypatch.setattr(journal, "head", lambda name, _: (CONFIG.format(model="m"), KV.format(gib=int(name[:8]))))
    monkeypatch.setattr(kernel, "boot_id", lambda: "b00t")
    return held


def judged(unit: Found, *runs: journal.Invocation, healthy: bool = False) -> Log:
    told = judged_log(unit, Known(runs, "journal"), healthy=healthy, deadline_s=5.0)
    assert isinstance(told, Known)
    return told.value


def test_the_unit_s_own_run_is_judged_and_the_last_one_of_the_journal_where_it_has_none(lines: object) -> None:
    runs = (run_(1), run_(2), run_(3))
    assert judged(found(invocation_id="00000002ffff"), *runs).notes[-2:] == (
        "invocation 00000002ffff, boot b00t", "earlier run 00000001: no end was recorded",
    )  # fmt: skip
    last = judged(found(), *runs)
    assert "invocation 00000003ffff, boot b00t" in last.notes
    assert (last.earlier_runs, last.source) == (2, "journal of vllm@a b.service")
    assert judged(found(invocation_id="of-no-list"), *runs).earlier_runs == 3


@pytest.mark.parametrize(
    ("over", "earlier_failed", "healthy", "before"),
    [
        ({}, True, False, True),
        ({"restarts": 0}, True, False, False),
        ({"restarts": None}, True, False, False),
        ({}, False, False, False),
        ({}, True, True, False),
    ],
)
def test_the_run_before_is_judged_where_it_failed_and_the_unit_was_started_again(
    lines: object, over: dict[str, object], *, earlier_failed: bool, healthy: bool, before: bool
) -> None:
    runs = (run_(1), run_(2, failed=earlier_failed), run_(3))
    told = judged(found(**{"invocation_id": "00000003ffff", "restarts": 1, **over}), *runs, healthy=healthy)
    note = "the doctor judged the run before: it failed, and the present one (00000003) is still starting"
    assert (note in told.notes) is before
    assert f"invocation 0000000{2 if before else 3}ffff, boot b00t" in told.notes
    assert told.earlier_runs == (1 if before else 2)


@pytest.mark.parametrize("state", ["inactive", "failed", "activating", "active"])
def test_a_unit_that_does_not_start_has_no_run_that_is_still_starting(lines: object, state: str) -> None:
    unit = Unit("v.service", "loaded", state, "x", "success", invocation_id="00000003ffff", restarts=1)
    told = judged(Found(unit, ("vllm",), {}, "", None), run_(2, failed=True), run_(3))
    assert ("invocation 00000002ffff, boot b00t" in told.notes) is (state in {"activating", "active"})


def test_what_the_journal_does_not_hold_is_said_with_the_unit_and_the_first_signs_of_its_run(
    lines: dict[str, Reading[journal.Entries]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines["00000003ffff"] = Known(journal.Entries(()), "journal")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    told = judged_log(found(), Known((run_(3),), "journal"), healthy=False, deadline_s=1.0)
    assert told == Unknown(
        "the journal has no line of vllm@a b.service's invocation 00000003",
        "journalctl -u 'vllm@a b.service'; journalctl --disk-usage",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(journal, "remedy", lambda: "ask root")
    told = judged_log(found(), Known((run_(3),), "journal"), healthy=False, deadline_s=1.0)
    assert isinstance(told, Unknown)
    assert told.remedy == "ask root"
    assert judged_log(found(), Known((), "journal"), healthy=False, deadline_s=1.0) == Unknown(
        "the journal of this boot has no line of vllm@a b.service", "journalctl -u 'vllm@a b.service'"
    )
    silent = Unknown("not read", "x")
    assert judged_log(found(), silent, healthy=False, deadline_s=1.0) is silent
    lines["00000003ffff"] = silent
    assert judged_log(found(), Known((run_(3),), "journal"), healthy=False, deadline_s=1.0) is silent


@pytest.mark.parametrize("gap", [False, True])
def test_a_run_of_which_the_middle_is_left_out_says_so(
    lines: dict[str, Reading[journal.Entries]], *, gap: bool
) -> None:
    lines["00000001ffff"] = Known(journal.Entries(("2026-03-14T09:00:00+00:00 gpu7 vllm[1]: a",), gap=gap), "journal")
    assert judged(found(), run_(1)).last.skipped_bytes == (1 if gap else 0)


def test_five_earlier_runs_are_told_with_their_ends_the_newest_first(lines: object) -> None:
    runs = [run_(n, said=("systemd: Started", FAILED, FAILED)) for n in range(1, 8)]
    notes = [note for note in judged(found(), *runs).notes if note.startswith("earlier run")]
    assert [note[12:20] for note in notes] == [f"{n:08d}" for n in (6, 5, 4, 3, 2)]
    assert notes[0] == f"earlier run 00000006: {FAILED}; {FAILED}"


@pytest.mark.parametrize(
    ("count", "kept"),
    [(2, ()), (3, (1.0, 2.0)), (8, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)), (9, (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))],
)
def test_the_pools_of_seven_runs_before_are_read_where_two_show_a_trend(
    lines: dict[str, Reading[journal.Entries]], count: int, kept: tuple[float, ...]
) -> None:
    for own, pools in ((KV.format(gib=9.5), kept), ("no pool", ())):
        told = (CONFIG.format(model="m"), own)
        lines[f"{count:08d}ffff"] = Known(
            journal.Entries(tuple(f"2026-03-14T09:00:00+00:00 gpu7 vllm[1]: {line}" for line in told)), "journal"
        )
        assert judged(found(), *(run_(n) for n in range(1, count + 1))).earlier_kv_gib == pools


KILL = "Out of memory: Killed process 7 (vllm)"


@pytest.mark.parametrize(
    ("text", "at", "kept"),
    [
        (KILL, "2026-03-14T08:59:59+00:00", False),
        (KILL, "2026-03-14T09:00:00+00:00", True),
        (KILL, "2026-03-14T10:00:00+00:00", True),
        (KILL, "2026-03-14T08:59:59,5+00:00", False),
        (KILL, None, True),
        (KILL, "a while ago", True),
        (KILL, "2026-03-14T08:00:00", True),  # without a zone it is before or after
        ("NVRM: Xid 79", "2026-03-14T08:00:00+00:00", True),
    ],
)
def test_a_kill_before_the_run_began_is_another_run_s(lines: object, text: str, at: str | None, *, kept: bool) -> None:
    log = Known(judged(found(), run_(1)), "journal")
    told = since_start(Known(Kernel((KernelEvent(text, at, 1),), "b00t"), "kernel log"), log)
    assert isinstance(told, Known)
    assert (len(told.value.events), told.value.boot_id, told.source) == (kept, "b00t", "kernel log")
    unread = Unknown("not read", "x")
    assert since_start(unread, log) is unread
    assert since_start(Known(Kernel((), "b"), "k"), unread) == Known(Kernel((), "b"), "k")


@pytest.mark.parametrize(
    ("file", "pid", "read"),
    [("", None, None), ("", 7, None), ("", 8, "/var/log/of-8.log"), ("/var/log/v.log", 8, "/var/log/v.log")],
)
def test_a_unit_that_writes_to_a_file_is_read_there(
    monkeypatch: pytest.MonkeyPatch, file: str, pid: int | None, read: str | None
) -> None:
    reading = Unknown("read as another's", "")
    monkeypatch.setattr(unit_runs, "read_logs", lambda names, *, theirs: (names, theirs) == ([read], True) and reading)
    monkeypatch.setattr(procfs, "output_of", {7: None, 8: "/var/log/of-8.log"}.__getitem__)
    unit = Found(found(main_pid=pid).unit, ("vllm",), {}, "", file)
    told = judged_log(unit, Known((), ""), healthy=False, deadline_s=1.0)
    name = "'vllm@a b.service'"
    assert (
        told == reading
        if read
        else Unknown(
            f"{name} writes to a file whose name systemd does not show",
            f"systemctl cat {name}, and then: vllm-doctor diagnose FILE",
        )
    )


def test_a_run_that_has_served_is_judged_itself(lines: dict[str, Reading[journal.Entries]]) -> None:
    two = tuple(
        f"2026-03-14T09:00:00+00:00 gpu7 vllm[1]: {line}"
        for line in ("INFO a line", "INFO:     Application startup complete.")
    )
    lines["00000003ffff"] = Known(journal.Entries(two), "journal")
    told = judged(found(invocation_id="00000003ffff", restarts=1), run_(2, failed=True), run_(3))
    assert "invocation 00000003ffff, boot b00t" in told.notes
