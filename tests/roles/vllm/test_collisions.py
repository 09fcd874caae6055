"""Services of one host that would fight: refused before any host is asked, with the line to write."""

from typing import Any

import pytest

from tests.roles.vllm.plugins import load

plugin = load("plugins/filter/vllm_collisions.py")
A, B = "GPU-11111111-2222-3333-4444-00000000000a", "GPU-11111111-2222-3333-4444-00000000000b"


def service(name: str, port: int = 8000, gpus: tuple[str, ...] = (), share: object = None) -> dict[str, Any]:
    arguments = {} if share is None else {"gpu-memory-utilization": share}
    return {"instance": name, "name": f"vllm@{name}", "port": port, "gpus": list(gpus), "arguments": arguments}


def judged(*units: dict[str, Any], variant: str = "cu130") -> list[tuple[str, str]]:
    return [(row["found"], row["do"]) for row in plugin.collisions(list(units), variant)]


def test_a_port_of_each_and_a_card_of_each_is_well() -> None:
    assert judged(service("a", 8000, (A,)), service("b", 8001, (B,))) == []


def test_a_port_twice_names_a_free_one() -> None:
    ((found, do),) = judged(service("a"), service("b"), service("c", 8001), variant="cpu")
    assert found == "two instances with port 8000: vllm@a, vllm@b"
    assert do == "vllm_instances: {name: b, port: 8002}"


def test_the_last_port_twice_names_one_below_it() -> None:
    ((_, do),) = judged(service("a", 65535), service("b", 65535), service("c", 1024), variant="cpu")
    assert do == "vllm_instances: {name: b, port: 1025}"


def test_a_name_twice_names_both_entries() -> None:
    ((found, do),) = judged(service("a", 1), service("b", 2), service("a", 3), variant="cpu")
    assert "entries 1 and 3" in found
    assert "{name: a-2}" in do


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (service("a", 1, (A,)), service("b", 2, (A,))),
        (service("a", 1, (A, B)), service("b", 2, (B,))),
        (service("a", 1), service("b", 2, (B,))),  # no list: every card
        (service("a", 1), service("b", 2)),
        (service("a", 1, (A,), 0.6), service("b", 2, (A,), 0.6)),
        (service("a", 1, (A,), 0.4), service("b", 2, (A,))),  # the second takes vLLM's own share
        (service("a", 1, (A,), 0.4), service("b", 2, (A,), "half")),
    ],
)
def test_one_card_for_two_without_shares_that_add_up_is_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    ((found, do),) = judged(first, second)
    assert "2 instances on" in found
    assert "{name: a, gpu_memory_utilization: 0.45}, {name: b, gpu_memory_utilization: 0.45}" in do


def test_shares_that_add_up_and_slices_of_one_card_are_well() -> None:
    assert judged(service("a", 1, (A,), 0.5), service("b", 2, (A,), "0.5")) == []
    assert judged(service("a", 1, ("MIG-1",)), service("b", 2, ("MIG-2",))) == []


def test_the_cpu_build_has_no_card_to_share() -> None:
    assert judged(service("a", 1), service("b", 2), variant="cpu") == []


def remains(gpus: tuple[str, ...] = (), memory: str = "", *, active: bool = True) -> list[dict[str, Any]]:
    """A service that the inventory no longer lists, with its unit as the template writes one."""
    cards = f'Environment="CUDA_VISIBLE_DEVICES={",".join(gpus)}"\n' if gpus else ""
    launch = "ExecStart=/opt/vllm/current/bin/vllm serve m \\\n  --port 8000"
    launch += f" \\\n  --gpu-memory-utilization {memory}" if memory else ""
    unit = f"[Service]\n{cards}{launch}\n\nRestart=always\n"
    return [{"name": "vllm@old", "active": active, "url": "http://127.0.0.1:8000", "unit": unit}]


def fought(unit: dict[str, Any], left: list[dict[str, Any]], cards: int = 2, *, anew: bool = True) -> list[str]:
    return [row["found"] for row in plugin.taken([unit], left, [unit["instance"]] if anew else [], cards)]


def test_a_port_that_a_service_without_an_entry_holds_is_refused() -> None:
    assert fought(service("new", 8000), remains()) == [
        "vllm@old serves on port 8000, which vllm@new wants, and has no entry"
    ]
    assert fought(service("new", 8000), remains(active=False)) == []


@pytest.mark.parametrize(
    ("unit", "left", "cards"),
    [
        (service("new", 1, (A,), 0.6), remains((A, B), "0.5"), 2),
        (service("new", 1, (A,), 0.6), remains((A,)), 2),  # vLLM's own part of the card
        (service("new", 1, (A,)), remains((A,), "0.5"), 2),
        (service("new", 1), remains(), 1),  # no list: the host's only GPU
        (service("new", 1, (A,)), remains(), 1),
    ],
)
def test_gpu_memory_that_a_service_without_an_entry_holds_is_refused(
    unit: dict[str, Any], left: list[dict[str, Any]], cards: int
) -> None:
    (found,) = fought(unit, left, cards)
    assert found.startswith("vllm@old, which has no entry, and vllm@new on ")
    assert fought(unit, left, cards, anew=False) == [], "what runs beside it already has its memory"


@pytest.mark.parametrize(
    ("unit", "left", "cards"),
    [
        (service("new", 1, (A,), 0.5), remains((A,), "0.5"), 2),
        (service("new", 1, (A,)), remains((B,)), 2),
        (service("new", 1), remains((B,)), 2),  # which card it takes is not known
        (service("new", 1), remains(), 0),  # the CPU build
    ],
)
def test_what_has_room_beside_a_service_without_an_entry_starts(
    unit: dict[str, Any], left: list[dict[str, Any]], cards: int
) -> None:
    assert fought(unit, left, cards) == []


@pytest.mark.parametrize(
    "words", ["--gpu-memory-util 0.5", "--gpu_memory_utilization=.5", "--gpu-memory-utilization '0.5'"]
)
def test_a_unit_that_somebody_wrote_by_hand_is_read_as_vllm_reads_its_launch(words: str) -> None:
    (left,) = remains((A,), "0.5")
    left["unit"] = left["unit"].replace("--gpu-memory-utilization 0.5", words)
    assert fought(service("new", 1, (A,), 0.5), [left]) == []
    assert fought(service("new", 1, (A,), 0.6), [left]) != []


@pytest.mark.parametrize("unit", ["", "[Service]\nExecStart=/opt/vllm/bin/vllm serve 'm\n"])
def test_a_unit_that_is_gone_or_cannot_be_read_names_no_card(unit: str) -> None:
    (left,) = remains((A,), "0.5")
    assert fought(service("new", 1, (A,), 0.6), [{**left, "unit": unit}]) == []
