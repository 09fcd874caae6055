"""A command that was pasted above a log is the launch, where exactly one was."""

import pytest

from vllm_doctor.launch.pasted import command_in

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
