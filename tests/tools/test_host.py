"""Containers have one name, whoever asks: tools/host.py, Molecule's inventory or the sandbox's."""

import argparse
import contextlib
import os
import subprocess
from pathlib import Path

import host
import host_image
import pytest

REPO = Path(__file__).resolve().parents[2]


def test_molecule_looks_for_the_host_that_was_started() -> None:
    done = subprocess.run(
        [str(REPO / "tools" / "hosttest"), "sh", "-c", "echo $TEST_HOSTS-default-host"],
        cwd=REPO / "roles" / "vllm",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == host.container_name("vllm-default", "host")


@pytest.mark.parametrize(("setting", "group"), [(None, "sandbox"), ("mine", "mine")])
def test_the_sandbox_inventory_finds_the_host_that_make_up_started(setting: str | None, group: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SANDBOX"}
    done = subprocess.run(
        [str(REPO / ".venv/bin/ansible"), "sandbox", "-c", "local", "-m", "debug", "-a", "var=ansible_host"],
        cwd=REPO,
        env={**environment, **({"SANDBOX": setting} if setting else {})},
        capture_output=True,
        text=True,
        check=True,
    )
    assert host.container_name(group, None) in done.stdout


def test_checkouts_do_not_meet() -> None:
    assert host.PREFIX.startswith("vd-")
    assert len(host.PREFIX) == len("vd-") + 8


def options(**changes: list[str]) -> argparse.Namespace:
    return argparse.Namespace(**{"release": "12", "has": [], "publish": [], "volume": [], **changes})


def test_ports_are_published_on_loopback_only() -> None:
    arguments = host.run_arguments("sandbox", None, options(publish=["8000:8000"]))
    assert "127.0.0.1:8000:8000" in arguments


def test_a_wheel_folder_is_seen_at_its_own_place_and_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} https://wheels.example/ /no/such/folder")
    arguments = host.run_arguments("sandbox", None, options())
    assert f"{tmp_path}:{tmp_path}:ro" in arguments
    assert f"PIP_FIND_LINKS={tmp_path}" in arguments
    assert not any("no/such" in word for word in arguments)


def test_an_ordinary_machine_gives_its_hosts_no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(host, "EXTRA_CAS", tmp_path)
    assert host.host_environment().keys() == {"UV_CACHE_DIR", "UV_LINK_MODE"}


def test_the_image_is_named_after_what_goes_into_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "packages.txt").write_text("systemd\n")
    monkeypatch.setattr(host_image, "SOURCES", tmp_path)
    before = host_image.image_name("12")
    assert host_image.image_name("12") == before
    assert host_image.image_name("13") != before
    (tmp_path / "packages.txt").write_text("systemd\ndbus\n")
    assert host_image.image_name("12") != before


def test_a_host_killed_behind_podmans_back_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def podman(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        calls.append(words[0])
        return subprocess.CompletedProcess(words, 0, stdout=f"digest true {2**22 + 1}\n", stderr="")

    monkeypatch.setattr(host, "podman", podman)
    assert not host.resumed("vd-host", "digest")
    assert calls == ["inspect", "rm"]


@pytest.mark.parametrize(
    ("failures", "removed"), [(0, True), (host.REMOVAL_TRIES - 1, True), (host.REMOVAL_TRIES, False)]
)
def test_a_host_that_is_slow_to_end_is_removed_in_a_later_try(
    monkeypatch: pytest.MonkeyPatch, failures: int, removed: bool
) -> None:
    left = [host.HostError("podman rm failed: given PID did not die within timeout")] * failures

    def podman(*words: str, check: bool = True) -> None:
        if left:
            raise left.pop()

    monkeypatch.setattr(host, "podman", podman)
    with contextlib.nullcontext() if removed else pytest.raises(host.HostError, match="did not die"):
        host.remove("rm", "--force", "vd-host")
