"""A rule's own bound, from both sides: the figure just within it, and the one just beyond."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.loading import gathered, scenario
from vllm_doctor.records.finding import Finding
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
