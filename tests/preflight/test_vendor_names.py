"""Every package name that roles/nvidia_driver can ask for is in a listing of the vendor, or marked as not verified."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

REPO = Path(__file__).resolve().parents[2]
VARS = REPO / "roles" / "nvidia_driver" / "vars"
LISTED: dict[str, dict[str, list[dict[str, Any]]]] = yaml.safe_load(
    (REPO / "tests" / "stub_gpu" / "vendor_names.yml").read_text(encoding="utf-8")
)
RENDER = Environment(autoescape=False).from_string  # noqa: S701 - package names, not HTML


def wanted(platform: str, owner: str, number: str) -> set[str]:
    """All names that vars/ can produce for a branch."""
    loaded = yaml.safe_load((VARS / f"{platform}.yml").read_text(encoding="utf-8"))
    suffix = f"-{number}" if int(number) < 590 else ""
    words = {"nvidia_driver_number": number, "nvidia_driver_suffix": suffix}
    names = {
        RENDER(name).render(words)
        for scope in loaded["nvidia_driver_packages"][owner].values()
        for flavour in scope.values()
        for name in flavour
    }
    if owner == "nvidia":
        names |= {"nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex", "nvlsm"}
    if owner == "distribution" and platform == "Ubuntu":
        names |= {f"nvidia-fabricmanager-{number}", f"nvidia-imex-{number}"}
    if owner == "nvidia" and platform != "RedHat" and not suffix:
        names.add(f"nvidia-driver-pinning-{number}")
    return names


@pytest.mark.parametrize("number", ["580", "595"])
@pytest.mark.parametrize("platform", ["Debian", "Ubuntu", "RedHat"])
@pytest.mark.parametrize("owner", ["nvidia", "distribution"])
def test_every_name_is_in_a_listing_of_its_vendor(owner: str, platform: str, number: str) -> None:
    known = {name.replace("number", number) for entry in LISTED[owner][platform] for name in entry["names"]}
    assert wanted(platform, owner, number) - known == set()


def test_each_entry_says_when_and_where_it_was_read_or_that_it_was_not() -> None:
    for platforms in LISTED.values():
        for entries in platforms.values():
            for entry in entries:
                assert ("not verified" in entry) != ({"read", "where"} <= set(entry)), entry


def test_no_name_is_both_read_and_not_verified() -> None:
    for platforms in LISTED.values():
        for entries in platforms.values():
            read = {name for entry in entries if "read" in entry for name in entry["names"]}
            open_ = {name for entry in entries if "not verified" in entry for name in entry["names"]}
            assert read & open_ == set()
