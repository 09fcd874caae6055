"""A launch that somebody hands over as a file, a compose file or a script, and what it tells of the release."""

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_explain import typed

COMPOSE = """# the chat server
services:
  chat:
    image: mirror.example:5000/vllm/vllm-openai:v0.33.0
    command: --model example/model-7b {options}
"""
FAILED = """ERROR 05-01 10:00:00 [core.py:396] EngineCore failed to start.
ERROR 05-01 10:00:00 [core.py:396] Traceback (most recent call last):
ERROR 05-01 10:00:00 [core.py:396]   File "/usr/lib/python3/vllm/v1/engine/core.py", line 387, in run_engine_core
ERROR 05-01 10:00:00 [core.py:396] RuntimeError: of its own kind
"""


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(folder):
        return typed("diagnose", *words)


def version(folder: Path, *words: str) -> object:
    told = json.loads(doctor(folder, *words, "--format", "json").stdout)
    return told["facts"]["vllm_version"]


def test_a_compose_file_is_judged_for_the_release_of_its_image_and_corrected_whole(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE.format(options="--prot 8000 --max-modle-len 4096"))
    shown = doctor(tmp_path, "compose.yaml").stdout
    assert "vLLM 0.33.0 does not start" in shown
    assert "and   --port 8000" in shown
    assert "and   --max-model-len 4096" in shown
    diff = {line.strip() for line in shown.splitlines() if line.startswith(("  -", "  +"))}
    assert diff == {"-    - --prot", "-    - --max-modle-len", "+    - --port", "+    - --max-model-len"}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("job.slurm", "#!/bin/bash\n#SBATCH --gres=gpu:1\nsrun vllm serve m --swap-space 4\n", "srun vllm serve m"),
        ("start.sh", "vllm serve m --swap-space 4 \\\n  --port 8001\n", "vllm serve m --port 8001"),
        ("batch.py", 'from vllm import LLM\nllm = LLM(model="m", swap_space=4)\n', "llm = LLM(model='m')"),
    ],
)
def test_a_script_is_a_launch_without_an_option_for_it(name: str, text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    shown = doctor(tmp_path, name, "--vllm-version", "0.33.0").stdout
    assert "VD501 vLLM 0.33.0 has no --swap-space" in shown
    assert line in [row.strip() for row in shown.splitlines()]


def test_two_launches_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(COMPOSE.format(options=""))
    done = doctor(tmp_path, "a.yaml", "b.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "b.yaml is a launch, and --launch gives another" in done.stderr


def test_a_launch_alone_says_that_no_log_was_given_and_names_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE.format(options="--port 8000"))
    done = doctor(tmp_path, "--launch", "compose.yaml", "--path")
    assert done.returncode == 3
    assert "refuses no part of this launch that the doctor checks; no log was given" in " ".join(done.stdout.split())
    assert "Did vLLM refuse the launch before it used a GPU? no - read: launch" in done.stdout


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("vLLM Version: 0.8.5.post1\n", "0.8.5.post1"),
        ("$ docker run --gpus all vllm/vllm-openai:v0.8.5 --model m\n", "0.8.5"),
        ('Container image "mirror.example/vllm/vllm-openai:v0.11.0" already present on machine\n', "0.11.0"),
        ("vLLM Version: 0.9.2\ndocker run vllm/vllm-openai:v0.8.5 --model m\n", "0.9.2"),
        ("docker pull vllm/vllm-openai:v0.8.4\ndocker pull vllm/vllm-openai:v0.8.5\n", None),
        ("docker run vllm/vllm-openai:latest --model m\n", None),
    ],
)
def test_the_text_around_a_log_tells_the_release_where_the_server_did_not(
    before: str, found: str | None, tmp_path: Path
) -> None:
    (tmp_path / "report.log").write_text(before + FAILED)
    assert version(tmp_path, "report.log") == found


def test_what_the_server_printed_or_the_user_gave_is_more_than_the_text_around(tmp_path: Path) -> None:
    log = "vLLM Version: 0.8.5\nINFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.0\n" + FAILED
    (tmp_path / "report.log").write_text(log)
    assert version(tmp_path, "report.log") == "0.9.0"
    (tmp_path / "report.log").write_text("vLLM Version: 0.8.5\n" + FAILED)
    assert version(tmp_path, "report.log", "--vllm-version", "0.10.0") == "0.10.0"
