"""`tune` refuses what it must not do, in words, before it looks at any host."""

import os

import pytest

from vllm_doctor.cli.main import run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unit", "vllm@main"], "needed: --yes, or --dry-run"),
        (["--unit", "vllm@main", "--yes", "--load", "wrk"], "'wrk' is not one of 'auto', 'vllm-bench',"),
        (["--unit", "vllm@main", "--yes", "--format", "xml"], "'xml' is not one of 'human', 'json'"),
        (["--unit", "vllm@main", "--yes", "--minutes", "inf"], "inf is not in the range 0.1<=x<=10080"),
        (["--unit", "vllm@main", "--yes", "--minutes", "0.1"], "--minutes: found 0.1; needed: at least 0.6, one step"),
        (["--unit", "vllm@main", "--yes", "--slowdown", "nan"], "--slowdown: found nan; needed: a number"),
        (["--unit", "vllm@main", "--yes", "--kv-use", "nan"], "--kv-use: found nan; needed: a number"),
        (["--unit", "vllm@main", "--yes", "--itl-ms", "nan"], "--itl-ms: found nan; needed: a number"),
    ],
)
def test_bad_words_are_refused(words, said, capsys):
    assert run(["tune", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_unit_must_be_named(capsys):
    assert run(["tune", "--yes"]) == 2


def test_who_may_not_restart_is_told_before_anything_else(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["tune", "--unit", "vllm@main", "--yes"]) == 2
    assert "root" in capsys.readouterr().err


def test_a_unit_that_is_not_there_is_no_traceback(capsys):
    assert run(["tune", "--unit", "vllm@nowhere", "--dry-run"]) == 2
    assert "vllm@nowhere" in capsys.readouterr().err
