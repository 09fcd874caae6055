"""GuideLLM as the load: reports that a real 0.8.1 wrote of a real server (requests cut to a few), and what is refused.

The server was vLLM 0.32.0's CPU build with a tiny model on two cores: its latencies say nothing of a real one.
"""

import json
import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.tune_facts import _benchmark
from vllm_doctor.operate.tune import guidellm as tune_guidellm
from vllm_doctor.operate.tune.guidellm import Guidellm, find, loaded, scenario
from vllm_doctor.operate.tune.load_generator import LoadTarget

REPORTS = Path(__file__).parent / "guidellm"
TARGET = LoadTarget("http://127.0.0.1:8000", "tiny", 64, 8, "secret")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A `guidellm` on the PATH that tells this version and copies this report to where it is asked to."""

    def put(version="0.8.1", report="served.json", code=0):
        program = tmp_path / "guidellm"
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, os, pathlib, sys\n"
            f"if sys.argv[1:] == ['--version']: sys.exit(print('guidellm version: {version}'))\n"
            "asked = json.load(open(sys.argv[sys.argv.index('--config') + 1]))\n"
            f"kept = pathlib.Path({str(REPORTS)!r}, {report!r})\n"
            "seen = {'argv': sys.argv, 'asked': asked, 'offline': os.environ['HF_HUB_OFFLINE']}\n"
            f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(json.dumps(seen))\n"
            "if kept.exists(): pathlib.Path(asked['spec']['outputs'][0]['path']).write_bytes(kept.read_bytes())\n"
            f"print('it said why', file=sys.stderr); sys.exit({code})\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "seen"

    return put


def test_requests_of_the_report_become_streams():
    load = loaded((REPORTS / "served.json").read_bytes())
    assert [s.tokens for s in load.streams] == [8, 8, 8]
    first = load.streams[0]
    assert (round(first.first_s, 3), len(first.between_s), round(first.between_s[0], 3)) == (0.443, 7, 0.336)
    assert (load.errors, round(load.seconds, 2)) == ((), 9.98)


def test_a_request_whose_tokens_have_no_text_is_counted_from_its_end():
    report = json.loads((REPORTS / "served.json").read_bytes())
    report["benchmarks"][0]["requests"]["successful"][0] |= {
        "time_to_first_token_ms": None,
        "inter_token_latency_ms": None,
    }
    first, *others = loaded(json.dumps(report).encode()).streams
    assert (first.tokens, first.between_s) == (8, ())
    assert first.first_s > 2
    assert len(others) == 2


def test_requests_that_the_server_refused_are_errors():
    load = loaded((REPORTS / "refused.json").read_bytes())
    assert load.streams == ()
    assert len(load.errors) == 2
    assert "400 Bad Request" in load.errors[0]


@pytest.mark.parametrize("change", [{"metadata": {"version": 3, "guidellm_version": "0.9.0"}}, {"benchmarks": []}])
def test_a_report_of_another_kind_is_not_read(change):
    other = {**json.loads((REPORTS / "served.json").read_bytes()), **change}
    with pytest.raises(msgspec.DecodeError, match="needed: version 2 with one"):
        loaded(json.dumps(other).encode())


def test_the_key_is_in_the_runs_file_and_not_on_the_command_line(installed):
    seen = installed()
    found = find()
    assert found == Guidellm(str(seen.with_name("guidellm")), "0.8.1")
    load = found.drive(TARGET, "/srv/models/tiny", 4, 60)
    assert len(load.streams) == 3
    told = json.loads(seen.read_text())
    assert "secret" not in " ".join(told["argv"])
    assert told["asked"]["spec"]["backend"]["api_key"] == "secret"
    assert told["offline"] == "1"


def test_a_run_is_so_many_in_flight_for_a_few_rounds(tmp_path):
    spec = scenario(TARGET, "/srv/models/tiny", 4, tmp_path / "r.json")["spec"]
    assert spec["profile"] == {"kind": "concurrent", "streams": [4]}
    assert spec["constraints"] == [{"kind": "max_requests", "count": 12}]
    assert spec["data"] == [{"kind": "synthetic_text", "prompt_tokens": 64, "output_tokens": 8}]


def test_a_run_without_a_report_is_one_error_that_says_why(installed):
    installed(report="none", code=2)
    load = find().drive(TARGET, "/srv/models/tiny", 4, 60)
    assert load.streams == ()
    assert load.errors[0].startswith("guidellm 0.8.1 ended with 2 and left no readable report (")
    assert load.errors[0].endswith(": it said why")


@pytest.mark.parametrize("version", ["0.7.2", "0.80.0", "1.0.0"])
def test_another_line_is_refused_with_the_one_that_is_known(installed, version):
    installed(version)
    with pytest.raises(UsageProblem, match=rf"found {version}.*needed: guidellm 0\.8 on the PATH"):
        _benchmark("guidellm", ("/opt/vllm/current/bin/vllm",))
    assert _benchmark("auto", ("/nowhere/vllm",)) is None


def test_where_it_is_not_installed_it_is_said(monkeypatch):
    monkeypatch.setattr(tune_guidellm.shutil, "which", lambda _, path: None)  # noqa: ARG005
    with pytest.raises(UsageProblem, match="it is not installed; needed: guidellm"):
        _benchmark("guidellm", ("/opt/vllm/current/bin/vllm",))
    assert _benchmark("auto", ("/nowhere/vllm",)) is None
    assert _benchmark("own", ("/nowhere/vllm",)) is None


def test_where_the_release_has_no_benchmark_an_installed_guidellm_is_taken(installed):
    installed()
    assert _benchmark("auto", ("/nowhere/vllm",)).name == "guidellm 0.8.1"


def test_a_program_that_anybody_could_have_put_there_is_not_run(installed, tmp_path):
    seen = installed()
    tmp_path.chmod(0o777)
    with pytest.raises(UsageProblem, match=r"guidellm was not started: .* can be written by others \(mode 777\)"):
        _benchmark("guidellm", ("/opt/vllm/current/bin/vllm",))
    assert not seen.exists()
