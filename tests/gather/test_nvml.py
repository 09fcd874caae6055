"""NVML through the real binding and a simulated library: what a driver says, refuses, and how it dies."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gather.conftest import Nvml
from tests.nvml_sim.build import build
from vllm_doctor.gather import nvml, nvml_said, procfs
from vllm_doctor.gather.nvml_said import parse_said
from vllm_doctor.records.host import Gpu, GpuProcess
from vllm_doctor.records.reading import Absent, Known, Unknown

Make = Callable[[str], Nvml]


def test_a_healthy_host(nvml_machine: Make) -> None:
    nvml_machine("h100x2")
    gpus, driver = nvml.read(60)
    assert isinstance(gpus, Known)
    assert isinstance(driver, Known)
    first = gpus.value[0]
    assert len(gpus.value) == 2
    assert first.name == "NVIDIA H100 80GB HBM3"
    assert (first.total_bytes, first.free_bytes, first.reserved_bytes) == (85520809984, 84900000000, 560000000)
    assert first.compute_capability == "9.0"
    assert first.recovery_action == "none"
    assert (first.remap_pending, first.remap_failed, first.ecc_uncorrected) == (False, False, 0)
    assert first.throttle_reasons == ("idle",)
    assert first.error is None
    assert driver.value.cuda == "13.0"
    assert driver.value.module == "580.105.08"


def test_no_driver_and_no_device_is_not_applicable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvml, "_PCI", tmp_path)
    monkeypatch.setattr(nvml, "_MODULE", tmp_path / "none")
    monkeypatch.setattr(nvml, "_LIBRARIES", ())
    gpus, driver = nvml.read(60)
    assert isinstance(gpus, Absent)
    assert isinstance(driver, Absent)


def test_a_device_without_a_library_is_unknown_and_never_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = tmp_path / "0000:18:00.0"
    card.mkdir()
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x030200\n")
    monkeypatch.setattr(nvml, "_PCI", tmp_path)
    gpus, _ = nvml.read(60)
    assert gpus == Unknown(
        "NVML: libnvidia-ml.so.1 is not installed", "install the driver's libraries (role nvidia_driver)"
    )


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (9, "not loaded"),
        (18, "version mismatch"),
        (4, "no permission"),
        (17, "cgroup"),
        (999, "unknown error"),
        (77, "error 77"),
    ],
)
def test_each_refusal_of_the_driver_is_said(nvml_machine: Make, code: int, word: str) -> None:
    nvml_machine("h100x2").say(f"rc.nvmlInitWithFlags = {code}")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Unknown)
    assert word in gpus.reason
    assert gpus.remedy


def test_one_lost_card_does_not_hide_the_others(nvml_machine: Make) -> None:
    nvml_machine("h100x2").say("rc.nvmlDeviceGetHandleByIndex_v2.1 = 15")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert gpus.value[0].error is None
    assert gpus.value[1].name == "?"
    assert "lost" in (gpus.value[1].error or "")


def test_unified_memory_is_told_and_not_counted_as_an_error(nvml_machine: Make) -> None:
    nvml_machine("gb10")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    (spark,) = gpus.value
    assert spark.unified_memory is True
    assert spark.total_bytes is None
    assert spark.error is None


def test_mig_slices_are_cards_of_their_own(nvml_machine: Make) -> None:
    nvml_machine("a100-mig")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    parent, part = gpus.value
    assert (parent.mig_mode, parent.mig_parent) == (True, None)
    assert (part.mig_parent, part.total_bytes) == (0, 42000000000)
    assert (part.uuid or "").startswith("MIG-")


def test_processes_of_all_three_lists_once_each_and_unknown_memory_stays_unknown(nvml_machine: Make) -> None:
    nvml_machine("h100x2").say(
        "gpu.0.process.0 = compute 4242424 1073741824",
        "gpu.0.process.1 = graphics 4242424 1073741824",
        "gpu.0.process.2 = mps 4242425 -",
    )
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert [(p.pid, p.used_bytes) for p in gpus.value[0].processes] == [(4242424, 1073741824), (4242425, None)]


def test_an_old_driver_has_memory_of_the_first_version(
    tmp_path: Path, nvml_machine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml_machine("h100x2")
    absent = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons")
    old = build(tmp_path / "old", absent).parent
    (tmp_path / "nvml" / "nvml-sim").rename(old / "nvml-sim")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(old))
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert gpus.value[0].total_bytes == 85520809984
    assert gpus.value[0].reserved_bytes is None
    assert gpus.value[0].throttle_reasons == ("idle",)


@pytest.mark.parametrize("where", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2.1", "nvmlDeviceGetUUID"])
def test_a_driver_that_hangs_is_left_behind_in_time(nvml_machine: Make, where: str) -> None:
    nvml_machine("h100x2").say(f"hang.{where} = 1")
    gpus, _ = nvml.read(deadline_s=1.0)
    assert isinstance(gpus, Unknown)
    assert "not answering" in gpus.reason
    assert "reboot" in gpus.remedy


@pytest.mark.parametrize("where", ["nvmlInitWithFlags", "nvmlDeviceGetTotalEccErrors.1"])
def test_a_library_that_crashes_takes_only_the_child(nvml_machine: Make, where: str) -> None:
    nvml_machine("h100x2").say(f"crash.{where} = 1")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Unknown)
    assert "crashed" in gpus.reason


def test_every_number_of_the_recovery_action_has_a_word(nvml_machine: Make) -> None:
    nvml_machine("h100x2").say("gpu.0.field.230 = 4", "gpu.1.field.230 = 99")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert [g.recovery_action for g in gpus.value] == ["drain-and-reset", "unknown (99)"]


def test_links_that_are_down_and_throttling(nvml_machine: Make) -> None:
    nvml_machine("h100x2").say("gpu.0.nvlink = 1 0 1 0", "gpu.0.clocks_event_reasons = 0x68", "gpu.0.pcie.width = 8")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert gpus.value[0].nvlink_down == (1, 3)
    assert gpus.value[0].throttle_reasons == ("hw-slowdown", "sw-thermal", "hw-thermal")
    assert (gpus.value[0].pcie_width, gpus.value[0].pcie_width_max) == (8, 16)


def test_errors_of_nvlinks_are_those_that_the_driver_counts(nvml_machine: Make) -> None:
    nvml_machine("h100x2").say("gpu.0.field.38 = 7", "gpu.0.field.52 = 2", "gpu.1.nvlink = 0 0", "gpu.1.field.52 = 9")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert [gpu.nvlink_errors for gpu in gpus.value] == [{"crc-flit": 7, "replay": 2}, {}]
    assert [gpu.error for gpu in gpus.value] == [None, None]


@pytest.mark.parametrize(
    ("said", "down"),
    [
        (("gpu.0.nvlink = 0 0 0 0", "gpu.1.nvlink = 0 0 0 0"), [(), ()]),  # no bridge: nothing is connected
        (("gpu.0.nvlink = 0 0 0 0", "gpu.1.nvlink = 1 1 0 0"), [(0, 1), (2, 3)]),  # its sibling's links are up
        (("gpu.0.nvlink = 1 0 1 1", "gpu.0.mig_mode = 1 1"), [(), ()]),  # MIG turns NVLink off
    ],
)
def test_a_link_that_nothing_is_connected_to_is_not_down(
    nvml_machine: Make, said: tuple[str, ...], down: list[tuple[int, ...]]
) -> None:
    nvml_machine("h100x2").say(*said)
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert [gpu.nvlink_down for gpu in gpus.value if gpu.mig_parent is None] == down


def test_a_minor_release_of_cuda_is_read_from_the_driver_s_number() -> None:
    assert [nvml._cuda(number) for number in (13000, 12080, 11040, 0, None)] == ["13.0", "12.8", "11.4", None, None]


def test_each_figure_of_a_card_is_in_its_own_place(nvml_machine: Make) -> None:
    """Every call answered with a figure of its own, so that none can be taken for another."""
    nvml_machine("h100x2").say(
        "gpu.0.capability = 8.6", "gpu.0.ecc.volatile.uncorrected = 3", "gpu.0.ecc.aggregate.uncorrected = 99",
        "gpu.0.remap = 5 6 1 0", "gpu.1.remap = 5 6 0 1", "gpu.0.compute_mode = 3", "gpu.1.compute_mode = 2",
        "gpu.1.persistence = 0", "gpu.0.pcie.width = 4", "gpu.0.pcie.width_max = 8", "gpu.0.temperature = 71",
        "gpu.0.field.38 = 1", "gpu.0.field.45 = 2", "gpu.0.field.52 = 3", "gpu.0.field.59 = 4", "gpu.0.field.160 = 5",
        "gpu.0.field.230 = 2", "gpu.0.clocks_event_reasons = 0x4",
        "gpu.0.process.0 = mps 4242425 7", "gpu.0.process.1 = graphics 4242424 5",
        "gpu.0.process.2 = compute 4242423 3",
    )  # fmt: skip
    gpus, driver = nvml.read(60)
    assert isinstance(gpus, Known)
    assert isinstance(driver, Known)
    assert gpus.value[0] == Gpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        uuid="GPU-11111111-2222-3333-4444-000000000000",
        total_bytes=85520809984,
        free_bytes=84900000000,
        reserved_bytes=560000000,
        compute_capability="8.6",
        processes=(GpuProcess(4242423, 3), GpuProcess(4242424, 5), GpuProcess(4242425, 7)),
        ecc_uncorrected=3,
        remap_pending=True,
        remap_failed=False,
        recovery_action="reboot",
        throttle_reasons=("sw-power-cap",),
        mig_mode=False,
        compute_mode="exclusive-process",
        persistence=True,
        pcie_width=4,
        pcie_width_max=8,
        nvlink_errors={"crc-flit": 1, "crc-data": 2, "replay": 3, "recovery": 4, "ecc-data": 5},
        temperature_c=71,
        pci="00000000:18:00.0",
        unified_memory=False,
    )
    second = gpus.value[1]
    assert (second.index, second.uuid, second.pci) == (
        1,
        "GPU-11111111-2222-3333-4444-000000000001",
        "00000000:2A:00.0",
    )
    assert (second.remap_pending, second.remap_failed) == (False, True)
    assert (second.compute_mode, second.persistence) == ("prohibited", False)
    assert (driver.value.module, driver.value.cuda) == ("580.105.08", "13.0")


def test_a_link_beyond_the_last_one_is_not_asked_for(nvml_machine: Make) -> None:
    """NVLink 5 has 18 of them, the most that NVML counts (NVML_NVLINK_MAX_LINKS)."""
    nvml_machine("h100x2").say(f"gpu.0.nvlink = {'0 ' * 17}1 0 0")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert gpus.value[0].nvlink_down == tuple(range(17))


@pytest.mark.parametrize(("refused", "total"), [(25, 85520809984), (13, 85520809984), (3, None), (4, None), (2, None)])
def test_memory_of_the_first_version_is_asked_where_the_second_is_unknown(
    nvml_machine: Make, refused: int, total: int | None
) -> None:
    nvml_machine("h100x2").say(f"rc.nvmlDeviceGetMemoryInfo_v2.0 = {refused}")
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert gpus.value[0].total_bytes == total
    assert gpus.value[0].reserved_bytes is None
    assert gpus.value[0].unified_memory is (refused == 3)
    assert (gpus.value[0].error is None) is (refused != 2)


def test_a_slice_s_own_memory_and_processes_are_told_and_the_card_s_too(nvml_machine: Make) -> None:
    nvml_machine("a100-mig").say("gpu.0.mig.1.name = another", "gpu.0.mig.1.uuid = MIG-d", "gpu.0.mig.1.total = 7",
                                 "gpu.0.mig.1.free = 5")  # fmt: skip
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert [(g.index, g.mig_parent, g.total_bytes, g.free_bytes) for g in gpus.value] == [
        (0, None, 85899345920, 85000000000),
        (0, 0, 42000000000, 41000000000),
        (0, 0, 7, 5),
    ]
    assert [g.name for g in gpus.value[1:]] == ["NVIDIA A100-SXM4-80GB MIG 3g.40gb", "another"]


def test_a_card_in_another_mode_than_mig_has_no_slices(nvml_machine: Make) -> None:
    nvml_machine("a100-mig").say("gpu.0.mig_mode = 0 1")  # MIG begins with the next reset
    gpus, _ = nvml.read(60)
    assert isinstance(gpus, Known)
    assert [(g.mig_mode, g.mig_parent) for g in gpus.value] == [(False, None)]


def _card(**values: object) -> Gpu:
    """A card of which the child said this alone."""
    rows = [{"kind": "gpu", "index": 0, "values": {"name": "X", **values}, "errors": {}}, {"kind": "end"}]
    (gpu,) = parse_said(b"\n".join(json.dumps(row).encode() for row in rows)).gpus
    return gpu


def test_each_number_of_nvml_has_its_word() -> None:
    """nvml.h: nvmlDeviceGpuRecoveryAction_t, nvmlComputeMode_t, nvmlClocksEventReason*."""
    assert [_card(recovery=number).recovery_action for number in range(9)] == [
        "none", "reset", "reboot", "drain-p2p", "drain-and-reset", "recover-imex-domain", "bus-reset", "system-reboot",
        "unknown (8)",
    ]  # fmt: skip
    assert [_card(compute_mode=number).compute_mode for number in range(5)] == [
        "default", "exclusive-thread", "prohibited", "exclusive-process", None,
    ]  # fmt: skip
    assert [_card(clocks=1 << bit).throttle_reasons for bit in range(12)] == [
        ("idle",), ("applications-clocks",), ("sw-power-cap",), ("hw-slowdown",), ("sync-boost",), ("sw-thermal",),
        ("hw-thermal",), ("hw-power-brake",), ("display",), ("board-limit",), ("reliability",), (),
    ]  # fmt: skip


def test_a_row_that_was_torn_off_or_is_of_another_kind_tells_nothing() -> None:
    told = parse_said(b'{"kind": "gpu", "values": {"name": "X"}}\n{"kind": "odd", "index": 9}\n{"kind": "gpu", "ind')
    assert [(gpu.index, gpu.name) for gpu in told.gpus] == [(0, "X")]
    assert (told.ended, told.asked_system) == (False, False)


def test_a_process_of_this_host_is_named_and_one_of_another_namespace_is_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(procfs, "stat", lambda pid: ("VLLM::Worker", "S", 7) if pid == 42 else None)
    monkeypatch.setattr(procfs, "unit_of", lambda _: "vllm.service")
    monkeypatch.setattr(procfs, "user_of", lambda _: "vllm")
    assert nvml_said._process(42, 9) == GpuProcess(42, 9, name="VLLM::Worker", unit="vllm.service", user="vllm")
    assert nvml_said._process(43, None) == GpuProcess(43, None)
