"""A rule's own bound, from both sides: the figure just within it, and the one just beyond."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.loading import gathered, scenario
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.outcome import Outcome
from vllm_doctor.rules.registry import loaded


def asked(tmp_path: Path, name: str, old: str = "", new: str = "", given: dict[str, Any] | None = None) -> Outcome:
    """What the scenario's rule answers where `old` of its log is `new`, and with what is given beside it."""
    said = deepcopy(scenario(name))
    assert old in said["log"]
    said["log"] = said["log"].replace(old, new)
    if given is not None:
        said["given"] = given
    (tmp_path / "log").write_text(said["log"])
    return ask(loaded(said["rule"]), Case(gathered(said, tmp_path / "log")))


@pytest.mark.parametrize(
    ("freed", "kept", "found"),
    [
        ("1.00", "4.00", False),  # as much as a context, NCCL and graphs take
        ("1.00", "4.01", True),
        ("10.00", "9.99", False),  # more was freed than kept
        ("10.00", "10.00", True),
    ],
)
def test_sleep_keeps_too_much_from_four_gib_and_half_of_it_all(
    tmp_path: Path, freed: str, kept: str, *, found: bool
) -> None:
    told = asked(tmp_path, "vd311-sleep-fires", "freed 2.10 GiB memory, 60.20", f"freed {freed} GiB memory, {kept}")
    assert isinstance(told, Finding) is found


def _listening(*ports: int) -> dict[str, Any]:
    rows = [{"port": port, "pid": 7, "name": "x", "unit": None} for port in ports]
    return {"snapshot": {"machine": {"type": "known", "value": {"hostname": "h", "listeners": rows}, "source": "t"}}}


@pytest.mark.parametrize(
    ("taken", "to"),
    [
        ((), 8001),
        ((8000, 8001), 8002),
        (tuple(range(8000, 8049)), 8049),
        (tuple(range(8000, 8050)), None),  # nobody looks through a whole range
    ],
)
def test_the_next_port_is_one_that_nobody_listens_on(tmp_path: Path, taken: tuple[int, ...], to: int | None) -> None:
    told = asked(tmp_path, "vd510-port-after-ready-fires", given=_listening(*taken))
    assert isinstance(told, Finding)
    assert next(c.after for c in told.changes if c.name == "port") == to


@pytest.mark.parametrize(("port", "to"), [(65534, 65535), (65535, None)])
def test_no_port_lies_beyond_the_last(tmp_path: Path, port: int, to: int | None) -> None:
    told = asked(tmp_path, "vd510-port-after-ready-fires", "8000)", f"{port})", given=_listening())
    assert isinstance(told, Finding)
    assert next(c.after for c in told.changes if c.name == "port") == to


def test_of_two_options_that_nobody_knows_the_title_names_the_first_and_both_go(tmp_path: Path) -> None:
    told = asked(tmp_path, "vd502-unknown-option-fires", "on-the-fly-batches 4", "on-the-fly-batches 4 --zorblax 1")
    assert isinstance(told, Finding)
    assert told.title.startswith("vLLM has no --max-num-on-the-fly-batches")
    assert [change.name for change in told.changes] == ["max-num-on-the-fly-batches", "zorblax"]


@pytest.mark.parametrize(
    ("queries", "hits", "rate"), [(900_000, 0, 0.0), (900_000, 492, 0.05), (900_000, 498, 0.06), (900_000, 900, None)]
)
def test_a_prefix_cache_that_never_hits_has_less_than_one_hit_in_a_thousand(
    tmp_path: Path, queries: int, hits: int, rate: float | None
) -> None:
    said = deepcopy(scenario("vd401-never-hits-fires"))
    page = said["given"]["metrics"][0]
    said["given"]["metrics"] = [page.replace(" 900000", f" {queries}").replace('"} 0\n', f'"}} {hits}\n')]
    told = ask(loaded("VD401"), Case(gathered(said, tmp_path / "none")))
    assert (told.arithmetic[0].value if isinstance(told, Finding) else None) == rate


_PRINTED = "Checkpoint size: 92.10 GiB. Available RAM: {} GiB."


@pytest.mark.parametrize(
    ("weights", "first", "left", "confidence"),
    [
        ("95.10", "78.06", "30.50", Confidence.LIKELY),  # more than half the weights went from the host's memory
        ("95.10", "78.04", "30.50", None),  # less than half: page cache, and the card has memory of its own
        ("95.10", "99.00", "31.77", Confidence.LIKELY),  # the host keeps 8 GiB and a quarter of the weights
        ("95.10", "99.00", "31.78", None),
        ("95.10", "23.77", "23.77", Confidence.POSSIBLE),  # no sign of one pool, but less than a quarter is left
        ("95.10", "23.78", "23.78", None),
        ("32.00", "7.99", "7.99", Confidence.POSSIBLE),
        ("32.00", "8.00", "8.00", None),
        ("31.99", "7.90", "7.90", None),  # a small model fills no host
    ],
)
def test_where_no_card_is_named_the_host_s_memory_tells_whether_it_is_the_card_s(
    tmp_path: Path, weights: str, first: str, left: str, confidence: Confidence | None
) -> None:
    log = scenario("vd602-unified-unnamed-fires")["log"].replace("took 95.10 GiB", f"took {weights} GiB")
    (line,) = [line for line in log.splitlines(keepends=True) if "Available RAM" in line]
    both = "".join(line.replace("RAM: 16.10", f"RAM: {one}") for one in (first, left))
    (tmp_path / "log").write_text(log.replace(line, both))
    told = ask(loaded("VD602"), Case(gathered(scenario("vd602-unified-unnamed-fires"), tmp_path / "log")))
    assert (told.confidence if isinstance(told, Finding) else None) == confidence


@pytest.mark.parametrize(
    ("fraction", "total", "to"),
    [(0.89, "16.10", 0.84), (0.98, "16.10", 0.91), (0.90, "4.90", 0.85), (0.98, "4.90", 0.9), (0.98, "31.70", 0.92)],
)
def test_a_shared_pool_keeps_eight_gib_and_the_peak_for_the_host(
    tmp_path: Path, fraction: float, total: str, to: float
) -> None:
    said = deepcopy(scenario("vd602-unified-fires"))
    log = (
        said["log"]
        .replace("RAM: 16.10", f"RAM: {total}")
        .replace("'gpu_memory_utilization': 0.89", f"'gpu_memory_utilization': {fraction}")
    )
    (tmp_path / "log").write_text(log)
    told = ask(loaded("VD602"), Case(gathered(said, tmp_path / "log")))
    assert isinstance(told, Finding)
    assert next(c.after for c in told.changes if c.name == "gpu-memory-utilization") == to


@pytest.mark.parametrize(
    ("asked_for", "hits", "local", "answer"),
    [
        (0, 0, (900_000, 90_000), "no external cache is asked"),
        (1, 0, (900_000, 90_000), "0 hits of 1 queried tokens"),
        (199_999, 0, (900_000, 90_000), "0 hits of 199999 queried tokens"),
        (200_000, 0, (900_000, 90_000), None),
        (200_000, 1, (900_000, 90_000), "1 hits of 200000 queried tokens"),
        (200_000, 0, (900_000, 1), None),
        (200_000, 0, (1, 0), "the local cache has no hit either: the prompts share nothing"),
        (200_000, 0, (0, 0), None),  # a local cache that nobody asked says nothing of the prompts
    ],
)
def test_an_external_cache_is_judged_from_two_hundred_thousand_tokens_without_one_hit(
    tmp_path: Path, asked_for: int, hits: int, local: tuple[int, int], answer: str | None
) -> None:
    said = deepcopy(scenario("vd402-external-fires"))
    (page,) = said["given"]["metrics"]
    values = {"external_prefix_cache_queries": asked_for, "external_prefix_cache_hits": hits}
    values |= {"prefix_cache_queries": local[0], "prefix_cache_hits": local[1]}
    for name, value in values.items():
        page = re.sub(rf'(vllm:{name}_total{{model_name="m"}}) \d+', rf"\1 {value}", page)
    told = ask(loaded("VD402"), Case(gathered(said | {"given": {"metrics": [page]}}, tmp_path / "none")))
    assert (None if isinstance(told, Finding) else told.because) == answer


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (
            "VD702",
            "NVRM: API mismatch: the client has the version 580.95.{}, but this kernel module has the version 570.1.2.",
        ),
        (
            "VD602",
            "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from x @ y:8{}",
        ),
    ],
)
def test_of_several_lines_of_the_kernel_the_last_is_shown(tmp_path: Path, rule: str, line: str) -> None:
    lines = [f"Oct 02 09:0{n}:00 gpu1 kernel: {line.format(f'0{n}')}" for n in range(3)]
    told = ask(loaded(rule), Case(gathered({"rule": rule, "given": {"kernel": lines}}, tmp_path / "none")))
    assert isinstance(told, Finding)
    assert told.evidence[0].excerpt.endswith(line.format("02"))
