"""What the text file tells of a host beside the findings: its GPUs, driver, certificates, and the guard's restarts."""

import ssl
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_doctor.records.host import Driver, Gpu, Launch
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot

# Slowed down by heat or by the power supply; a power cap under load is how a card is meant to run.
THROTTLED = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake", "board-limit", "reliability")
_OPENSSL_S = 2.0
_DAY = 86400.0


class GaugeRow(NamedTuple):
    """One value of a gauge; all rows of a name have the same labels."""

    name: str
    help: str
    labels: dict[str, str]
    value: float


def host_rows(snapshots: Sequence[Snapshot], now: float | None = None) -> list[GaugeRow]:
    """Everything that could be read; what could not has no row."""
    found: list[GaugeRow] = []
    gpus = next((s.gpus.value for s in snapshots if isinstance(s.gpus, Known)), ())
    budgets: Counter[int] = Counter()
    for shot in snapshots:
        budgets.update(_budgets(shot, gpus))
    for gpu in gpus:
        found += _gpu(gpu, budgets.get(gpu.index))
    for shot in snapshots:
        if isinstance(shot.driver, Known):
            found += _driver(shot.driver.value)
            break
    found += _xids(snapshots)
    for shot in snapshots:
        if shot.live and shot.subject.unit is not None:
            found += _unit(shot, shot.subject.unit, time.time() if now is None else now)
    return found


def _gpu(gpu: Gpu, budget: int | None) -> Iterator[GaugeRow]:
    """Sizes in bytes."""
    who = {"gpu": str(gpu.index), "uuid": gpu.uuid or "", "card": gpu.name}
    yield GaugeRow("vllm_gpu_answers", "Whether the GPU answers the driver.", who, float(gpu.error is None))
    told = (
        ("memory_total_bytes", "Memory of the GPU.", gpu.total_bytes),
        ("memory_free_bytes", "Memory that nobody holds.", gpu.free_bytes),
        ("memory_budget_bytes", "Memory that gpu_memory_utilization gives the services on the GPU.", budget),
        ("ecc_uncorrected_errors", "Uncorrected memory errors since the driver was loaded.", gpu.ecc_uncorrected),
        ("row_remap_pending", "A memory row waits for its replacement.", gpu.remap_pending),
        ("row_remap_failed", "A memory row could not be replaced.", gpu.remap_failed),
        ("pcie_lanes", "Width of the link to the host.", gpu.pcie_width),
        ("pcie_lanes_max", "Width that card and slot could have.", gpu.pcie_width_max),
        ("temperature_celsius", "Temperature of the GPU.", gpu.temperature_c),
    )
    for name, help_, value in told:
        if value is not None:
            yield GaugeRow(f"vllm_gpu_{name}", help_, who, float(value))
    if gpu.error is None:
        yield GaugeRow("vllm_gpu_nvlinks_down", "NVLinks that are down.", who, float(len(gpu.nvlink_down)))
        for kind, count in gpu.nvlink_errors.items():
            yield GaugeRow("vllm_gpu_nvlink_errors_total", "NVLink errors.", {**who, "kind": kind}, float(count))
        for reason in THROTTLED:
            labels = {**who, "reason": reason}
            yield GaugeRow("vllm_gpu_throttled", "Slowed down now.", labels, float(reason in gpu.throttle_reasons))
    held: Counter[str] = Counter()
    for process in gpu.processes:
        held[process.unit or "others"] += process.used_bytes or 0
    for unit, size in held.items():
        yield GaugeRow("vllm_gpu_process_memory_bytes", "Memory by unit.", {**who, "unit": unit}, float(size))


def _budgets(shot: Snapshot, gpus: Sequence[Gpu]) -> dict[int, int]:
    """What the launch's own gpu_memory_utilization takes of each GPU that the unit's processes are on, bytes."""
    if not isinstance(shot.launch, Known) or shot.subject.unit is None:
        return {}
    portion = _portion(shot.launch.value)
    return {
        gpu.index: round(gpu.cuda_bytes * portion)
        for gpu in gpus
        if portion is not None and gpu.cuda_bytes and any(p.unit == shot.subject.unit for p in gpu.processes)
    }


def _portion(launch: Launch) -> float | None:
    """None where the launch does not say it: the release's default is not what was measured here."""
    told = launch.flags.get("gpu-memory-utilization")
    if "kv-cache-memory-bytes" in launch.flags or not isinstance(told, str):
        return None
    try:
        value = float(told)
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


def _driver(driver: Driver) -> Iterator[GaugeRow]:
    if driver.module and driver.library:
        differs = float(driver.module != driver.library)
        yield GaugeRow("vllm_driver_library_mismatch", "The loaded driver and its library differ.", {}, differs)
    if driver.module and driver.fabric_manager:
        differs = float(driver.module != driver.fabric_manager)
        yield GaugeRow("vllm_fabric_manager_mismatch", "The fabric manager's version is not the driver's.", {}, differs)


def _xids(snapshots: Sequence[Snapshot]) -> Iterator[GaugeRow]:
    from vllm_doctor.log.clock import epoch
    from vllm_doctor.rules.gates.xid import xids

    kernel = next((s.kernel.value for s in snapshots if isinstance(s.kernel, Known)), None)
    counted = Counter((one.bus, str(one.code)) for one in xids(kernel)) if kernel is not None else Counter()
    for (bus, code), count in counted.items():
        yield GaugeRow("vllm_gpu_xid_events_total", "Xid lines of this boot.", {"pci": bus, "xid": code}, float(count))
    # A time and not a growing count: it needs no earlier sample, and a reboot or a gap in the samples changes nothing.
    last: dict[tuple[str, str], float] = {}
    for one in xids(kernel) if kernel is not None else ():
        moment = epoch(one.event.at)
        if moment is not None:
            last[one.bus, str(one.code)] = max(moment, last.get((one.bus, str(one.code)), 0.0))
    for (bus, code), moment in last.items():
        labels = {"pci": bus, "xid": code}
        yield GaugeRow("vllm_gpu_xid_last_timestamp_seconds", "When the newest Xid line was logged.", labels, moment)


def _unit(shot: Snapshot, unit: str, now: float) -> Iterator[GaugeRow]:
    if isinstance(shot.unit, Known):
        found, who = shot.unit.value, {"unit": unit}
        yield GaugeRow("vllm_doctor_unit_drained", "Taken out of service on purpose.", who, float(found.drained))
        failed = float(found.active_state == "failed")
        yield GaugeRow("vllm_doctor_unit_failed", "It ended, and systemd does not restart it.", who, failed)
        if found.restarts is not None:
            yield GaugeRow("vllm_unit_restarts_total", "Restarts by systemd itself.", who, float(found.restarts))
    yield from _guard(unit, now)
    if isinstance(shot.launch, Known):
        path = shot.launch.value.flags.get("ssl-certfile")
        end = _expiry(path) if isinstance(path, str) and Path(path).is_absolute() else None
        if end is not None:
            labels = {"unit": unit, "path": str(path)}
            yield GaugeRow("vllm_certificate_expiry_timestamp_seconds", "When the certificate ends.", labels, end)


def _guard(unit: str, now: float) -> Iterator[GaugeRow]:
    from vllm_doctor.operate.guard.policy import PolicyProblem, load
    from vllm_doctor.operate.history import deeds

    try:
        policy = load()
    except PolicyProblem:
        return
    if not policy.act or unit not in policy.units:
        return
    done = [event.at for event in deeds.events(unit, now - _DAY) if event.kind == deeds.RESTARTED]
    yield GaugeRow("vllm_guard_restarts_today", "The guard's restarts within a day.", {"unit": unit}, float(len(done)))
    if done:
        when = "When the guard last restarted it."
        yield GaugeRow("vllm_guard_last_restart_timestamp_seconds", when, {"unit": unit}, max(done))
    left = float(max(0, policy.restarts_a_day - len(done)))
    yield GaugeRow("vllm_guard_restarts_left", "Restarts that the guard may still do today.", {"unit": unit}, left)


def _expiry(path: str) -> float | None:
    """When the first certificate of a file ends, seconds since the epoch."""
    from vllm_doctor.gather.processes import NotRun, run

    ran = run(["openssl", "x509", "-noout", "-enddate", "-in", path], deadline_s=_OPENSSL_S)
    if isinstance(ran, NotRun) or ran.code != 0:
        return None
    try:
        return float(ssl.cert_time_to_seconds(ran.out.decode(errors="replace").strip().removeprefix("notAfter=")))
    except ValueError:
        return None
