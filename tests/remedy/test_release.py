"""Another release, as each medium brings it: a package, an image's tag, a line of the inventory."""

import msgspec
import pytest

from tests.remedy.test_medium import LAUNCH, SHORTER, launched
from vllm_doctor.records.container import Made
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.medium import Medium, corrected

NEWER = Change(
    ChangeKind.PACKAGE,
    "vllm-version",
    "0.32.0",
    "0.33.0",
    Direction.UPGRADE,
    Applicability.NEEDS_REVIEW,
    inventory_var="vllm_version",
)


@pytest.mark.parametrize(
    ("medium", "lines"),
    [
        (Medium.COMMAND, ["pip install vllm==0.33.0   # in the environment that starts it"]),
        (Medium.SLURM, ["pip install vllm==0.33.0   # in the environment that starts it"]),
        (Medium.PYTHON, ["pip install vllm==0.33.0   # in the environment that starts it"]),
        (Medium.DOCKER, ["vllm/vllm-openai:v0.33.0   # the image"]),
        (Medium.COMPOSE, ["image: vllm/vllm-openai:v0.33.0"]),
        (Medium.POD, ["image: vllm/vllm-openai:v0.33.0"]),
        (Medium.INVENTORY, ["vllm_version: 0.33.0"]),
        (Medium.UNIT, []),
    ],
)
@pytest.mark.parametrize("launch", [(), LAUNCH])
def test_a_release_is_a_line_in_every_medium(medium: Medium, lines: list[str], launch: tuple[str, ...]) -> None:
    assert corrected(launched(*launch, medium=medium.value), (NEWER, SHORTER), medium) == lines


@pytest.mark.parametrize("program", ["/opt/venv/bin/vllm", "/opt/venv/bin/python3"])
def test_the_environment_is_that_of_the_program(program: str) -> None:
    told = launched(program, *LAUNCH[1:])
    assert corrected(told, (NEWER,), Medium.COMMAND) == ["/opt/venv/bin/python -m pip install vllm==0.33.0"]


@pytest.mark.parametrize(
    ("image", "line"),
    [
        ("vllm/vllm-openai:v0.32.0", "docker run --gpus all vllm/vllm-openai:v0.33.0 --model m/tiny"),
        ("hub.example.net/vllm/vllm-openai:v0.32.0",
         "docker run --gpus all hub.example.net/vllm/vllm-openai:v0.33.0 --model m/tiny"),
        ("vllm/vllm-openai:v0.32.0-cu129", "vllm/vllm-openai:v0.33.0   # the image"),
        ("vllm/vllm-openai@sha256:aaaa", "vllm/vllm-openai:v0.33.0   # the image"),
    ],
)  # fmt: skip
def test_a_containers_own_line_gets_the_other_tag(image: str, line: str) -> None:
    """A variant of an image is not there for every release, and a digest is no tag."""
    told = launched("docker", "run", "--gpus", "all", image, "--model", "m/tiny", medium="docker")
    assert " ".join(corrected(told, (NEWER,), Medium.DOCKER)).replace(" \\  ", " ") == line


def test_a_container_that_was_inspected_is_made_again_of_the_other_image() -> None:
    words = ("docker", "run", "-d", "--name", "llm", "--entrypoint", "vllm", "vllm/vllm-openai:v0.32.0")
    told = msgspec.structs.replace(launched(*LAUNCH, medium="docker"), made=Made(words))
    lines = corrected(told, (NEWER,), Medium.DOCKER)
    assert lines[0] == "docker stop llm && docker rename llm llm-before"
    assert "vllm/vllm-openai:v0.33.0 serve m/tiny" in " ".join(lines[1:]).replace(" \\   ", " ")


@pytest.mark.parametrize("after", [None, "0.33.0; id", "newest"])
def test_what_is_no_release_is_no_line(after: str | None) -> None:
    change = msgspec.structs.replace(NEWER, after=after)
    assert corrected(launched(), (change,), Medium.COMMAND) == []
