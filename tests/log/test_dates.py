"""Logs of other days that stand above a server's log or within it are judged by themselves."""

import pytest

from vllm_doctor.log.read.assemble import cut, parse_lines
from vllm_doctor.log.read.pieces import Read, stream
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose


def verdict(text: str) -> Verdict:
    read = stream(iter([text.encode()]))
    assert isinstance(read, Read)
    lines = parse_lines(read)
    return diagnose(Snapshot(taken_at="2026-01-01", log=Known(cut(lines, "log"), "log"))).verdict


def failed(day: str, model: str = "acme/chat-70b", name: str = "") -> list[str]:
    head = f"{name}ERROR {day} 09:00:30 [core.py:632] "
    return [
        f"{name}INFO {day} 09:00:00 [api_server.py:1043] vLLM API server version 0.9.1",
        f"{name}INFO {day} 09:00:01 [utils.py:328] non-default args: {{'model': '{model}'}}",
        f"{head}Traceback (most recent call last):",
        f'{head}  File "/v/vllm/v1/worker/gpu_model_runner.py", line 1, in load_model',
        f"{head}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 23.6 GiB.",
    ]


def serves(day: str, model: str = "acme/chat-8b", name: str = "") -> list[str]:
    return [
        f"{name}INFO {day} 10:00:00 [api_server.py:1043] vLLM API server version 0.9.1",
        f"{name}INFO {day} 10:00:01 [utils.py:328] non-default args: {{'model': '{model}'}}",
        f"{name}INFO {day} 10:00:50 [core.py:171] init engine (profile, create kv cache, warmup model) took 43.77 s",
        f"{name}INFO:     Application startup complete.",
        *(f'{name}INFO:     10.0.0.{i}:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK' for i in range(4)),
        f"{name}INFO {day} 10:02:00 [launcher.py:36] Route: /health, Methods: GET",
        f'{name}INFO:     10.0.0.9:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ]


@pytest.mark.parametrize("day", ["03-02", "06-20", "12-30"])
def test_a_failure_of_another_day_is_told_wherever_it_stands(day: str) -> None:
    below = serves("03-05")
    for at in (0, 3, 6, len(below)):
        assert verdict("\n".join([*below[:at], *failed(day), *below[at:]])) is not Verdict.OK


def test_who_serves_the_same_model_days_later_was_started_again() -> None:
    assert verdict("\n".join([*failed("03-02", "acme/chat-8b"), *serves("03-05")])) is Verdict.OK


def test_a_container_s_next_start_takes_the_place_of_the_one_before() -> None:
    name = "vllm-1  | "
    assert verdict("\n".join([*failed("03-02", name=name), *serves("03-05", name=name)])) is Verdict.OK


def test_an_idle_server_may_say_nothing_for_days_and_a_year_may_turn() -> None:
    below = serves("12-28")
    later = "INFO 01-03 08:00:00 [launcher.py:36] Route: /health, Methods: GET"
    assert verdict("\n".join([*below, later, below[-1]])) is Verdict.OK


def test_one_date_of_another_year_is_part_of_what_a_line_says() -> None:
    below = serves("03-05")
    odd = "INFO 01-01 00:00:00 [utils.py:1] the clock of this host is not set"
    assert verdict("\n".join([*below[:5], odd, *below[5:]])) is Verdict.OK
