"""What `vllm-doctor plan` says to each launch, word for word: the short answer, then `--explain` with its sums."""

import contextlib
import io
import os
import shlex
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import yaml

from vllm_doctor.cli.main import run

FOLDER = Path(__file__).parent


@cache
def launches() -> dict[str, list[str]]:
    """What is asked, by model: the words after `--model-config`."""
    read: dict[str, list[str]] = yaml.safe_load((FOLDER / "launches.yaml").read_text(encoding="utf-8"))
    return read


def answers(model: str) -> str:
    """Every question about a model with its answer, as on a terminal."""
    asked = [form for words in launches()[model] for form in (words, f"--explain {words}")]
    return "\n".join(f"$ vllm-doctor plan {words}\n{_said(model, words)}" for words in asked)


def _said(model: str, words: str) -> str:
    config = ("--model-config", str(FOLDER / "models" / f"{model}.json"))
    out = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as state,
        patch.dict(os.environ, VLLM_DOCTOR_STATE=state),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),  # a launch that is refused has its reason for an answer
    ):
        run(["plan", *config, *shlex.split(words)])
    return out.getvalue().replace(f"{FOLDER}/", "")  # where this checkout lies is no part of the answer
