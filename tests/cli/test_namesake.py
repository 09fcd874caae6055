"""The other project of the same command: seen where both are installed, and never this one's own older package."""

from pathlib import Path

import pytest

from vllm_doctor.cli import namesake
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run

THEIRS = "Metadata-Version: 2.4\nName: vllm-doctor\nVersion: 0.6.0\nSummary: Diagnose vLLM deployments\n"
OURS = "Metadata-Version: 2.4\nName: vllm-doctor\nVersion: 0.1.0\nSummary: Deploy vLLM on GPU hosts, and know why\n"


def installed(packages: Path, version: str, metadata: str) -> None:
    folder = packages / f"vllm_doctor-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata)


def test_both_in_one_environment_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path, "0.6.0", THEIRS)
    monkeypatch.setattr(namesake, "__file__", str(tmp_path / "vllm_doctor" / "cli" / "namesake.py"))
    assert run(["explain", "VD121"]) == Exit.OK
    told = capsys.readouterr().err
    assert "another project's package vllm-doctor 0.6.0 is installed here" in told
    assert told.count("\n") == 1
    assert told.strip().endswith("pip install --force-reinstall . in the checkout of vllm-host-doctor")


def test_an_older_package_of_this_project_is_no_other(tmp_path: Path) -> None:
    installed(tmp_path, "0.1.0", OURS)
    assert namesake.beside(tmp_path) is None


def test_the_distribution_is_named_as_the_package_says() -> None:
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert f'name = "{namesake.DISTRIBUTION}"' in project.read_text(encoding="utf-8")
