"""What the text file tells of GPUs, driver, certificates and the guard."""

import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from vllm_doctor.monitor.host_text import host_rows
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import Driver, Gpu, GpuProcess, Kernel, KernelEvent, Launch, Unit
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.render import prometheus

REPO = Path(__file__).parents[2]
UNIT = "vllm@main.service"
CARD = Gpu(
    index=0,
    name="NVIDIA L4",
    uuid="GPU-1",
    total_bytes=24_000_000_000,
    free_bytes=1_000_000_000,
    processes=(GpuProcess(7, 21_000_000_000, unit=UNIT), GpuProcess(8, 2_000_000_000)),
    ecc_uncorrected=0,
    remap_pending=True,
    throttle_reasons=("hw-thermal",),
    pcie_width=8,
    temperature_c=71,
    pcie_width_max=16,
    nvlink_errors={"replay": 3},
)
LOST = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XIDS = (
    KernelEvent(LOST, "2026-01-01T00:01:00+00:00"),
    KernelEvent(LOST, "2026-01-01T01:00:00,000000+01:00"),  # as dmesg writes it
    KernelEvent(LOST, "Jan  1 00:02:00"),  # of a year that nobody knows
)


def snapshot(certificate: str = "") -> Snapshot:
    flags: dict[str, str | bool] = {"gpu-memory-utilization": "0.9"}
    if certificate:
        flags["ssl-certfile"] = certificate
    return Snapshot(
        taken_at="2026-01-01T00:00:00+00:00",
        subject=Subject(unit=UNIT),
        live=True,
        unit=Known(
            Unit(UNIT, "loaded", "active", "running", "success", drop_ins=("/x/90-drained.conf",), restarts=4), "t"
        ),
        launch=Known(Launch(("vllm", "serve", "m"), "m", flags), "t"),
        gpus=Known((CARD,), "t"),
        driver=Known(Driver(module="580.1", library="580.2"), "t"),
        kernel=Known(Kernel(XIDS), "t"),
    )


def told(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_figures_of_a_host() -> None:
    got = told(prometheus.text([], 1.0, rows=host_rows([snapshot()])))
    card = {"gpu": "0", "uuid": "GPU-1", "card": "NVIDIA L4"}
    assert got["vllm_gpu_memory_free_bytes"] == [(card, 1e9)]
    assert got["vllm_gpu_memory_budget_bytes"] == [(card, 21.6e9)]
    assert got["vllm_gpu_process_memory_bytes"] == [(card | {"unit": UNIT}, 21e9), (card | {"unit": "others"}, 2e9)]
    assert got["vllm_gpu_row_remap_pending"] == [(card, 1.0)]
    assert "vllm_gpu_row_remap_failed" not in got  # not read is not 0
    assert {labels["reason"]: v for labels, v in got["vllm_gpu_throttled"]}["hw-thermal"] == 1
    assert {labels["reason"]: v for labels, v in got["vllm_gpu_throttled"]}["sw-thermal"] == 0
    assert got["vllm_gpu_nvlink_errors_total"] == [(card | {"kind": "replay"}, 3.0)]
    assert got["vllm_gpu_xid_events_total"] == [({"pci": "0000:05:00", "xid": "79"}, 3.0)]
    assert got["vllm_gpu_xid_last_timestamp_seconds"] == [({"pci": "0000:05:00", "xid": "79"}, 1767225660.0)]
    assert got["vllm_doctor_unit_failed"] == [({"unit": UNIT}, 0.0)]
    assert got["vllm_unit_restarts_total"] == [({"unit": UNIT}, 4.0)]
    assert got["vllm_driver_library_mismatch"] == [({}, 1.0)]
    assert "vllm_fabric_manager_mismatch" not in got
    assert got["vllm_doctor_unit_drained"] == [({"unit": UNIT}, 1.0)]


def test_what_dcgm_exporter_has_and_has_not_is_what_the_page_says() -> None:
    """Each series of a GPU has a field in its default counters, one that is commented out there, or none."""
    dcgm = yaml.safe_load(Path(__file__).with_name("dcgm_default_counters.yml").read_text(encoding="utf-8"))
    whole = msgspec.structs.replace(CARD, remap_failed=False)
    got = told(
        prometheus.text([], 1.0, rows=host_rows([msgspec.structs.replace(snapshot(), gpus=Known((whole,), "t"))]))
    )
    assert {name for name in got if name.startswith("vllm_gpu_")} == set(dcgm["same"])
    said = {
        name: next((k for k in ("exported", "commented_out") if field in dcgm[k]), "none")
        for name, field in dcgm["same"].items()
    }
    of = {kind: {name.removeprefix("vllm_gpu_") for name, k in said.items() if k == kind} for kind in said.values()}
    assert of["commented_out"] == {"ecc_uncorrected_errors", "throttled", "nvlink_errors_total"}
    assert {"row_remap_pending", "nvlinks_down", "pcie_lanes"} <= of["none"]
    assert {"xid_events_total", "memory_free_bytes", "temperature_celsius", "row_remap_failed"} <= of["exported"]
    page = " ".join((REPO / "docs" / "monitoring.md").read_text(encoding="utf-8").split())
    assert "ECC, throttling and NVLink errors are commented out in it, links and pending remaps are not in it" in page


def test_a_lost_gpu_answers_0_and_says_nothing_else() -> None:
    lost = Gpu(index=1, name="NVIDIA L4", error="GPU is lost")
    shot = Snapshot(taken_at="", gpus=Known((lost,), "t"))
    got = told(prometheus.text([], 1.0, rows=host_rows([shot])))
    assert got["vllm_gpu_answers"] == [({"gpu": "1", "uuid": "", "card": "NVIDIA L4"}, 0.0)]
    assert not {name for name in got if name.startswith("vllm_gpu_")} - {"vllm_gpu_answers"}


def test_names_that_attack_the_format_stay_names() -> None:
    hostile = Gpu(index=0, name='a"} 1\nvllm_gpu_answers{gpu="9', total_bytes=1)
    got = told(prometheus.text([], 1.0, rows=host_rows([Snapshot(taken_at="", gpus=Known((hostile,), "t"))])))
    assert [labels["gpu"] for labels, _ in got["vllm_gpu_answers"]] == ["0"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed here")
def test_when_a_certificate_ends(tmp_path: Path) -> None:
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=a"]
    made = ["-days", "10", "-out", str(tmp_path / "c.pem"), "-keyout", str(tmp_path / "k.pem")]
    subprocess.run(["openssl", *words, *made], check=True, capture_output=True)
    found = {r.name: r for r in host_rows([snapshot(str(tmp_path / "c.pem"))], now=0.0)}
    row = found["vllm_certificate_expiry_timestamp_seconds"]
    assert row.labels["path"] == str(tmp_path / "c.pem")
    assert row.value > 1.7e9
    assert not [r for r in host_rows([snapshot("/nowhere.pem")]) if "certificate" in r.name]


def test_the_guards_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_doctor.operate.guard import policy
    from vllm_doctor.operate.history import deeds

    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    monkeypatch.setattr("vllm_doctor.operate.guard.policy.load", lambda: policy.Policy(units=(UNIT,), act=True))
    deeds.record(UNIT, "restarted", "by the guard")
    found = {r.name: r.value for r in host_rows([snapshot()]) if r.name.startswith("vllm_guard")}
    assert found.pop("vllm_guard_last_restart_timestamp_seconds") == pytest.approx(time.time(), abs=60)
    assert found == {"vllm_guard_restarts_today": 1.0, "vllm_guard_restarts_left": 2.0}
