"""A change as the reader's medium writes it."""

import shlex

import msgspec
import pytest

from tests.render.sample import diagnosis, finding
from vllm_doctor.records.container import Made
from vllm_doctor.records.finding import Change, Diagnosis
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.medium import Medium, corrected

SHORTER = finding().changes[0]
CPU = Change(ChangeKind.ENV, "VLLM_USE_V1", None, "0", Direction.SET, Applicability.NEEDS_REVIEW, "vllm_environment")
LAUNCH = ("vllm", "serve", "m/tiny", "--port", "8001", "--max-model-len", "4096")


def launched(*argv: str, medium: str = "command") -> Diagnosis:
    told = diagnosis(finding(), unit=None)
    return msgspec.structs.replace(told, launch=argv, medium=medium, facts={"vllm_version": "0.32.0"})


def test_the_whole_command_with_the_change_in_its_place() -> None:
    lines = corrected(launched(*LAUNCH), (SHORTER,), Medium.COMMAND)
    assert lines == ["vllm serve m/tiny --port 8001 --max-model-len 2048"]
    assert corrected(launched(*LAUNCH), (CPU,), Medium.COMMAND)[0].startswith("VLLM_USE_V1=0 vllm serve m/tiny")


def test_a_container_keeps_its_own_words() -> None:
    own = ("docker", "run", "--gpus", "all", "-v", "/srv:/srv", "vllm/vllm-openai:v0.32.0", "--model", "m/tiny")
    assert corrected(launched(*own, medium="docker"), (SHORTER,), Medium.DOCKER) == [
        "docker run --gpus all -v /srv:/srv vllm/vllm-openai:v0.32.0 --model m/tiny \\",
        "  --max-model-len 2048",
    ]
    assert corrected(launched(*own, medium="docker"), (CPU,), Medium.DOCKER)[0].startswith(
        "docker run -e VLLM_USE_V1=0"
    )


def test_another_medium_is_written_whole() -> None:
    shown = "\n".join(corrected(launched(*LAUNCH), (SHORTER,), Medium.DOCKER))
    assert "-p 8001:8001" in shown
    assert "vllm/vllm-openai:v0.32.0" in shown


@pytest.mark.parametrize("medium", [Medium.COMPOSE, Medium.POD])
def test_a_file_that_holds_the_launch_is_shown_as_what_changes_in_it(medium: Medium) -> None:
    shown = corrected(launched(*LAUNCH, medium=medium.value), (SHORTER,), medium)
    assert [row.split() for row in shown if row[0] in "+-"] == [["-", "-", "'4096'"], ["+", "-", "'2048'"]]
    assert [row.split() for row in shown[: shown.index(next(row for row in shown if row[0] == "-"))]] == [
        ["-", "--max-model-len"]
    ]  # one line of what stands around it


def test_python_has_no_port() -> None:
    assert corrected(launched(*LAUNCH), (SHORTER,), Medium.PYTHON) == ["llm = LLM(model='m/tiny', max_model_len=2048)"]


def test_of_a_launch_that_is_not_known_only_the_change_is_written() -> None:
    assert corrected(launched(), (SHORTER,), Medium.POD) == ["args:", '- "--max-model-len"', '- "2048"']
    assert corrected(launched(), (SHORTER,), Medium.PYTHON) == ["LLM(…, max_model_len=2048)"]
    assert corrected(launched(), (CPU,), Medium.SLURM) == ["export VLLM_USE_V1=0"]


def test_what_no_launch_carries_is_written_nowhere() -> None:
    package = Change(ChangeKind.PACKAGE, "vllm", None, "0.33.0", Direction.UPGRADE, Applicability.MANUAL)
    vague = Change(ChangeKind.FLAG, "max-num-seqs", None, None, Direction.LOWER, Applicability.NEEDS_REVIEW)
    for medium in Medium:
        assert corrected(launched(*LAUNCH), (package,), medium) == []
        assert corrected(launched(*LAUNCH), (vague,), medium) == []


@pytest.mark.parametrize("medium", [Medium.COMPOSE, Medium.POD])
def test_a_file_with_references_of_its_owner_is_not_written_anew(medium: Medium) -> None:
    shown = corrected(launched(*LAUNCH, "--served-model-name", "${NAME}", medium=medium.value), (SHORTER,), medium)
    assert [row for row in shown if "$" in row] == []
    assert shown[1:] == ['- "--max-model-len"', '- "2048"']


def test_a_change_alone_is_one_line_and_fills_nothing_in() -> None:
    change = msgspec.structs.replace(CPU, after="$(id)\n${HOME}")
    assert corrected(launched(), (change,), Medium.COMPOSE)[1] == '  - "VLLM_USE_V1=$$(id)\\n$${HOME}"'
    assert corrected(launched(), (change,), Medium.POD)[2] == '  value: "$$(id)\\n$${HOME}"'
    assert corrected(launched(), (change,), Medium.SLURM) == ["export VLLM_USE_V1=$'$(id)\\n${HOME}'"]


@pytest.mark.parametrize(
    ("typed", "pasted"),
    [
        ("-v ~/.cache:/root/.cache", "-v ~/.cache:/root/.cache"),
        ("-v $HOME/.cache:/root/.cache", '-v "$HOME/.cache:/root/.cache"'),
        ('-v "$(pwd)/models":/models', '-v "$(pwd)/models:/models"'),
        ("-e X='$(id)'", "-e 'X=$(id)'"),
        ("-e 'X=`id`'", "-e 'X=`id`'"),
    ],
)
def test_what_a_shell_fills_in_is_left_to_it_and_nothing_is_run(typed: str, pasted: str) -> None:
    own = shlex.split(f"docker run {typed} vllm/vllm-openai:v0.32.0 --model m/tiny")
    assert pasted in " ".join(corrected(launched(*own, medium="docker"), (SHORTER,), Medium.DOCKER))


def test_what_a_script_sets_for_its_line_is_not_set_on_the_line() -> None:
    lines = corrected(launched("MODEL=/srv/m", "A=1", "vllm", "serve", "$MODEL"), (SHORTER,), Medium.COMMAND)
    assert lines == ['A=1 vllm serve "$MODEL" --max-model-len 2048']


@pytest.mark.parametrize(
    ("name", "after", "had", "has"),
    [
        ("container-devices", "--gpus all", "--device /dev/x:/dev/x", "docker run --gpus all -d --name llm"),
        ("container-shm", "--ipc=host", "--shm-size 67108864", "docker run --ipc=host -d --name llm"),
    ],
)
def test_an_option_of_the_runtime_is_put_into_the_line_that_made_the_container(
    name: str, after: str, had: str, has: str
) -> None:
    words = (*f"docker run -d --name llm {had} --entrypoint vllm".split(), "vllm/vllm-openai:v0.32.0")
    told = msgspec.structs.replace(launched("vllm", "serve", "m/tiny", medium="docker"), made=Made(words))
    change = Change(ChangeKind.OS, name, None, after, Direction.ADD, Applicability.MANUAL)
    lines = corrected(told, (change,), Medium.DOCKER)
    assert lines[0] == "docker stop llm && docker rename llm llm-before"
    assert lines[1].startswith(has)
    assert had not in "\n".join(lines)


def test_a_units_drop_in_of_a_launch_that_a_log_prints_says_which_program_is_meant() -> None:
    told, *lines = corrected(launched(*LAUNCH), (SHORTER,), Medium.UNIT)
    assert told == "# /PATH/TO/vllm stands for the program that ExecStart= of `systemctl cat UNIT` names."
    assert lines[-2:] == ["ExecStart=", "ExecStart=/PATH/TO/vllm serve m/tiny --port 8001 --max-model-len 2048"]
    assert corrected(launched("/opt/v/bin/vllm", *LAUNCH[1:]), (SHORTER,), Medium.UNIT)[-1].startswith(
        "ExecStart=/opt/v/bin/vllm serve"
    )
