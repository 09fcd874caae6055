"""The sweep sees what it is there to see, and a few of its invocations, as every test run can afford them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.sweep import COUNTS, Asked, Ended, escape, invocations, wrong

REPO = Path(__file__).parents[2]

ASKED = Asked("x", ("diagnose", "log"), {})
FINE = Ended(1, "FINDING", "", 30, 0.2, False, ())


@pytest.mark.parametrize(
    ("told", "form"),
    [
        ("a\x1b[2J", "human"),
        ("a\rb", "human"),
        ("a\u202eb", "json"),
        ("\x9b2J", "none"),
        ("x\n[Service]\n  ExecStart=/bin/false\n", "human"),
        ('{"a": 1}\n{"b": 2}', "json"),
        ('{"a": NaN}', "json"),
        ("<p><script>x</script>", "html"),
        ('<p onmouseover="x">', "html"),
        ('<a href="x">', "html"),
        ('x{a="b" 1', "prometheus"),
        ("owned 1", "prometheus"),
    ],
)
def test_what_acts_is_seen(told: str, form: str) -> None:
    assert escape(told, form)


def test_a_line_within_the_quotation_marks_of_a_shell_s_word_is_none_of_a_unit() -> None:
    assert not escape("vllm serve 'x\n  ExecStart=/bin/false\n  ' --port 1\n", "human")


@pytest.mark.parametrize(
    ("done", "count"),
    [
        (FINE._replace(hung=True), "hangs"),
        (FINE._replace(code=4), "VD0001"),
        (FINE._replace(err="vllm-doctor: VD0001 internal error"), "VD0001"),
        (FINE._replace(code=-11), "other ends"),
        (FINE._replace(err="Traceback (most recent call last):"), "other ends"),
        (FINE._replace(code=0), "wrong ok"),
        (FINE._replace(out="\x1b"), "escapes"),
        (FINE._replace(err="\x1b"), "escapes"),
        (FINE._replace(mib=301), COUNTS[4]),
        (FINE._replace(cpu_s=15.1), COUNTS[5]),
        (FINE._replace(out="pass=cAnArY1"), "canaries through"),
        (FINE._replace(made=("owned",)), "files made"),
    ],
)
def test_each_count_counts(done: Ended, count: str) -> None:
    assert [what for what, _ in wrong(ASKED._replace(unheard=True), done)] == [count]
    assert list(wrong(ASKED, FINE)) == []


def test_each_invocation_is_another() -> None:
    every = list(invocations())
    assert len(every) > 2900
    assert len({(one.words, one.form, one.end, one.stdin, *one.files.values()) for one in every}) == len(every)


def test_a_few_hold() -> None:
    """From a small process: what a child took at most is at least what its parent had when it was made."""
    sweep = [sys.executable, "-m", "tests.hostile.sweep", "--every", "401"]
    done = subprocess.run(sweep, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "escapes: 0" in done.stdout
