"""Which words of vllm_gpus are taken, and the line that is offered for the others."""

from typing import Any

import pytest

from tests.roles.vllm.plugins import load
from tests.roles.vllm.test_units import ARGUMENTS, DEFAULTS, plugin

cards = load("plugins/filter/vllm_cards.py")
ONE, TWO = "GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"
SLICE = "MIG-377e0049-554c-540b-93c6-d0976f8426cb"


def judged(known: list[dict[str, Any]] | None = None, **inventory: Any) -> list[dict[str, str]]:
    variables = {
        **DEFAULTS,
        "version": "0.32.0",
        "variant": "cu130",
        "model": "/srv/models/tiny",
        "arguments": ARGUMENTS,
        "release": "0.32.0+cu130-0123abcd",
        "cuda_home": "",
        "cuda_compat": "",
        "gpu_count": None,
        **inventory,
    }
    units = plugin.units(variables, {name: variables[name] for name in ARGUMENTS})
    rows: list[dict[str, str]] = cards.card_problems(units, variables, known)
    return rows


@pytest.mark.parametrize(
    "inventory",
    [
        {},
        {"gpus": [ONE, TWO]},
        {"gpus": [SLICE]},
        {"gpus": [0], "gpu_count": 1},  # every card of the host: no other can be taken for it
        {"gpus": [1, 0], "gpu_count": 2},
        {"gpus": ["1"], "gpus_by_index": True},
        {"gpus": [1], "version": "0.20.2"},  # it reads nothing else
        {"gpus": [ONE], "version": "0.23.0"},  # nobody has looked
        {"gpus": [ONE], "version": "latest"},  # a complaint of its own
        {"gpus": [0], "variant": "cpu"},
    ],
)
def test_what_is_taken(inventory: dict[str, Any]) -> None:
    assert judged(**inventory) == []


@pytest.mark.parametrize(
    ("inventory", "needed", "do"),
    [
        ({"gpus": [0, 1]}, "once one has fallen off", "vllm_gpus: [GPU-…, GPU-…], as nvidia-smi -L"),
        ({"gpus": ["1"], "gpu_count": 2}, "once one has fallen off", "or vllm_gpus_by_index: true"),
        ({"gpus": [ONE], "version": "0.20.2"}, "vLLM 0.20.2 ends at a UUID", "vllm_version 0.24.0 or newer"),
        ({"gpus": ["GPU-11111111"]}, "in full", "vllm_gpus: [GPU-…]"),
        ({"gpus": ["0000:17:00.0"]}, "no PCI addresses", "vllm_gpus: [GPU-…]"),
        ({"gpus": ["cuda:0"]}, "the UUID of a card", "vllm_gpus: [GPU-…]"),
        ({"gpus": [ONE, ONE, TWO]}, "each card once", f"vllm_gpus: [{ONE}, {TWO}]"),
        ({"instances": [{"name": "a", "gpus": [1]}]}, "UUIDs", "vllm_instances: gpus of a: [GPU-…]"),
    ],
)
def test_what_is_not_taken_gets_the_line_to_write(inventory: dict[str, Any], needed: str, do: str) -> None:
    (row,) = judged(**inventory)
    assert needed in row["needed"]
    assert do in row["do"]


def test_a_host_that_has_said_its_uuids_gets_them_back() -> None:
    known = [{"index": 0, "uuid": ONE}, {"index": 1, "uuid": TWO}, {"index": 2, "uuid": None}]
    (row,) = judged(known, gpus=[1, 0])
    assert row["do"] == f"vllm_gpus: [{TWO}, {ONE}]; or vllm_gpus_by_index: true"
    (row,) = judged(known, gpus=[2])
    assert "GPU-…" in row["do"]


@pytest.mark.parametrize("gpus", ["0,1", 0, [[0]], [{"index": 0}]])
def test_what_is_no_list_is_refused_in_words(gpus: object) -> None:
    with pytest.raises(plugin.AnsibleFilterError, match=r"vllm@main: gpus: .* is no list of UUIDs: write \[GPU-…\]"):
        judged(gpus=gpus)
