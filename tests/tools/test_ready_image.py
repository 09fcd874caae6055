"""Package lists are read once an hour, and into one image that all hosts are made of."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ready_image
from podman import HostError

MINUTE = 60


class Podman:
    """Answers as if an image of this age were there, or none; `run` may fail."""

    def __init__(self, age: float | None, *, runs: bool = True) -> None:
        self.age, self.runs, self.calls = age, runs, list[tuple[str, ...]]()
        self.parent = "0ld"  # of an image with packages

    def __call__(self, *words: str, **_: bool) -> subprocess.CompletedProcess[str]:
        self.calls.append(words)
        if words[:2] == ("image", "inspect"):
            found = self.age is not None
            told = f"0ld {int(time.time() - self.age)}\n" if self.age is not None else ""
            if words[3] == "{{.Id}} {{.Parent}}":
                told = f"0ther {self.parent}\n"
            elif words[3] == "{{.Id}}":
                told = "0ld\n"
            return subprocess.CompletedProcess(words, 0 if found else 1, stdout=told, stderr="")
        if words[0] == "run" and not self.runs:
            raise HostError("podman run failed: apt-get could not reach the archive")
        return subprocess.CompletedProcess(words, 0, stdout="", stderr="")

    def did(self) -> list[str]:
        return [words[0] for words in self.calls]


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Podman]:
    def answers(age: float | None, *, runs: bool = True) -> Podman:
        made = Podman(age, runs=runs)
        monkeypatch.setattr(ready_image, "podman", made)
        return made

    monkeypatch.setattr(ready_image, "ensure_image", lambda release: f"localhost/below:{release}")
    monkeypatch.setattr("podman.CACHE", tmp_path)
    return answers


def test_lists_of_this_hour_are_taken_as_they_are(podman: Callable[..., Podman]) -> None:
    asked = podman(59 * MINUTE)
    assert ready_image.ensure_ready_image("12") == ready_image.ready_name("12")
    assert asked.did() == ["image"]


def test_older_lists_are_read_anew_and_their_image_goes(podman: Callable[..., Podman]) -> None:
    asked = podman(61 * MINUTE)
    ready_image.ensure_ready_image("12")
    assert asked.did() == ["image", "rm", "run", "commit", "rm", "rmi"]
    assert asked.calls[-1] == ("rmi", "0ld")


def test_an_archive_that_does_not_answer_leaves_nothing_half_made(podman: Callable[..., Podman]) -> None:
    asked = podman(None, runs=False)
    with pytest.raises(HostError):
        ready_image.ensure_ready_image("12")
    assert asked.did() == ["image", "rm", "run", "rm"]
    assert "--error-on=any" in ready_image.SCRIPT, "apt-get update calls a list that it could not fetch no error"


def test_another_ca_is_another_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ready_image, "EXTRA_CAS", tmp_path)
    before = ready_image.ready_name("12")
    (tmp_path / "ours.crt").write_text("a certificate")
    assert ready_image.ready_name("12") != before


def test_packages_are_installed_once_for_each_ready_image(podman: Callable[..., Podman]) -> None:
    asked = podman(59 * MINUTE)
    image = ready_image.ensure_installed_image("12", ["gcc", "g++"])
    assert image == ready_image.installed_name("12", ["g++", "gcc"]) != ready_image.ready_name("12")
    assert "run" not in asked.did()
    asked.parent = "0lder"
    assert ready_image.ensure_installed_image("12", ["gcc", "g++"]) == image
    (ran,) = [words for words in asked.calls if words[0] == "run"]
    assert ran[-2:] == ("g++", "gcc")
    assert ready_image.ready_name("12") in ran
    assert asked.calls[-1] == ("rmi", "0ther")


def test_without_packages_it_is_the_ready_image(podman: Callable[..., Podman]) -> None:
    podman(59 * MINUTE)
    assert ready_image.ensure_installed_image("12", []) == ready_image.ready_name("12")
