"""Package names of the platforms that cannot be run here, and that no fact has two owners in the roles."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from vllm_doctor.knowledge.compat import table

ROLE = Path(__file__).resolve().parents[2] / "roles" / "nvidia_driver"


def load(name: str) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((ROLE / name).read_text(encoding="utf-8"))
    return loaded


def test_the_default_driver_is_the_table_s() -> None:
    assert load("defaults/main.yml")["nvidia_driver_version"] == table().default_driver


def test_the_renaming_branch_is_the_table_s() -> None:
    assert load("vars/main.yml")["nvidia_driver_first_unsuffixed_branch"] == table().first_unsuffixed_branch


@pytest.mark.parametrize("name", ["Debian.yml", "Ubuntu.yml", "RedHat.yml"])
def test_every_platform_names_both_owners_scopes_and_flavours(name: str) -> None:
    packages = load(f"vars/{name}")["nvidia_driver_packages"]
    assert isinstance(packages, dict)
    for owner in ("nvidia", "distribution"):
        for scope in ("compute", "full"):
            assert set(packages[owner][scope]) == {"open", "proprietary"}


@pytest.mark.parametrize(
    ("version", "flavour", "names"),
    [
        (
            "580.105.08",
            "open",
            ["libnvidia-compute-580", "nvidia-utils-580", "nvidia-compute-utils-580", "nvidia-dkms-580-open"],
        ),
        ("595.71.05", "open", ["libnvidia-compute", "nvidia-utils", "nvidia-compute-utils", "nvidia-dkms-open"]),
        (
            "580.105.08",
            "proprietary",
            ["libnvidia-compute-580", "nvidia-utils-580", "nvidia-compute-utils-580", "nvidia-dkms-580"],
        ),
    ],
)
def test_ubuntu_names_of_both_eras(version: str, flavour: str, names: list[str]) -> None:
    from jinja2 import Environment

    branch = version.split(".", maxsplit=1)[0]
    suffix = f"-{branch}" if int(branch) < table().first_unsuffixed_branch else ""
    packages = load("vars/Ubuntu.yml")["nvidia_driver_packages"]
    assert isinstance(packages, dict)
    render = Environment(autoescape=False).from_string  # noqa: S701 - package names, not HTML
    found = [render(text).render(nvidia_driver_suffix=suffix) for text in packages["nvidia"]["compute"][flavour]]
    assert found == names


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("nvidia-open-580", True),
        ("libnvidia-ml1", True),
        ("nvlsm", True),
        ("kmod-nvidia-open-dkms", True),
        ("nvidia-fabricmanager", True),
        ("nvidia-driver-pinning-595", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("cuda-toolkit-13-0", False),
        ("linux-headers-amd64", False),
    ],
)
def test_what_the_lock_covers(name: str, ours: bool) -> None:
    stack = str(load("vars/main.yml")["nvidia_driver_stack"]).strip()
    assert bool(re.match(stack, name)) is ours


def test_the_stub_repository_is_python_that_compiles() -> None:
    folder = Path(__file__).resolve().parents[1] / "stub_gpu"
    for script in sorted(folder.glob("*.py")):
        subprocess.run([sys.executable, "-m", "py_compile", script], check=True)
