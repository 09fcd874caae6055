"""The text file that node_exporter reads."""

import subprocess
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from sample import HOSTILE, diagnosis, finding

from tests.debian import program
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.render import prometheus

HOSTILE_UNIT = HOSTILE.replace("{{ 7*7 }}", "")  # the client's own parser trips over braces in a label


def samples(path: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(path.read_text())
        for s in family.samples
    }


def test_findings_unknowns_and_times(tmp_path: Path) -> None:
    path = tmp_path / "vllm_doctor.prom"
    prometheus.write(path, [diagnosis(finding())], 1000.0, codes=["VD131", "VD132"])
    told = samples(path)
    unit = ("unit", "vllm.service")
    assert told["vllm_doctor_finding", (("code", "VD131"), unit)] == 1
    assert told["vllm_doctor_finding", (("code", "VD132"), unit)] == 0
    assert told["vllm_doctor_unknown_signals", (unit,)] == 1
    assert told["vllm_doctor_verdict", (unit, ("verdict", "finding"))] == 1
    assert told["vllm_doctor_verdict", (unit, ("verdict", "ok"))] == 0
    assert told["vllm_doctor_last_success_timestamp_seconds", (unit,)] == 1000.0
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_could_not_judge_keeps_the_time_of_the_last_that_did(tmp_path: Path) -> None:
    path = tmp_path / "vllm_doctor.prom"
    prometheus.write(path, [diagnosis(finding())], 1000.0)
    prometheus.write(path, [diagnosis(verdict=Verdict.UNKNOWN)], 2000.0)
    told = samples(path)
    assert told["vllm_doctor_last_success_timestamp_seconds", (("unit", "vllm.service"),)] == 1000.0
    assert told["vllm_doctor_last_run_timestamp_seconds", ()] == 2000.0


def test_a_finding_says_since_which_of_the_runs_in_a_row(tmp_path: Path) -> None:
    """So that an alert tells the first run that found it from the second; without a file before nothing is said."""
    path = tmp_path / "vllm_doctor.prom"
    who = (("code", "VD131"), ("unit", "vllm.service"))
    since = []
    for at, told in enumerate(
        (
            diagnosis(finding()),
            diagnosis(finding()),
            diagnosis(verdict=Verdict.UNKNOWN),
            diagnosis(finding()),
            diagnosis(),
            diagnosis(finding()),
        )
    ):
        prometheus.write(path, [told], 1000.0 + 300 * at, codes=["VD131"])
        since.append(samples(path).get(("vllm_doctor_finding_since_timestamp_seconds", who)))
    assert since == [None, 1000.0, 1000.0, 1000.0, None, 2500.0]
    assert "finding_since" not in prometheus.text([diagnosis(finding())], 1.0)


def test_a_hostile_unit_name_does_not_break_the_format(tmp_path: Path) -> None:
    path = tmp_path / "vllm_doctor.prom"
    prometheus.write(path, [diagnosis(finding(), unit=HOSTILE_UNIT)], 1.0)
    assert any("\\x1b]0;owned" in dict(labels).get("unit", "") for _, labels in samples(path))


def test_promtool_accepts_it(tmp_path: Path) -> None:
    promtool = program("promtool")
    path = tmp_path / "vllm_doctor.prom"
    prometheus.write(path, [diagnosis(finding())], 1000.0, codes=["VD131", "VD132"])
    checked = subprocess.run([promtool, "check", "metrics"], input=path.read_bytes(), capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_was_planned_stands_beside_what_the_start_logged(tmp_path: Path) -> None:
    path = tmp_path / "vllm_doctor.prom"
    told = msgspec.structs.replace(diagnosis(), facts={"planned_kv_gib": 2.0, "available_kv_gib": 1.5})
    prometheus.write(path, [told, diagnosis(unit="other.service")], 1.0)
    unit = (("unit", "vllm.service"),)
    assert samples(path)["vllm_plan_kv_cache_bytes", unit] == 2 << 30
    assert samples(path)["vllm_start_kv_cache_bytes", unit] == 1.5 * (1 << 30)
    assert not [key for key in samples(path) if key[0] == "vllm_plan_kv_cache_bytes" and key[1] != unit]
