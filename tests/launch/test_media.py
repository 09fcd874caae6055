"""A launch read from each medium, and written for each: what is written is read back as the same launch."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_doctor.knowledge import parser
from vllm_doctor.launch.command import parse_line
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.launch.write_media import WRITERS
from vllm_doctor.records.host import Launch

OPTIONS = {
    name: option
    for name, option in (parser.options("0.32.0") or {}).items()
    if not name.startswith("no-") and name not in {"help", "config", "model", "model-tag"} and len(name) > 1
}
SWITCHES = [name for name, option in OPTIONS.items() if option.words == 0]
LISTS = [name for name, option in OPTIONS.items() if option.words == "+"]
VALUED = [name for name, option in OPTIONS.items() if option.words == 1]
WORD = st.text("abcXYZ019._/ $'\"\\:=%#{}é", min_size=1, max_size=12).filter(
    lambda w: w == w.strip() and w[0] not in "{["
)
JSON = st.dictionaries(st.text("ab_", min_size=1, max_size=4), st.integers() | st.booleans() | WORD, max_size=3)
VALUE = st.integers(-9, 10**6).map(str) | st.sampled_from(["0.90", "1e-3", "8k", "-1"]) | WORD | JSON.map(json.dumps)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.just(True) for name in SWITCHES[:6]},
        **dict.fromkeys(VALUED[:12], VALUE),
        **{name: st.lists(st.sampled_from(["1", "2", "web", "a/b"]), min_size=1).map(",".join) for name in LISTS[:3]},
    },
)
WRITTEN = [
    tuple(part.strip() for part in one.split("\n", 1))
    for one in Path(__file__).with_name("media.txt").read_text(encoding="utf-8").split("=== ")[1:]
]
ENV = st.dictionaries(st.sampled_from(["VLLM_USE_V1", "NCCL_DEBUG", "HF_HOME"]), WORD, max_size=2)


@pytest.mark.parametrize("medium", WRITERS)
@given(flags=FLAGS, env=ENV)
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read_back(medium: str, flags: dict[str, str | bool], env: dict[str, str]) -> None:
    line = LaunchLine("acme/chat", flags, env)
    written = WRITERS[medium](line, image="vllm/vllm-openai:v0.32.0")
    read = parse_line(written)
    assert (read.model, read.flags, read.env) == ("acme/chat", flags, env), written


def told(launch: Launch) -> tuple[str | None, dict[str, str | bool], dict[str, str], str]:
    return launch.model, launch.flags, launch.env, launch.medium


ASKED = ("acme/chat", {"max-model-len": "4096"}, {"VLLM_USE_V1": "0"})


@pytest.mark.parametrize(("medium", "text"), WRITTEN)
def test_it_is_read_where_it_was_written(medium: str, text: str) -> None:
    model, flags, env, found = told(parse_line(text))
    assert (model, {"max-model-len": flags["max-model-len"]}, env, found) == (*ASKED, medium)


def test_a_unit_is_read_for_its_command_and_its_variables() -> None:
    text = """# /etc/systemd/system/vllm.service
[Service]
Environment=VLLM_USE_V1=0 "HF_HOME=/a b"
ExecStart=/opt/vllm/bin/vllm serve acme/chat \\
  --max-model-len 4096 --hf-overrides "{\\"a\\": \\"$$x\\"}"
Restart=always
"""
    model, flags, env, _ = told(parse_line(text))
    assert (model, env) == ("acme/chat", {"VLLM_USE_V1": "0", "HF_HOME": "/a b"})
    assert flags == {"max-model-len": "4096", "hf-overrides": '{"a": "$x"}'}


def test_python_is_read_for_its_keywords() -> None:
    call = "LLM('acme/chat', max_model_len=4096,\n  gpu_memory_utilization=0.90, enforce_eager=True)"
    flags = {"max-model-len": "4096", "gpu-memory-utilization": "0.90", "enforce-eager": True}
    assert told(parse_line(f"import vllm\nllm = vllm.{call}")) == ("acme/chat", flags, {}, "python")


@pytest.mark.parametrize("text", ["llm = LLM(**settings)", "llm = LLM('m', max_model_len=length)"])
def test_python_that_only_running_it_would_tell_is_not_guessed(text: str) -> None:
    with pytest.raises(LaunchError, match="needed"):
        parse_line(text)


@pytest.mark.parametrize("medium", ["compose", "pod"])
def test_nothing_of_a_value_is_filled_in_from_the_operator_s_shell_or_the_container(medium: str) -> None:
    written = WRITERS[medium](LaunchLine("m/${AWS_SECRET_ACCESS_KEY:-a}", {"seed": "$(id)"}, {"HF_HOME": "$HOME/$$"}))
    assert "$" not in written.replace("$$", "")
    assert "$${AWS_SECRET_ACCESS_KEY:-a}" in written
    assert "$$(id)" in written
    assert "$$HOME/$$$$" in written


def test_a_value_of_several_lines_stays_one_and_on_its_line() -> None:
    line = LaunchLine("acme/chat", {"chat-template": "{{ a }}\n  it's\t\\"}, {"HF_HOME": "/a\nb"})
    for medium, write in WRITERS.items():
        written = write(line)
        indented = "\n".join(f"    {row}" for row in written.split("\n"))
        if medium in {"compose", "pod"}:
            read = parse_line(indented)
            assert (read.flags, read.env) == (line.flags, line.env)
        elif medium == "python":
            assert repr(line.flags["chat-template"]) in written
        else:
            script = indented.replace("srun vllm", "vllm").replace("docker run", "vllm")
            printed = f'vllm() {{ printf \'<%s>\' "$HF_HOME" "$@"; }}\n{script}\n'
            said = subprocess.run(["bash", "-c", printed], capture_output=True, text=True, check=True).stdout
            assert f"<{line.flags['chat-template']}>" in said
            assert "/a\nb>" in said
