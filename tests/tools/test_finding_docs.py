"""docs/findings.md is made from the registry: it lists every finding and is up to date."""

from pathlib import Path

import finding_docs
import pytest

from vllm_doctor.rules.registry import rules


def test_the_page_is_what_the_rules_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert finding_docs.main(["--check"]) == 0, capsys.readouterr().out


def test_every_finding_has_a_row_with_a_page_and_a_meaning() -> None:
    told = finding_docs.TARGET.read_text(encoding="utf-8")
    for rule in rules():
        (row,) = [line for line in told.splitlines() if line.startswith(f"| [{rule.code}](")]
        page, meaning = row.partition("](")[2].partition(")")[0], row.split(" | ")[-1]
        assert (finding_docs.TARGET.parent / page).is_file()
        assert len(meaning) > len("a word |")


def test_a_stale_page_is_said_and_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_docs, "TARGET", tmp_path / "findings.md")
    assert finding_docs.main(["--check"]) == 1
    assert finding_docs.main([]) == 0
    assert finding_docs.main(["--check"]) == 0
