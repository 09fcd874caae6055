"""README's answer is what the command prints first."""

from pathlib import Path

import pytest

from tests.scenarios.loading import log_text
from vllm_doctor.cli.main import run


def test_the_answer_that_readme_shows_is_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server.log").write_text(log_text("vd140-sampler-fires"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "96")
    run(["diagnose", "server.log"])
    shown = capsys.readouterr().out
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    first = "".join(shown.splitlines(keepends=True)[:10])
    assert f"$ vllm-doctor diagnose server.log | head -10\n{first}```" in readme, f"README's answer is now:\n{first}"
