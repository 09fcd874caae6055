"""Each medium's way to write each kind of change, and how a container is made again."""

import msgspec
import pytest

from tests.remedy.test_medium import CPU, SHORTER, launched
from vllm_doctor.records.container import Made
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.medium import Medium, corrected

UNSET = msgspec.structs.replace(CPU, after=None, direction=Direction.REMOVE)
OFF = msgspec.structs.replace(SHORTER, after=None, direction=Direction.REMOVE)
ON = msgspec.structs.replace(SHORTER, name="enforce-eager", after=True)
NEWER = Change(ChangeKind.PACKAGE, "vllm-version", None, "0.33.0", Direction.UPGRADE, Applicability.MANUAL)
SHARED = Change(ChangeKind.OS, "container-shm", None, "--ipc=host", Direction.ADD, Applicability.MANUAL)
PIP = "pip install vllm==0.33.0   # in the environment that starts it"
IMAGE = "image: vllm/vllm-openai:v0.33.0"
ALONE = {
    Medium.COMMAND: (["export VLLM_USE_V1=0"], ["unset VLLM_USE_V1"], [], [], [PIP]),
    Medium.DOCKER: (
        ["-e VLLM_USE_V1=0   # before the image"],
        [],
        ["--max-model-len 2048   # after the image"],
        ["--enforce-eager   # after the image"],
        ["vllm/vllm-openai:v0.33.0   # the image"],
    ),
    Medium.COMPOSE: (
        ["environment:", '  - "VLLM_USE_V1=0"'],
        [],
        ["command:", '- "--max-model-len"', '- "2048"'],
        ["command:", '- "--enforce-eager"'],
        [IMAGE],
    ),
    Medium.POD: (
        ["env:", "- name: VLLM_USE_V1", '  value: "0"'],
        [],
        ["args:", '- "--max-model-len"', '- "2048"'],
        ["args:", '- "--enforce-eager"'],
        [IMAGE],
    ),
    Medium.SLURM: (["export VLLM_USE_V1=0"], ["unset VLLM_USE_V1"], [], [], [PIP]),
    Medium.PYTHON: (
        ["os.environ['VLLM_USE_V1'] = '0'   # before vllm is imported"],
        [],
        ["LLM(…, max_model_len=2048)"],
        ["LLM(…, enforce_eager=True)"],
        [PIP],
    ),
    Medium.UNIT: (
        ["# vllm-doctor, for the emergency only: the next playbook run removes this file.", "[Service]",
         "Environment=VLLM_USE_V1=0"],
        ["# vllm-doctor, for the emergency only: the next playbook run removes this file.", "[Service]",
         "UnsetEnvironment=VLLM_USE_V1"],
        [], [], [],
    ),
}  # fmt: skip


def words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


@pytest.mark.parametrize("medium", [one for one in Medium if one is not Medium.INVENTORY])
def test_each_change_alone_as_each_medium_writes_it(medium: Medium) -> None:
    for change, lines in zip((CPU, UNSET, SHORTER, ON, NEWER), ALONE[medium], strict=True):
        assert corrected(launched(), (change,), medium) == lines
    assert corrected(launched(), (OFF,), medium) == []


def test_an_inventory_has_a_line_for_each_of_its_variables() -> None:
    lines = corrected(launched(), (SHORTER, msgspec.structs.replace(CPU, together=True)), Medium.INVENTORY)
    assert lines == ["vllm_max_model_len: 2048", "vllm_environment: {VLLM_USE_V1: '0'}"]
    assert corrected(launched(), (msgspec.structs.replace(NEWER, inventory_var="vllm_version"),), Medium.INVENTORY) == [
        "vllm_version: 0.33.0"
    ]


@pytest.mark.parametrize("medium", [Medium.COMMAND, Medium.SLURM, Medium.PYTHON])
def test_another_release_goes_into_the_environment_of_the_program(medium: Medium) -> None:
    told = launched("/opt/v/bin/vllm", "serve", "m")
    assert corrected(told, (NEWER, SHORTER), medium) == ["/opt/v/bin/python -m pip install vllm==0.33.0"]
    assert corrected(told, (SHORTER, NEWER), medium) != ["/opt/v/bin/python -m pip install vllm==0.33.0"]


@pytest.mark.parametrize(
    ("made", "above"),
    [
        (
            Made(words("docker run -d --name llm -e A -e B=1 --env C"), ("x", "y"), always=True),
            ["docker update --restart=no llm && docker stop llm && docker rename llm llm-before",
             "# A, C: their values are not shown; export first what docker inspect llm-before has",
             "# not in this line, as docker inspect names it: x, y"],
        ),
        (
            Made(words("/usr/bin/podman run --name llm -e A")),
            ["podman stop llm && podman rename llm llm-before",
             "# A: its value is not shown; export first what podman inspect llm-before has"],
        ),
        (
            Made(words("podman run -e A"), always=True),
            ["# A: its value is not shown; export first what podman inspect has"],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("change", "options", "tag", "after"),
    [
        (SHORTER, "", "v0.32.0", " --max-model-len 2048"),
        (CPU, " -e VLLM_USE_V1=0", "v0.32.0", ""),
        (UNSET, "", "v0.32.0", ""),
        (NEWER, "", "v0.33.0", ""),
        (SHARED, " --ipc=host", "v0.32.0", ""),
    ],
)
def test_a_container_is_made_again_beside_the_old_one(  # noqa: PLR0917
    made: Made, above: list[str], change: Change, options: str, tag: str, after: str
) -> None:
    whole = msgspec.structs.replace(made, words=(*made.words, "vllm/vllm-openai:v0.32.0"))
    told = msgspec.structs.replace(launched("vllm", "serve", "m", medium="docker"), made=whole)
    lines = corrected(told, (change,), Medium.DOCKER)
    begin, own = " ".join(made.words[:2]), " ".join(made.words[2:])
    assert lines[: len(above)] == above
    line = " ".join(row.removesuffix("\\").strip() for row in lines[len(above) :])
    assert line == f"{begin}{options} {own} vllm/vllm-openai:{tag} serve m{after}".replace("  ", " ")


def test_what_is_hidden_in_a_container_s_line_is_to_be_put_in() -> None:
    made = Made(("docker", "run", "vllm/vllm-openai:v0.32.0"))
    told = msgspec.structs.replace(launched("vllm", "serve", "m", "--api-key", "[hidden]", medium="docker"), made=made)
    assert corrected(told, (SHORTER,), Medium.DOCKER)[0] == "# put your own in place of [hidden]"


def test_an_image_of_another_maker_or_with_a_variant_keeps_its_tag() -> None:
    for image in ("acme/vllm:v0.32.0", "vllm/vllm-openai:v0.32.0-cu129", "vllm/vllm-openai:latest"):
        told = msgspec.structs.replace(
            launched("vllm", "serve", "m", medium="docker"), made=Made(("docker", "run", image))
        )
        assert corrected(told, (NEWER,), Medium.DOCKER) == ["vllm/vllm-openai:v0.33.0   # the image"]


@pytest.mark.parametrize(
    ("place", "change", "lines"),
    [
        ("docker:llm", SHORTER, ["--max-model-len 2048   # after the image"]),
        ("podman:llm", CPU, ["-e VLLM_USE_V1=0   # before the image"]),
        ("docker:llm", OFF, ["vllm serve m --port 8001   # what runs in the container; its own options stay"]),
    ],
)
def test_of_a_container_that_nobody_saw_made_what_changes_is_told(place: str, change: Change, lines: list[str]) -> None:
    """A whole line of our own would lose its volumes and ports."""
    told = launched("vllm", "serve", "m", "--port", "8001", "--max-model-len", "4096", medium="docker")
    there = msgspec.structs.replace(told, subject=msgspec.structs.replace(told.subject, place=place))
    assert corrected(there, (change,), Medium.DOCKER) == lines
    elsewhere = msgspec.structs.replace(told, subject=msgspec.structs.replace(told.subject, place="pod/llm"))
    assert corrected(elsewhere, (change,), Medium.DOCKER) != lines


@pytest.mark.parametrize(
    ("version", "image"),
    [("0.32.0", "v0.32.0"), ("0.32.0rc1", "latest"), ("0.32.0+cu129", "latest"), ("", "latest"), (None, "latest")],
)
def test_a_local_build_has_no_image_of_its_own(version: str | None, image: str) -> None:
    told = msgspec.structs.replace(launched("vllm", "serve", "m"), facts={"vllm_version": version})
    lines = " ".join(corrected(told, (SHORTER,), Medium.COMPOSE))
    assert f"vllm/vllm-openai:{image}" in lines


def test_what_only_a_server_has_is_no_argument_of_the_engine() -> None:
    told = launched("vllm", "serve", "m", "--port", "8001", "--api-key", "k", "--enforce-eager", medium="python")
    assert corrected(told, (SHORTER,), Medium.PYTHON) == [
        "llm = LLM(model='m', enforce_eager=True, max_model_len=2048)",
    ]  # fmt: skip
