"""The report of a run: what a host said is shown, whoever wrote it, and is bounded."""

import json
from datetime import UTC, datetime
from pathlib import Path

from vllm_doctor.preflight.run_report import Report, write

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTS = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"


def told(folder: Path, host: dict[str, object]) -> tuple[str, str]:
    run = Report("diagnose.yml", NOW, NOW, (), "", (), False, {"gpu01": host, "gpu02": {}}, ())
    text = write(folder, run, ["not-in-the-files"])
    return text.read_text(), text.with_suffix(".json").read_text()


def test_nothing_that_a_host_said_acts_on_the_terminal_that_shows_it(tmp_path: Path) -> None:
    said = f"first{ACTS}\nsecond not-in-the-files"
    host = {"answers": {"vllm@main": ACTS}, "said": [said], "failed": {"task": "Ask", "message": said}}
    for one in told(tmp_path, host):
        assert not [sign for sign in one if sign != "\n" and not sign.isprintable()]
        assert "owned" in one
        assert "not-in-the-files" not in one
    assert json.loads(told(tmp_path, host)[1])["hosts"]["gpu01"]["said"][0].startswith(f"first{ACTS}")


def test_the_report_of_many_hosts_is_whole(tmp_path: Path) -> None:
    hosts = {f"gpu{at:03}": {"said": ["a line of some words " * 20]} for at in range(200)}
    text = write(tmp_path, Report("site.yml", NOW, NOW, (), "", (), False, hosts, ()), [])
    assert all(f"{name}: said" in text.read_text() for name in hosts)


def test_a_host_that_says_megabytes_fills_no_report(tmp_path: Path) -> None:
    endless = "[" * 3_000_000
    host = {"answers": {"vllm@main": endless}, "said": [endless], "failed": {"task": "Ask", "message": endless}}
    text, page = told(tmp_path, host)
    assert len(text) < 50_000
    assert len(page) < 100_000
