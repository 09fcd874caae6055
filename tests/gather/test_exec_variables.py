"""Variables of ExecStart= as systemd replaces them."""

import os
from pathlib import Path

import pytest

from vllm_doctor.gather import systemd
from vllm_doctor.gather.exec_variables import expanded

ENV = {"MODEL": "m/llama", "PORT": "9000", "EXTRA": "--max-model-len 4096 --served-model-name 'a b'", "EMPTY": ""}


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("${MODEL}", ["m/llama"]),
        ("--port=${PORT}", ["--port=9000"]),
        ("$PORT", ["9000"]),
        ("$EXTRA", ["--max-model-len", "4096", "--served-model-name", "a b"]),
        ("${EXTRA}", [ENV["EXTRA"]]),
        ("$EMPTY", []),
        ("${EMPTY}", [""]),
        ("$NOBODY", []),
        ("a$PORT", ["a$PORT"]),
        ("m/$$x", ["m/$x"]),
        ("plain", ["plain"]),
    ],
)
def test_each_form(word: str, words: list[str]) -> None:
    assert expanded(["/bin/vllm", word], ENV, all_seen=True) == ("/bin/vllm", *words)


def test_what_only_an_unread_file_sets_is_not_guessed() -> None:
    assert expanded(["/bin/vllm", "${SECRET_MODEL}", "$MORE"], {}, all_seen=False)[1:] == ("[hidden]", "[hidden]")


@pytest.mark.skipif(os.geteuid() != 0, reason="files of a unit are root's")
def test_a_unit_of_variables_is_judged_by_their_values(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("PORT=9000\nLEN=4096\n")
    command = "/o/vllm serve $MODEL --port ${PORT} --max-model-len ${LEN}"
    shown = {
        "Id": "vllm.service",
        "ExecStart": f"{{ path=/o/vllm ; argv[]={command} ; ignore_errors=no }}",
        "Environment": "MODEL=m/llama PORT=1",
        "EnvironmentFiles": f"{file} (ignore_errors=no)",
    }
    assert systemd._found(shown).argv == ("/o/vllm", "serve", "m/llama", "--port", "9000", "--max-model-len", "4096")
