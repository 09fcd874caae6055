"""Markdown for a ticket: the answer with its change, and nothing that a log says is markup."""

import msgspec
import pytest

from tests.render.sample import MEMORY
from tests.scenarios.loading import diagnosis, names
from vllm_doctor.render.markdown import fenced, text, without_markup


def test_a_ticket_has_the_problem_the_sum_and_the_change() -> None:
    told = text([diagnosis("vd002-while-loading-fires")])
    assert told.startswith("## FINDING: vLLM does not start\n")
    assert "### VD002 The liveness probe ended the server while it was starting" in told
    assert "- **why**: the probe waits 90 s, a whole start 552 s, weights 240 s" in told
    assert "**Do**: startupProbe: {periodSeconds: 10, failureThreshold: 83}" in told


def test_a_ticket_has_measured_memory_beside_the_plan() -> None:
    told = text([msgspec.structs.replace(diagnosis("vd002-while-loading-fires"), memory_use=MEMORY)])
    assert "| weights | 12.54 | 12.60 | the log |" in told
    assert "| KV cache | 40.25 | 41.50 | /metrics &#124; cache&#95;config&#95;info |" in told
    assert "- GPU 0: 60.10 of 79.19 GiB held by this server" in told


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("@team <b>x</b>", "&#64;team &#60;b&#62;x&#60;/b&#62;"),
        ("[x](http://y)", "&#91;x&#93;(http://y)"),
        ("a\nb", "a b"),
    ],
)
def test_what_is_none_of_ours_is_no_markup(said: str, shown: str) -> None:
    assert without_markup(said) == shown


def test_no_line_can_close_its_fence() -> None:
    told = fenced(["x", "````", "@team"]).splitlines()
    assert (told[0], told[-1]) == ("`````text", "`````")


@pytest.mark.parametrize("name", names()[::40])
def test_every_answer_can_be_a_ticket(name: str) -> None:
    told = text([diagnosis(name)])
    assert told.startswith("## ")
    assert told.isprintable() or all(sign.isprintable() or sign == "\n" for sign in told)
