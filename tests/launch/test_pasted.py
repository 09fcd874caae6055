"""A command that was pasted above a log is the launch, where exactly one was."""

import time

import pytest

from vllm_doctor.launch.pasted import command_in
from vllm_doctor.launch.shell import first_command

SERVE = "vllm serve acme/chat --gpu-memory-utilization 0.4 -tp 2"
DOCKER = """docker run --gpus all \\
  --ipc=host \\
  vllm/vllm-openai:latest \\
  --model acme/chat \\
  --gpu-memory-utilization 0.4 -tp 2"""
LOG = "INFO 04-30 10:20:35 [monitor.py:33] torch.compile takes 13.93 s in total"


@pytest.mark.parametrize(
    "text",
    [
        SERVE,
        f"$ {SERVE}",
        f"(venv) root@gpu01:/data# CUDA_VISIBLE_DEVICES=0,1 {SERVE}",
        "python3 -m vllm.entrypoints.openai.api_server --model acme/chat --gpu_memory_utilization 0.4 -tp 2",
        DOCKER,
    ],
)
def test_one_command_is_read(text: str) -> None:
    launch = command_in([*text.split("\n"), "", LOG])
    assert launch is not None
    assert launch.model == "acme/chat"
    assert launch.flags["gpu-memory-utilization"] == "0.4"
    assert launch.flags["tensor-parallel-size"] == "2"


COMPOSE = """services:
  chat:
    image: vllm/vllm-openai:v0.11.0
    command: >
      --model acme/chat
      --gpu-memory-utilization= 0.4
      -tp 2
    ipc: host"""
COMPOSE_LIST = """  chat:
    command: ["--model", "acme/chat", "--gpu-memory-utilization", "0.4", "-tp", "2"]
    image: docker.io/vllm/vllm-openai:v0.11.2
    ports: ["8000:8000"]

volumes:
  hub: {}"""
POD = """    containers:
    - name: chat
      image: vllm/vllm-openai:v0.11.0
      args:
      - --model=acme/chat
      - --gpu-memory-utilization=0.4
      - --tensor-parallel-size=2
    restartPolicy: Never"""


@pytest.mark.parametrize("text", [COMPOSE, COMPOSE_LIST, POD, POD.replace("- name: chat\n      image", "- image")])
def test_a_container_beside_a_log_is_the_launch(text: str) -> None:
    launch = command_in([*text.split("\n"), "", LOG])
    assert launch is not None
    assert launch.model == "acme/chat"
    assert launch.flags["gpu-memory-utilization"] == "0.4"
    assert launch.flags["tensor-parallel-size"] == "2"


def test_containers_that_differ_and_one_that_vllm_refuses_are_no_launch() -> None:
    other = COMPOSE.replace("services:\n  chat", "  other").replace("0.4", "0.5")
    assert command_in([*COMPOSE.split("\n"), *other.split("\n"), LOG]) is None
    assert command_in([*POD.replace("=0.4", "=most").split("\n"), LOG]) is None


def test_a_blank_behind_the_sign_of_an_option_parts_nothing() -> None:
    launch = command_in([SERVE.replace("utilization 0.4", "utilization= 0.4"), LOG])
    assert launch is not None
    assert launch.flags["gpu-memory-utilization"] == "0.4"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"nohup {SERVE} > v.log 2>&1 &", f"nohup {SERVE}"),
        (f"nohup {SERVE} >>v.log 2>v.err </dev/null &", f"nohup {SERVE}"),
        (f"{SERVE} &> v.log & disown", SERVE),
        (f"{SERVE} 2>&1 | tee --append v.log", SERVE),
        (f"{SERVE} > >(tee v.log) 2>&1", SERVE),
        (f"$ {SERVE} > 'v 1.log'; echo --swap-space 9", SERVE),
        (f"root@gpu01:~# {SERVE}  # as it was in May", SERVE),
        (f"/data # {SERVE} > v.log", SERVE),
        (f"[root@gpu01 data]$ nohup > v.log {SERVE}", f"nohup {SERVE}"),
        (f"{SERVE} \\\n  --seed 7 \\\n  > v.log 2>&1 &", f"{SERVE} --seed 7"),
        (f"$ {SERVE} \\\n> --seed 7 \\\n> --port 80 > v.log", f"{SERVE} --seed 7 --port 80"),
        (f"{SERVE} \\\n  # --swap-space 9 \\\n  --seed 7", f"{SERVE} --seed 7"),
        (f"{SERVE} --seed 2 > v.log", f"{SERVE} --seed 2"),
    ],
)
def test_what_the_shell_takes_for_itself_is_no_part_of_the_launch(text: str, words: str) -> None:
    launch = command_in([*text.split("\n"), LOG])
    assert launch is not None
    assert launch.argv == tuple(words.split())


@pytest.mark.parametrize(
    ("words", "flag", "value"),
    [
        ("""--hf-overrides '{"a": "x > y & z | w; #"}'""", "hf-overrides", '{"a": "x > y & z | w; #"}'),
        ('--chat-template "a \\" > b # c"', "chat-template", 'a " > b # c'),
        ("--served-model-name <your-name> --port 80", "served-model-name", "<your-name>"),
        ("--revision a#b", "revision", "a#b"),
    ],
)
def test_what_is_quoted_or_holds_a_place_is_the_launchs(words: str, flag: str, value: str) -> None:
    launch = command_in([f"nohup {SERVE} {words} > v.log 2>&1 &", LOG])
    assert launch is not None
    assert launch.flags[flag] == value


def test_of_two_commands_nobody_can_say_which_one_ran() -> None:
    assert command_in([SERVE, SERVE.replace("0.4", "0.5"), LOG]) is None
    assert command_in([SERVE, LOG, SERVE]) is not None


@pytest.mark.parametrize(
    "line",
    [
        "I used vllm serve acme/chat with the defaults",
        "vllm serve",
        "vllm serve 'acme/chat",
        '  File "/opt/v/vllm/entrypoints/cli/main.py", line 1, in main',
        "(APIServer pid=1) INFO 05-05 12:36:59 [x.py:1] vllm serve is starting",
    ],
)
def test_what_only_speaks_of_it_is_no_command(line: str) -> None:
    assert command_in([line, LOG]) is None


@pytest.mark.parametrize("core", ["> ", '>\\"', "'\\\\'\"", ">(", "1>("])
def test_a_strangers_line_costs_no_more_for_being_long_and_odd(core: str) -> None:
    """What looks at each place of such a text again and again would take minutes."""
    began = time.thread_time()
    first_command(f"{SERVE} {core * (240_000 // len(core))}")
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    "lines",
    [
        ['llm = LLM(model="acme/chat-8b", gpu_memory_utilization=0.5, enforce_eager=True)'],
        ['----> 1 llm = LLM(model="acme/chat-8b", gpu_memory_utilization=0.5, enforce_eager=True)'],
        ["llm = LLM(", '    model="acme/chat-8b",', "    gpu_memory_utilization=0.5,", "    enforce_eager=True,", ")"],
    ],
)
def test_a_script_that_makes_an_engine_is_a_launch(lines: list[str]) -> None:
    launch = command_in([*lines, LOG])
    assert launch is not None
    assert launch.model == "acme/chat-8b"
    assert launch.flags["gpu-memory-utilization"] == "0.5"


def test_a_container_of_another_image_of_vllm_is_a_launch() -> None:
    launch = command_in(
        ["sudo docker run --gpus all acme/vllm-gh200:v0.8.3 --model acme/chat --max-model-len 4096", LOG]
    )
    assert launch is not None
    assert launch.flags["max-model-len"] == "4096"


@pytest.mark.parametrize(
    "line",
    [
        "docker run --gpus all acme/tgi:2 --model-id acme/chat",
        "[rank0]:     self.llm = LLM(",
        "class LLM(Base):",
    ],
)
def test_another_program_and_a_call_that_is_cut_off_are_none(line: str) -> None:
    assert command_in([line, LOG]) is None


def test_options_whose_command_nobody_pasted_are_a_launch() -> None:
    found = command_in(
        ["my parameters:", "--tensor-parallel-size 4 \\", "--max-num-seqs 16 \\", "--trust-remote-code", "why?"]
    )
    assert found is not None
    assert (found.flags["tensor-parallel-size"], found.flags["max-num-seqs"]) == ("4", "16")


@pytest.mark.parametrize(
    "line", ["**Configuration**: `--cpu-offload-gb 8 --max-num-seqs 16`", "flags: --cpu-offload-gb 8 --max-num-seqs 16"]
)
def test_what_a_parser_refuses_is_no_launch(line: str) -> None:
    refused = line.rpartition(": ")[2].strip("`")
    assert command_in([f"vllm: error: unrecognized arguments: {refused}"]) is None


@pytest.mark.parametrize(
    "line", ["**Configuration**: `--cpu-offload-gb 8 --max-num-seqs 16`", "flags: --cpu-offload-gb 8 --max-num-seqs 16"]
)
def test_options_behind_a_word_for_them_are_a_launch(line: str) -> None:
    found = command_in([line, "GPU: a card"])
    assert found is not None
    assert found.flags["max-num-seqs"] == "16"
    assert command_in([line, line.replace("16", "8")]) is None


@pytest.mark.parametrize("line", ["--max-num-seqs 16", "--verbose --colour always", "-- see above --max-num-seqs"])
def test_one_option_alone_or_another_programs_are_none(line: str) -> None:
    assert command_in([line]) is None


def test_a_sentence_with_the_commands_words_is_no_command() -> None:
    assert command_in(["vllm serve starts, then it is gone"]) is None
    assert command_in(["vllm serve mymodel --port 8001"]) is not None
