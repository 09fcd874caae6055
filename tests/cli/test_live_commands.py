"""`bundle` and `fragmentation` on a machine without vLLM, and with a saved scrape: exit codes and words."""

import json
from pathlib import Path

import pytest

from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import processes as gather_run
from vllm_doctor.gather import procfs

SCRAPE = """\
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:num_requests_running{engine="0"} 10.0
vllm:num_requests_waiting{engine="0"} 0.0
"""


@pytest.fixture
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\necho 'System has not been booted with systemd as init system' >&2; exit 1\n")
    systemctl.chmod(0o755)
    monkeypatch.setattr(gather_run, "PATH", f"{tmp_path}:{gather_run.PATH}")
    (tmp_path / "proc").mkdir()  # whatever runs beside the tests is none of this host's
    monkeypatch.setattr(procfs, "PROC", tmp_path / "proc")


@pytest.mark.usefixtures("bare_host")
def test_a_bundle_of_a_host_without_vllm_can_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.tar.gz"
    assert run(["bundle", "-o", str(path)]) == Exit.OK
    assert "ledger.json" in capsys.readouterr().out
    assert run(["diagnose", "--from", str(path), "--format", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["verdict"] == "not_applicable"


@pytest.mark.usefixtures("bare_host")
def test_a_bundle_that_cannot_be_written_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bundle", "-o", "/no/such/folder/b.tar.gz"]) == Exit.USAGE
    assert "/no/such/folder" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "nonsense", "[]"])
def test_what_is_no_bundle_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    path = tmp_path / "b"
    path.write_text(content)
    assert run(["diagnose", "--from", str(path)]) == Exit.USAGE
    assert "not a vllm-doctor bundle" in capsys.readouterr().err


def test_fragmentation_of_a_saved_scrape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics"
    path.write_text(SCRAPE)
    arguments = ["fragmentation", "--metrics", str(path), "--vllm-version", "0.32.0", "--max-model-len", "4096"]
    assert run([*arguments, "--format", "json"]) == Exit.OK
    told = json.loads(capsys.readouterr().out)["kv"]
    assert (told["used_blocks"], told["free_blocks"], told["blocks_per_running"], told["more_longest"]) == (
        500,
        500,
        50,
        1,
    )
    assert run(arguments) == Exit.OK
    assert "1,000 blocks of 16 tokens" in capsys.readouterr().out


def test_fragmentation_without_metrics_is_incomplete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics"
    path.write_text("node_load1 1\n")
    assert run(["fragmentation", "--metrics", str(path)]) == Exit.INCOMPLETE
    assert "another program" in capsys.readouterr().out


@pytest.mark.usefixtures("bare_host")
def test_fragmentation_on_a_host_without_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fragmentation"]) == Exit.OK
    assert capsys.readouterr().out.startswith("NOT APPLICABLE")


def test_fragmentation_where_systemd_fails_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\necho 'Failed to get properties: Connection timed out' >&2; exit 1\n")
    systemctl.chmod(0o755)
    monkeypatch.setattr(gather_run, "PATH", f"{tmp_path}:{gather_run.PATH}")
    assert run(["fragmentation"]) == Exit.INCOMPLETE
    assert "Connection timed out" in capsys.readouterr().out


def test_fragmentation_refuses_unknown_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fragmentation", "--format", "xml"]) == Exit.USAGE
    assert run(["fragmentation", "--metrics", "x", "--unit", "y"]) == Exit.USAGE
