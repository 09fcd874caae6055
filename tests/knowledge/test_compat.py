"""The compatibility table: every fact that a deployment decision hangs on, and that there is one owner of it."""

import itertools
import json
from datetime import date
from pathlib import Path

import pytest

from vllm_doctor.knowledge import compat
from vllm_doctor.knowledge.compat import DriverFit, Fabric, Table, numbers
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import as_version

TABLE = compat.table()
TODAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("driver", "cuda", "fit"),
    [
        ("580.105.08", "13.0", DriverFit.NATIVE),
        ("580.105.08", "12.8", DriverFit.NATIVE),  # the "maximum" column of NVIDIA's table is not a ban
        ("595.71.05", "12.9", DriverFit.NATIVE),
        ("570.124.06", "13.0", DriverFit.FAIL),
        ("570.124.06", "12.8", DriverFit.NATIVE),
        ("550.144.03", "12.8", DriverFit.MINOR),
        ("525.60.13", "12.9", DriverFit.MINOR),
        ("525.60.11", "12.1", DriverFit.FAIL),
        ("580.65.05", "13.0", DriverFit.FAIL),
        ("580.65.06", "13.0", DriverFit.NATIVE),
        ("580.105.08", "13.2", DriverFit.MINOR),
        ("615.71.09", "13.0", DriverFit.MINOR),  # its own CUDA is not established: no promise about PTX
        ("615.71.09", "12.9", DriverFit.NATIVE),
        ("580.105.08", "14.0", DriverFit.UNKNOWN),
    ],
)
def test_driver_and_cuda(driver: str, cuda: str, fit: DriverFit) -> None:
    assert TABLE.fit(driver, cuda) is fit


@pytest.mark.parametrize(
    ("device", "architecture", "compute", "fabric"),
    [
        ("2330", "hopper", "9.0", Fabric.NONE),
        ("0x2335", "hopper", "9.0", Fabric.NONE),
        ("1DB5", "volta", "7.0", Fabric.NONE),
        ("1eb8", "turing", "7.5", Fabric.NONE),
        ("20b2", "ampere", "8.0", Fabric.NONE),
        ("2236", "ampere", "8.6", Fabric.NONE),
        ("26b9", "ada", "8.9", Fabric.NONE),
        ("2901", "blackwell", "10.0", Fabric.NVLINK5),
        ("2941", "blackwell", "10.0", Fabric.NVL72),
        ("3182", "blackwell", "10.3", Fabric.NVLINK5),
        ("2b85", "blackwell", "12.0", Fabric.NONE),
        ("2e12", "blackwell", "12.1", Fabric.NONE),
        ("15f8", "pascal", "6.1", Fabric.NONE),
        ("2339", "hopper", "9.0", Fabric.NONE),
    ],
)
def test_gpu_by_pci_id(device: str, architecture: str, compute: str, fabric: Fabric) -> None:
    gpu = TABLE.gpu(device)
    assert gpu is not None
    assert (gpu.architecture, gpu.compute, gpu.fabric) == (architecture, compute, fabric)


def test_an_id_of_no_known_chip_is_not_guessed() -> None:
    assert TABLE.gpu("ffff") is None


def test_an_unnamed_card_of_a_known_chip_still_has_its_architecture() -> None:
    gpu = TABLE.gpu("2302")
    assert gpu is not None
    assert gpu.name is None
    assert "10de:2302" in gpu.label


@pytest.mark.parametrize(
    ("branch", "over"),
    [("535", True), ("570", True), ("580.105.08", False), ("590", True), ("595", False), ("610", True), ("615", None)],
)
def test_end_of_life(branch: str, over: bool | None) -> None:
    found = TABLE.branch(branch)
    assert found is not None
    assert found.is_over(TODAY) is over


def test_the_default_driver_is_of_a_living_lts_branch() -> None:
    branch = TABLE.branch(TABLE.default_driver)
    assert branch is not None
    assert branch.kind == "lts"
    assert branch.is_over(TODAY) is False


@pytest.mark.parametrize(
    ("vllm", "cuda", "glibc", "floor"),
    [
        ("0.19.1", "12.8", "2.31", "7.0"),
        ("0.20.2", "13.0", "2.35", "7.5"),
        ("0.21.0", "13.0", "2.28", "7.5"),  # the wheel's own tag says 2.24, its torch needs 2.28
        ("0.22.1", "13.0", "2.28", "7.5"),
        ("0.33.0", "13.0", "2.28", "7.5"),
        ("0.32.0+cpu", "13.0", "2.28", "7.5"),
    ],
)
def test_wheel(vllm: str, cuda: str, glibc: str, floor: str) -> None:
    wheel = TABLE.wheel(vllm)
    assert wheel is not None
    assert (wheel.cuda, wheel.glibc, wheel.compute_floor) == (cuda, glibc, floor)


def test_a_release_that_was_never_published_is_not_known() -> None:
    assert TABLE.wheel("0.33.1") is None


@pytest.mark.parametrize(
    ("version", "exists"), [("0.19.1", False), ("0.20.0", True), ("0.27.1", True), ("0.28.0", False)]
)
def test_cu129_variant(version: str, exists: bool) -> None:
    variant = TABLE.variant("cu129")
    assert variant is not None
    assert variant.exists_for(version) is exists


@pytest.mark.parametrize(
    ("device", "driver", "allowed"),
    [
        ("2330", "535.261.03", True),
        ("2684", "535.261.03", False),
        ("2330", "525.60.13", False),
        ("2302", "570.1", False),
    ],
)
def test_forward_compatibility_is_for_data_centre_cards(device: str, driver: str, allowed: bool) -> None:
    gpu = TABLE.gpu(device)
    assert gpu is not None
    assert TABLE.forward_compatible(gpu, driver) is allowed


def test_nearest_name() -> None:
    assert compat.nearest_torch("NVIDIA H100 80GB HBM", TABLE.gpu_names()) == "NVIDIA H100 80GB HBM3"
    assert compat.nearest_torch("zzz", TABLE.gpu_names()) is None


class TestData:
    """The file itself is complete and consistent."""

    DATA = json.loads(compat.DATA.read_text(encoding="utf-8"))

    def test_every_torch_is_some_release_s(self) -> None:
        assert {wheel.torch for v in TABLE.wheels() if (wheel := TABLE.wheel(v))} == set(self.DATA["torch"])

    def test_releases_are_in_order(self) -> None:
        order = list(TABLE.wheels())
        assert order == sorted(order, key=lambda v: [int(p) for p in v.replace(".post", ".0.").split(".")])

    def test_blocks_do_not_overlap_and_name_known_chips(self) -> None:
        blocks = sorted((int(a, 16), int(z, 16), chip) for a, z, chip in self.DATA["pci_blocks"])
        assert all(left[1] < right[0] for left, right in itertools.pairwise(blocks))
        assert {chip for _, _, chip in blocks} == set(self.DATA["chips"])

    def test_every_named_gpu_lies_in_a_block(self) -> None:
        assert [device for device in self.DATA["gpus"] if TABLE.gpu(device) is None] == []

    def test_every_chip_has_a_known_architecture(self) -> None:
        assert {chip["architecture"] for chip in self.DATA["chips"].values()} == set(self.DATA["architectures"])

    def test_toolkits_fit_the_driver_they_were_released_with(self) -> None:
        for toolkit, driver in self.DATA["toolkits"].items():
            assert TABLE.fit(driver, toolkit) is DriverFit.NATIVE


class TestOneOwner:
    """Other files that carry the same facts must say the same."""

    def test_the_torch_of_every_release_from_0_6_on_is_in_the_table(self) -> None:
        packages = history("packages", "packages")
        listed = [v for v in packages.texts if as_version(v) >= as_version("0.6.0")]
        assert [v for v in listed if TABLE.wheel(v) is None] == []
        assert len(listed) > 60

    def test_the_cards_of_gpus_json_agree(self) -> None:
        path = Path(compat.DATA).with_name("gpus.json")
        if not path.exists():
            pytest.skip("no gpus.json yet")
        for line in _records(json.loads(path.read_text(encoding="utf-8"))):
            gpu = TABLE.gpu_named(line["name"])
            if gpu is not None and line.get("compute_capability"):
                assert numbers(str(line["compute_capability"])) == numbers(gpu.compute), line["name"]

    def test_no_role_carries_a_table_of_its_own(self) -> None:
        roles = Path(compat.DATA).parents[2] / "roles"
        for path in roles.glob("*/vars/*.yml"):
            assert "end_of_life" not in path.read_text(encoding="utf-8"), path


def _records(value: object) -> list[dict[str, object]]:
    if isinstance(value, dict):
        own = [value] if "name" in value else []
        return own + [row for child in value.values() for row in _records(child)]
    return [row for child in value for row in _records(child)] if isinstance(value, list) else []


def test_a_table_can_be_read_from_another_file(tmp_path: Path) -> None:
    copy = tmp_path / "compat.json"
    copy.write_text(compat.DATA.read_text(encoding="utf-8"), encoding="utf-8")
    assert Table(copy).checked == TABLE.checked
