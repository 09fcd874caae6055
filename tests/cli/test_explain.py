"""`explain`, `flowchart` and shell completion, as a person types them."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_doctor.cli import main
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.order import by_code
from vllm_doctor.rules.registry import rules

CLI = [str(Path(sys.executable).with_name("vllm-doctor"))]


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in this process: the same edge, without the start of an interpreter for each word."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(list(words))
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words], capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **env}
    )


def test_every_code_is_listed_and_one_is_explained() -> None:
    listed = typed("explain", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(by_code())
    page = typed("explain", "vd121").stdout
    assert page.startswith("# VD121 ")
    assert "## What to do" in page


def test_the_code_for_a_defect_of_our_own_is_explained_too() -> None:
    assert "exit code is 4" in typed("explain", "vd0001").stdout


@pytest.mark.parametrize(
    ("version", "word", "told"),
    [("0.7.3", "true", "pinned"), ("0.10.0", "false", "V1 never swaps"), ("0.18.1", "false", "is gone")],
)
def test_advice_is_judged_for_the_release_that_is_asked_about(version: str, word: str, told: str) -> None:
    said = typed("explain", "VD501", "--vllm-version", version).stdout
    assert f"{word} in vLLM {version}" in said
    assert told in said


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("swap-space", "0.2.0 to 0.17.1"),
        ("--disable-log-requests", "--enable-log-requests"),
        ("VLLM_ATTENTION_BACKEND", "--attention-backend"),
        ("PYTORCH_ALLOC_CONF", "torch 2.9"),
        ("max-num-on-the-fly-batches", "--max-num-seqs"),
        ("vllm_prefix_cache_hit_rate", "vllm:prefix_cache_hits_total"),
        ("expandable_segments", "custom_all_reduce.cuh"),
    ],
)
def test_an_option_a_variable_or_a_metric_by_name(name: str, told: str) -> None:
    answer = typed("explain", "--", name)
    assert answer.returncode == 0
    assert told in answer.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["explain"], "needs a code"),
        (["explain", "VD000"], "there is no 'VD000'"),
        (["explain", "gpu-memory-utilisation"], "--gpu-memory-utilization is near"),
        (["explain", "VD501", "--vllm-version", "new"], "needed: a version"),
        (["flowchart", "--format", "png"], "'png' is not one of 'text', 'mermaid'"),
    ],
)
def test_a_wrong_word_is_a_usage_error(words: list[str], told: str) -> None:
    answer = typed(*words)
    assert answer.returncode == 2
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_flowchart_has_every_box_and_every_rule() -> None:
    text, diagram = typed("flowchart").stdout, typed("flowchart", "--format", "mermaid").stdout
    assert diagram.startswith("flowchart TD\n")
    for node in NODES:
        assert node.question in text
        assert f'  {node.id.replace("-", "_")}{{"' in diagram
    for rule in rules():
        assert f"yes → {rule.code} " in text
        assert f"-- yes --> {rule.code}\n" in diagram


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_written_for_each_shell(shell: str) -> None:
    script = run(_VLLM_DOCTOR_COMPLETE=f"source_{shell}").stdout
    assert "_VLLM_DOCTOR_COMPLETE" in script
    assert "complete" in script


def test_bash_completes_a_command() -> None:
    got = run(_VLLM_DOCTOR_COMPLETE="complete_bash", COMP_WORDS="vllm-doctor flo", COMP_CWORD="1").stdout
    assert got.split() == ["flowchart"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("vllm-doctor explain VD12", "VD121"),
        ("vllm-doctor flowchart --format m", "mermaid"),
        ("vllm-doctor diagnose --fail-on de", "degraded"),
        ("vllm-doctor diagnose --model-", "--model-config"),
    ],
)
def test_the_shell_is_offered_codes_and_words(words: str, offered: str) -> None:
    count = str(len(words.split()) - 1)
    asked = run(COMP_WORDS=words, COMP_CWORD=count, _VLLM_DOCTOR_COMPLETE="complete_bash")
    assert offered in asked.stdout.split(), asked.stderr


def test_the_chart_asks_what_lies_under_a_box_before_it_goes_on() -> None:
    lines = typed("flowchart").stdout.splitlines()
    inner = next(n for n in NODES if n.under == "startup")
    outer = next(at for at, line in enumerate(lines) if line == "Did vLLM run out of memory while it started?")
    assert lines[outer + 1].endswith(inner.question)
    following = next(at for at, line in enumerate(lines) if at > outer and line == "  no ↓")
    assert all(any(n.question in line for line in lines[outer:following]) for n in NODES if n.under == "startup")
