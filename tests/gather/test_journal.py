"""journalctl's answers: one invocation, the ones before it, no permission, nothing there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.gather import journal
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.reading import Known, Unknown

Put = Callable[[str, str], None]


def row(message: object, **more: object) -> str:
    told = {"MESSAGE": message, "_PID": "7", "SYSLOG_IDENTIFIER": "vllm", "__REALTIME_TIMESTAMP": "1770000000000000"}
    return json.dumps({**told, "__CURSOR": f"c{hash(str(message))}", **more})


def replays(put: Put, tmp_path: Path, rows: list[str]) -> None:
    recorded = tmp_path / "rows.json"
    recorded.write_text("\n".join(rows) + "\n")
    put(
        "journalctl",
        f"""n=; while [ $# -gt 0 ]; do [ "$1" = -n ] && n=$2; shift; done
        if [ -n "$n" ]; then tail -n "$n" {recorded}; else cat {recorded}; fi""",
    )


def test_lines_with_time_and_process(on_path: Put, tmp_path: Path) -> None:
    replays(on_path, tmp_path, [row("hello"), row([104, 105, 255]), row("bye", SYSLOG_IDENTIFIER="systemd", _PID="1")])
    got = journal.entries("abc", 60)
    assert isinstance(got, Known)
    log = log_of_lines(got.value.lines, "journal")
    assert [line.text for line in log.last.lines] == ["hello", "hi\ufffd", "bye"]
    assert log.last.lines[0].pid == 7
    assert log.last.lines[0].at == "2026-02-02T02:40:00+00:00"
    assert log.last.lines[2].process == "systemd"


def test_a_long_life_is_read_at_both_ends(on_path: Put, tmp_path: Path, monkeypatch: object) -> None:
    rows = [row(f"line {n}") for n in range(20000)]
    replays(on_path, tmp_path, rows)
    got = journal.entries("abc", 5)
    assert isinstance(got, Known)
    assert got.value.gap
    assert got.value.lines[0].endswith("line 0")
    assert got.value.lines[-1].endswith("line 19999")
    assert len(got.value.lines) <= journal.HEAD_LINES + journal.TAIL_LINES


def test_no_line_twice_where_the_ends_meet(on_path: Put, tmp_path: Path) -> None:
    count = journal.TAIL_LINES + 500
    replays(on_path, tmp_path, [row(f"line {n}") for n in range(count)])
    got = journal.entries("abc", 5)
    assert isinstance(got, Known)
    assert not got.value.gap
    assert len(got.value.lines) == count


def test_earlier_runs_and_how_they_ended(on_path: Put, tmp_path: Path) -> None:
    def said(text: str, run: str) -> str:
        return row(text, INVOCATION_ID=run, SYSLOG_IDENTIFIER="systemd")

    replays(
        on_path,
        tmp_path,
        [
            said("Started vLLM.", "a"),
            said("vllm.service: Failed with result 'exit-code'.", "a"),
            said("Started vLLM.", "b"),
            said("vllm.service: Deactivated successfully.", "b"),
            said("vllm.service: Scheduled restart job, restart counter is at 1.", "b"),
            said("Started vLLM.", "c"),
        ],
    )
    got = journal.invocations("vllm.service", 60)
    assert isinstance(got, Known)
    assert [(r.invocation, r.failed) for r in got.value] == [("a", True), ("b", True), ("c", False)]


def test_no_permission_names_the_command_that_grants_it(on_path: Put) -> None:
    on_path("journalctl", "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1")
    got = journal.entries("abc", 60)
    assert isinstance(got, Unknown)
    assert "no permission" in got.reason
    assert "usermod -aG systemd-journal" in got.remedy


def test_a_hint_about_other_users_without_lines_is_no_permission(on_path: Put) -> None:
    on_path("journalctl", "echo 'Hint: You are currently not seeing messages from other users and the system.' >&2")
    assert isinstance(journal.entries("abc", 60), Unknown)


def test_no_journal_and_a_broken_one(on_path: Put) -> None:
    on_path("journalctl", "echo 'No journal files were found.' >&2; exit 1")
    got = journal.entries("abc", 60)
    assert isinstance(got, Unknown)
    assert "no journal files" in got.reason
    on_path("journalctl", 'echo \'{"MESSAGE": "cut\'; echo not json; exit 0')
    assert journal.entries("abc", 60) == Known(journal.Entries(()), "journal")


def test_a_journal_that_hangs_is_left_behind(on_path: Put) -> None:
    on_path("journalctl", "sleep 300")
    found = journal.entries("abc", 0.5)
    assert isinstance(found, Unknown)
    assert "did not answer" in found.reason


def test_a_journal_of_the_system_that_this_user_may_not_read_is_no_empty_one(
    on_path: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path("journalctl", "exit 0")  # and not a word on standard error
    file = tmp_path / "journal/abc/system.journal"
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(journal, "_JOURNALS", (tmp_path / "journal",))
    assert isinstance(journal.invocations("vllm@one.service", 60), Known)
    monkeypatch.setattr("os.access", lambda *_: False)
    got = journal.invocations("vllm@one.service", 60)
    assert isinstance(got, Unknown)
    assert got.reason == "journal: no permission to read the system's journal"


def test_one_journal_that_this_user_may_read_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine whose disk was ever here has its own folder."""
    monkeypatch.setattr(journal, "_JOURNALS", (tmp_path,))
    assert not journal._hidden()
    for name in ("mine", "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "system.journal").touch()
    monkeypatch.setattr("os.access", lambda file, _: "mine" in str(file))
    assert not journal._hidden()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert journal._hidden()


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"SYSLOG_IDENTIFIER": "my vllm", "_COMM": "c", "_PID": "7", "MESSAGE": "m"}, "my_vllm[7]: m"),
        ({"_COMM": "c", "MESSAGE": "m"}, "c[0]: m"),
        ({"MESSAGE": None, "_PID": 7}, "vllm[0]: "),
    ],
)
def test_an_entry_is_a_line_as_syslog_writes_one(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, object], line: str
) -> None:
    monkeypatch.setattr(journal, "_HOST", "gpu7")
    assert journal._line(row) == f"1970-01-01T00:00:00+00:00 gpu7 {line}"
    at = journal._line({**row, "__REALTIME_TIMESTAMP": "1770000000000000"})
    assert at == f"2026-02-02T02:40:00+00:00 gpu7 {line}"


def test_a_run_whose_messages_have_no_time_began_at_none(monkeypatch: pytest.MonkeyPatch) -> None:
    said = '{"INVOCATION_ID": "a", "MESSAGE": "Started."}\n{"MESSAGE": "of no run"}\n'
    monkeypatch.setattr(journal, "run", lambda *_, **__: journal.Ran(0, said.encode(), ""))
    since = journal.invocations("v.service", 5.0, since=1.6)
    assert since == Known((journal.Invocation("a", ("Started.",), failed=False, began=0.0, last=0.0),),
                          "journalctl --since=@2 UNIT=v.service")  # fmt: skip
