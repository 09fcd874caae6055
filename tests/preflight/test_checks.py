"""Each check fires on the case it exists for, and stays silent beside it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from vllm_doctor.knowledge.compat import table
from vllm_doctor.preflight import capacity, driver, release
from vllm_doctor.preflight.checks import CHECKS, judge
from vllm_doctor.preflight.judged import (
    Checked,
    Disk,
    Headers,
    HostFacts,
    HostToJudge,
    Installed,
    Intent,
    Repository,
    Result,
)
from vllm_doctor.preflight.locks import Lock

H100, H200, T4, V100, P40, L40S, RTX5090, B200 = "2330", "2335", "1eb8", "1db5", "1b38", "26b9", "2b85", "2901"
SWITCH = "22a3"
NVIDIA_SOURCE = Repository(
    "nvidia", "/etc/apt/sources.list.d/nvidia.sources", "https://developer.download.nvidia.com/x"
)

INTENT = Intent(
    driver=True,
    driver_version="580.105.08",
    vllm_version="0.33.0",
    python="3.12",
    model_gib=60.0,
    ports=(8000,),
    memory_gib=32,
)
HOST = HostFacts(
    gpus=(H100, H100),
    kernel="6.1.0-40-amd64",
    default_kernel="6.1.0-41-amd64",
    headers=(("6.1.0-40-amd64", Headers.INSTALLED), ("6.1.0-41-amd64", Headers.AVAILABLE)),
    secure_boot=False,
    repositories=(NVIDIA_SOURCE,),
    glibc="2.36",
    python="3.11.2",
    disk=(Disk("/opt", 100.0, "a"), Disk("/var/lib", 200.0, "b")),
    memory_gib=256.0,
    listening=((22, "sshd"),),
)

Judge = Callable[..., Checked]


def locks(version: str, *variants: str, machine: str = "x86_64") -> tuple[Lock, ...]:
    return tuple(Lock(version, variant, machine, "2.31", ("3.11", "3.12", "3.13")) for variant in variants)


@pytest.fixture
def row() -> Judge:
    def of(
        check: Callable[[HostToJudge], Checked],
        intent: Intent = INTENT,
        today: date = date(2026, 11, 21),
        **host: object,
    ) -> Checked:
        return check(HostToJudge(intent, replace(HOST, **host), table(), today))  # type: ignore[arg-type]

    return of


def test_a_sound_host_has_no_complaint() -> None:
    rows = judge(HostToJudge(INTENT, HOST, table(), date(2026, 11, 21)))
    assert len(rows) == len(CHECKS)
    assert {r.verdict for r in rows} <= {Result.OK, Result.NOT_APPLICABLE}


def test_nothing_read_is_never_ok_and_never_a_fault() -> None:
    rows = judge(HostToJudge(INTENT, HostFacts(), table(), date(2026, 11, 21)))
    of_words = {"driver version", "vLLM release", "driver branch alive", "wheel's CUDA x driver", "glibc and Python"}
    facts = [r for r in rows if r.check not in of_words]
    assert {r.verdict for r in facts} <= {Result.UNKNOWN, Result.NOT_APPLICABLE}


def test_the_cpu_build_needs_no_gpu_fact() -> None:
    intent = replace(INTENT, driver=False, variant="cpu", vllm_version="0.32.0", ports=())
    rows = judge(HostToJudge(intent, replace(HOST, gpus=()), table(), date(2026, 11, 21)))
    assert not [r for r in rows if r.verdict in {Result.FAIL, Result.WARN, Result.UNKNOWN}]


class TestGpuPresent:
    def test_none_on_the_bus(self, row: Judge) -> None:
        assert row(driver.gpu_present, gpus=()).verdict is Result.FAIL

    def test_a_device_of_no_known_chip(self, row: Judge) -> None:
        found = row(driver.gpu_present, gpus=("ffff",))
        assert found.verdict is Result.FAIL
        assert "10de:ffff" in found.found

    def test_one_fell_off(self, row: Judge) -> None:
        assert row(driver.gpu_present, replace(INTENT, gpu_count=8)).verdict is Result.FAIL

    def test_unreadable_bus(self, row: Judge) -> None:
        assert row(driver.gpu_present, gpus=None).verdict is Result.UNKNOWN

    def test_present(self, row: Judge) -> None:
        found = row(driver.gpu_present, replace(INTENT, gpu_count=2))
        assert (found.verdict, found.found) == (Result.OK, "2 x NVIDIA H100 80GB HBM3")


class TestBranchSupportsGpus:
    @pytest.mark.parametrize(
        ("gpus", "version", "verdict"),
        [
            ((V100,), "595.71.05", Result.FAIL),
            ((P40,), "590.48.01", Result.FAIL),
            ((V100,), "580.105.08", Result.OK),
            ((B200,), "550.163.01", Result.FAIL),
            ((RTX5090,), "570.124.06", Result.OK),
            ((H100,), "595.71.05", Result.OK),
        ],
    )
    def test_branch(self, row: Judge, gpus: tuple[str, ...], version: str, verdict: Result) -> None:
        assert row(driver.branch_supports_gpus, replace(INTENT, driver_version=version), gpus=gpus).verdict is verdict


class TestBranchAlive:
    @pytest.mark.parametrize(
        ("version", "policy", "verdict"),
        [
            ("535.261.03", "warn", Result.WARN),
            ("535.261.03", "fail", Result.FAIL),
            ("535.261.03", "ignore", Result.NOT_APPLICABLE),
            ("590.48.01", "fail", Result.FAIL),
            ("615.71.09", "fail", Result.UNKNOWN),
            ("580.105.08", "fail", Result.OK),
            ("582.10.01", "warn", Result.FAIL),
        ],
    )
    def test_policy(self, row: Judge, version: str, policy: str, verdict: Result) -> None:
        intent = replace(INTENT, driver_version=version, end_of_life=policy)
        assert row(driver.branch_alive, intent).verdict is verdict

    def test_the_same_branch_dies_on_its_day(self, row: Judge) -> None:
        intent = replace(INTENT, driver_version="595.71.05", end_of_life="fail")
        assert row(driver.branch_alive, intent, date(2027, 3, 31)).verdict is Result.OK
        assert row(driver.branch_alive, intent, date(2027, 4, 1)).verdict is Result.FAIL


class TestFlavourLegal:
    @pytest.mark.parametrize(
        ("gpus", "flavour", "verdict"),
        [
            ((B200,), "proprietary", Result.FAIL),
            ((V100,), "open", Result.FAIL),
            ((P40, RTX5090), "auto", Result.FAIL),  # nothing can be installed for both
            ((V100, H100), "auto", Result.OK),
            ((H100,), "proprietary", Result.OK),
            ((B200,), "auto", Result.OK),
        ],
    )
    def test_flavour(self, row: Judge, gpus: tuple[str, ...], flavour: str, verdict: Result) -> None:
        assert row(driver.flavour_legal, replace(INTENT, flavour=flavour), gpus=gpus).verdict is verdict

    @pytest.mark.parametrize(
        ("gpus", "chosen"),
        [((V100, H100), "proprietary"), ((H100,), "open"), ((T4, L40S), "open"), ((V100,), "proprietary")],
    )
    def test_auto_takes_open_where_every_card_may(self, row: Judge, gpus: tuple[str, ...], chosen: str) -> None:
        assert row(driver.flavour_legal, gpus=gpus).found == chosen


class TestSecureBoot:
    @pytest.mark.parametrize(
        ("on", "enrolled", "modules", "verdict"),
        [
            (True, False, "dkms", Result.FAIL),
            (True, True, "dkms", Result.OK),
            (True, False, "prebuilt", Result.OK),
            (False, None, "dkms", Result.OK),
            (None, None, "dkms", Result.UNKNOWN),
        ],
    )
    def test_path(self, row: Judge, on: bool | None, enrolled: bool | None, modules: str, verdict: Result) -> None:
        found = row(
            driver.secure_boot_possible, replace(INTENT, modules=modules), secure_boot=on, mok_enrolled=enrolled
        )
        assert found.verdict is verdict


class TestKernelHeaders:
    def test_the_default_boot_kernel_counts_too(self, row: Judge) -> None:
        states = (("6.1.0-40-amd64", Headers.INSTALLED), ("6.1.0-41-amd64", Headers.MISSING))
        found = row(driver.kernel_headers, headers=states)
        assert found.verdict is Result.FAIL
        assert "default-boot kernel 6.1.0-41-amd64" in found.found

    def test_running(self, row: Judge) -> None:
        states = (("6.1.0-40-amd64", Headers.MISSING), ("6.1.0-41-amd64", Headers.INSTALLED))
        assert "running kernel" in row(driver.kernel_headers, headers=states).found

    def test_empty_package_lists_are_unknown(self, row: Judge) -> None:
        states = (("6.1.0-40-amd64", Headers.UNKNOWN),)
        assert row(driver.kernel_headers, headers=states).verdict is Result.UNKNOWN

    def test_both_there(self, row: Judge) -> None:
        assert row(driver.kernel_headers).verdict is Result.OK


class TestOneRepository:
    OTHER = Repository("other", "/etc/apt/sources.list.d/ppa.list", "https://ppa.example/graphics-drivers")

    def test_a_third_party(self, row: Judge) -> None:
        found = row(driver.one_repository, repositories=(NVIDIA_SOURCE, self.OTHER))
        assert found.verdict is Result.FAIL
        assert "ppa.list" in found.action

    def test_defined_twice(self, row: Judge) -> None:
        twice = (NVIDIA_SOURCE, replace(NVIDIA_SOURCE, file="/etc/apt/sources.list.d/cuda-debian12-x86_64.list"))
        assert row(driver.one_repository, repositories=twice).verdict is Result.OK, (
            "adopted: the role writes no second one"
        )
        elsewhere = (NVIDIA_SOURCE, replace(twice[1], uri="https://mirror.example/nvidia.com/debian12"))
        assert row(driver.one_repository, repositories=elsewhere).verdict is Result.FAIL

    def test_distribution_wanted(self, row: Judge) -> None:
        assert row(driver.one_repository, replace(INTENT, repository="distribution")).verdict is Result.FAIL

    def test_packages_of_the_other_owner(self, row: Judge) -> None:
        debian = (Installed("libnvidia-ml1", "535.261.03-1", "distribution"),)
        found = row(driver.one_repository, packages=debian)
        assert found.verdict is Result.FAIL
        assert "nvidia_driver_repository: distribution" in found.action

    def test_one_owner(self, row: Judge) -> None:
        own = (
            Installed("libnvidia-ml1", "580.105.08-1", "nvidia"),
            Installed("nvidia-smi", "580.105.08-1", None),
        )
        assert row(driver.one_repository, packages=own).verdict is Result.OK


class TestWheelRunsOnDriver:
    @pytest.mark.parametrize(
        ("version", "driver_version", "variant", "verdict"),
        [
            ("0.33.0", "570.124.06", "auto", Result.FAIL),  # CUDA 13 on a driver of CUDA 12
            ("0.33.0", "580.105.08", "auto", Result.OK),
            ("0.19.1", "595.71.05", "auto", Result.OK),  # older runtime, newer driver
            ("0.27.1", "575.57.08", "cu129", Result.OK),
            ("0.33.0", "580.105.08", "cu129", Result.FAIL),  # this release has no such variant
            ("0.33.0", "580.105.08", "cu118", Result.FAIL),
            ("0.33.9", "580.105.08", "auto", Result.UNKNOWN),  # its CUDA is not known
            ("0.33.9", "580.105.08", "cu130", Result.OK),  # here it is
            ("0.27.1", "570.124.06", "cu129", Result.FAIL),  # H100: FlashAttention 2 comes as PTX
        ],
    )
    def test_on_an_h100(self, row: Judge, version: str, driver_version: str, variant: str, verdict: Result) -> None:
        intent = replace(INTENT, vllm_version=version, driver_version=driver_version, variant=variant)
        assert row(release.wheel_runs_on_driver, intent).verdict is verdict

    def test_minor_compatibility_is_a_warning_below_hopper(self, row: Judge) -> None:
        intent = replace(INTENT, vllm_version="0.27.1", driver_version="570.124.06", variant="cu129")
        assert row(release.wheel_runs_on_driver, intent, gpus=(L40S,)).verdict is Result.WARN

    def test_the_way_out_is_a_variant_where_one_exists(self, row: Judge) -> None:
        intent = replace(INTENT, vllm_version="0.27.1", driver_version="570.124.06")
        assert "vllm_variant: cu129" in row(release.wheel_runs_on_driver, intent).action
        later = replace(intent, vllm_version="0.33.0")
        assert "cu129" not in row(release.wheel_runs_on_driver, later).action

    @pytest.mark.parametrize(
        ("version", "driver_version", "locked", "chosen"),
        [
            ("0.32.0", "580.105.08", ("cpu", "cu130"), "cu130"),
            ("0.27.1", "580.105.08", ("cpu", "cu129", "cu130"), "cu130"),  # the newest that the driver runs by itself
            ("0.27.1", "575.57.08", ("cpu", "cu129", "cu130"), "cu129"),
            ("0.27.1", "595.71.05", ("cu129",), "cu129"),  # older runtime, newer driver
        ],
    )
    def test_auto_takes_the_newest_build_that_has_a_lock_and_fits(
        self, version: str, driver_version: str, locked: tuple[str, ...], chosen: str
    ) -> None:
        intent = replace(INTENT, vllm_version=version, driver_version=driver_version, locks=locks(version, *locked))
        assert release.choose_variant(HostToJudge(intent, HOST, table(), date(2026, 11, 21))) == chosen

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                {"locks": locks("0.32.0", "cpu")},
                ["there is 0.32.0+cpu-x86_64", "make the lock with tools/vllm_lock.py"],
            ),
            ({"driver_version": "570.124.06"}, ["cu130: vLLM 0.32.0 brings CUDA 13.0; driver 570.124.06", "580.65.06"]),
            (
                {"driver_version": "570.124.06", "locks": (*locks("0.19.1", "cu128"), *locks("0.32.0", "cu130"))},
                ["set vllm_version: 0.19.1 and vllm_variant: cu128, or set nvidia_driver_version: 580"],
            ),
            (
                {"vllm_version": "0.27.1", "driver_version": "570.124.06", "locks": locks("0.27.1", "cu130")},
                ["make the lock of 0.27.1+cu129"],
            ),
        ],
    )
    def test_auto_is_refused_with_the_sum_where_no_build_fits(
        self, row: Judge, change: dict[str, object], words: list[str]
    ) -> None:
        base = {"vllm_version": "0.32.0", "locks": locks("0.32.0", "cpu", "cu130")}
        intent = replace(INTENT, **{**base, **change})  # type: ignore[arg-type]
        found = row(release.wheel_runs_on_driver, intent)
        assert found.verdict is Result.FAIL
        assert all(word in f"{found.found} {found.needed} {found.action}" for word in words), found

    def test_auto_is_the_cpu_build_only_where_the_inventory_says_that_there_is_no_gpu(self) -> None:
        intent = replace(INTENT, driver=False, vllm_version="0.32.0", locks=locks("0.32.0", "cpu", "cu130"))
        case = HostToJudge(intent, replace(HOST, gpus=()), table(), date(2026, 11, 21))
        assert not isinstance(release.choose_variant(replace(case, intent=replace(intent, gpu_count=0))), Checked)
        # A card that fell off the bus is not a host without one.
        assert driver.gpu_present(case).verdict is Result.FAIL
        assert isinstance(release.choose_variant(case), Checked)

    def test_forward_compatibility_is_for_data_centre_cards(self, row: Judge) -> None:
        intent = replace(INTENT, driver_version="570.124.06", forward_compat=True)
        assert row(release.wheel_runs_on_driver, intent).verdict is Result.WARN
        assert row(release.wheel_runs_on_driver, intent, gpus=("2684",)).verdict is Result.FAIL

    def test_a_driver_that_the_role_does_not_own_is_judged_as_loaded(self, row: Judge) -> None:
        intent = replace(INTENT, driver=False)
        assert row(release.wheel_runs_on_driver, intent, loaded_driver="570.124.06").verdict is Result.FAIL
        assert row(release.wheel_runs_on_driver, intent, loaded_driver=None).verdict is Result.UNKNOWN


class TestComputeCapability:
    @pytest.mark.parametrize(
        ("gpus", "version", "verdict"),
        [
            ((V100,), "0.20.0", Result.FAIL),
            ((V100,), "0.19.1", Result.OK),
            ((P40,), "0.19.1", Result.FAIL),
            ((T4,), "0.33.0", Result.OK),
            ((RTX5090,), "0.8.5", Result.FAIL),  # its CUDA 12.4 knows no Blackwell
            ((RTX5090,), "0.10.2", Result.OK),
        ],
    )
    def test_floor(self, row: Judge, gpus: tuple[str, ...], version: str, verdict: Result) -> None:
        assert row(release.compute_capability, replace(INTENT, vllm_version=version), gpus=gpus).verdict is verdict

    def test_the_last_release_for_a_volta_is_named(self, row: Judge) -> None:
        assert "vllm_version: 0.19.1" in row(release.compute_capability, gpus=(V100,)).action


class TestLibcAndPython:
    @pytest.mark.parametrize(
        ("version", "glibc", "python", "verdict"),
        [
            ("0.20.2", "2.34", "3.12", Result.FAIL),  # EL9 and the one release with a 2.35 tag
            ("0.22.1", "2.34", "3.12", Result.OK),
            ("0.13.0", "2.28", "3.12", Result.FAIL),  # EL8
            ("0.32.0", "2.36", "3.10", Result.FAIL),  # Ubuntu 22.04's own Python
            ("0.31.0", "2.35", "3.10", Result.OK),
            ("0.33.0", "2.41", "3.15", Result.FAIL),
            ("0.33.0", "2.41", "3.14.1", Result.OK),
        ],
    )
    def test_floor(self, row: Judge, version: str, glibc: str, python: str, verdict: Result) -> None:
        intent = replace(INTENT, vllm_version=version, python=python)
        assert row(release.libc_and_python, intent, glibc=glibc).verdict is verdict

    def test_without_facts_the_platform_answers(self, row: Judge) -> None:
        intent = replace(INTENT, python=None)
        found = row(release.libc_and_python, intent, glibc=None, python=None, platform="ubuntu-22.04")
        assert found == Checked("glibc and Python", Result.OK, "glibc 2.35, Python 3.12, which is brought along")

    @pytest.mark.parametrize(
        ("change", "host", "words"),
        [
            (
                {"python": "3.14"},
                {},
                ["Python 3.14", "3.11 or 3.12 or 3.13 for 0.32.0+cu130-x86_64.lock", "vllm_python: auto"],
            ),
            ({"own_python": True}, {"python": "3.10.12"}, ["Python 3.10.12", "set vllm_python: auto; Python 3.12"]),
            ({"brought": "3.14"}, {"python": "3.9.21"}, ['set managed_python_version: "3.13"']),
            ({}, {"glibc": "2.28"}, ["glibc 2.28", "2.31 or newer for 0.32.0+cu130-x86_64.lock"]),
            (
                {"variant": "cu130"},
                {"machine": "aarch64"},
                ["a host of aarch64; 0.32.0+cu130 has a lock for x86_64", "set vllm_version: 0.31.0, or make the lock"],
            ),
        ],
    )
    def test_the_lock_says_what_it_installs_on(
        self, row: Judge, change: dict[str, object], host: dict[str, object], words: list[str]
    ) -> None:
        both = (*locks("0.31.0", "cu130", machine="aarch64"), *locks("0.32.0", "cpu", "cu130"))
        intent = replace(INTENT, vllm_version="0.32.0", **{"python": None, "locks": both, **change})  # type: ignore[arg-type]
        found = row(release.libc_and_python, intent, **host)
        assert found.verdict is Result.FAIL
        assert all(word in f"{found.found} {found.needed} {found.action}" for word in words), found

    def test_a_board_that_is_one_with_its_processor_is_refused_before_it_is_asked(self, row: Judge) -> None:
        intent = replace(INTENT, vllm_version="0.19.1", locks=locks("0.19.1", "cu128"))
        found = row(release.wheel_runs_on_driver, intent, gpus=("2342",))
        assert found.found == "vLLM 0.19.1 on aarch64: of its hash locks there is 0.19.1+cu128-x86_64"

    def test_the_own_python_goes_before_the_one_that_is_brought(self, row: Judge) -> None:
        intent = replace(INTENT, vllm_version="0.32.0", python=None, locks=locks("0.32.0", "cu130"))
        assert row(release.libc_and_python, intent).found == "glibc 2.36, Python 3.11.2"
        assert "3.12, which is brought along" in row(release.libc_and_python, intent, python="3.9.21").found


class TestFabricManager:
    @pytest.mark.parametrize(
        ("candidates", "verdict"),
        [
            (("580.105.08-1", "590.48.01-1"), Result.OK),
            (("590.48.01-1",), Result.FAIL),
            (("3:580.105.08-1.el9",), Result.OK),
            (("580.105.80-1",), Result.FAIL),
            ((), Result.FAIL),
            (None, Result.UNKNOWN),
        ],
    )
    def test_exact_version(self, row: Judge, candidates: tuple[str, ...] | None, verdict: Result) -> None:
        found = row(driver.fabric_manager, switches=(SWITCH,), fabric_candidates=candidates)
        assert found.verdict is verdict

    def test_without_switches_it_is_not_needed(self, row: Judge) -> None:
        assert row(driver.fabric_manager).verdict is Result.NOT_APPLICABLE

    def test_nvlink5_boards_need_it_without_a_switch_on_the_bus(self, row: Judge) -> None:
        assert row(driver.fabric_manager, gpus=(B200,), fabric_candidates=()).verdict is Result.FAIL

    def test_it_may_not_be_left_out_where_it_is_needed(self, row: Judge) -> None:
        intent = replace(INTENT, fabric_manager="absent")
        assert row(driver.fabric_manager, intent, switches=(SWITCH,)).verdict is Result.FAIL


class TestRoom:
    def test_disk_counts_the_rollback(self, row: Judge) -> None:
        assert (
            row(capacity.disk_space, disk=(Disk("/opt", 20.0, "a"), Disk("/var/lib", 200.0, "b"))).verdict
            is Result.FAIL
        )
        assert (
            row(capacity.disk_space, disk=(Disk("/opt", 40.0, "a"), Disk("/var/lib", 200.0, "b"))).verdict is Result.OK
        )

    def test_disk_counts_the_model(self, row: Judge) -> None:
        assert (
            row(capacity.disk_space, disk=(Disk("/opt", 40.0, "a"), Disk("/var/lib", 50.0, "b"))).verdict is Result.FAIL
        )

    def test_one_file_system_is_not_counted_twice(self, row: Judge) -> None:
        assert (
            row(capacity.disk_space, disk=(Disk("/opt", 80.0, "a"), Disk("/var/lib", 80.0, "a"))).verdict is Result.FAIL
        )
        assert (
            row(capacity.disk_space, disk=(Disk("/opt", 95.0, "a"), Disk("/var/lib", 95.0, "a"))).verdict is Result.OK
        )

    def test_memory(self, row: Judge) -> None:
        assert row(capacity.host_memory, memory_gib=16.0).verdict is Result.FAIL
        assert row(capacity.host_memory, memory_gib=None).verdict is Result.UNKNOWN

    def test_ports(self, row: Judge) -> None:
        assert row(capacity.ports_free, listening=((8000, "nginx"),)).verdict is Result.FAIL
        assert row(capacity.ports_free, listening=((8000, "vllm"),)).verdict is Result.OK
        assert row(capacity.ports_free, listening=None).verdict is Result.UNKNOWN
