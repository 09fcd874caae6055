"""What two services of one host cannot share: a name, a port, a card of which each wants more than is left."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.launch import devices  # noqa: E402
from vllm_doctor.launch.command import parse_command  # noqa: E402
from vllm_doctor.launch.unit_text import read_unit  # noqa: E402

Unit = Mapping[str, Any]


def collisions(units: Sequence[Unit], variant: str) -> list[dict[str, str]]:
    """List what the services of one host would fight over, as {found, needed, do}; `do` is the line to write."""
    return [*_names(units), *_ports(units), *([] if variant == "cpu" else _cards(units))]


def taken(
    units: Sequence[Unit], unlisted: Sequence[Mapping[str, Any]], anew: Sequence[str], cards: int
) -> list[dict[str, str]]:
    """List the ports and the GPU memory that a service of no entry holds and a listed one wants.

    `unlisted` are what vllm_host says of services: which cards one has, and how much of each, stands in its unit.
    `anew` are the instances that this run starts: what runs beside it already has its memory. `cards` is how many the
    host has: with one, a service without a list of cards is on it, too.
    """
    serving = [{**one, **_memory_of(one["unit"])} for one in unlisted if one["active"]]
    starting = [unit for unit in units if unit["instance"] in anew]
    holders = {str(one["url"]).rpartition(":")[2]: one["name"] for one in serving if one["url"]}
    ports = [
        {
            "found": f"{holder} serves on port {unit['port']}, which {unit['name']} wants, and has no entry",
            "needed": "one port each",
            "do": f"vllm_remove_unlisted: true, which lets {holder} drain and removes it; or another port",
        }
        for unit in units
        if (holder := holders.get(str(unit["port"])))
    ]
    memory = [
        {
            "found": f"{holder['name']}, which has no entry, and {unit['name']} on {card}; gpu_memory_utilization: "
            f"{holder['name']} {holder['memory'] or 'not set'}, {unit['name']} {_share(unit) or 'not set'}",
            "needed": "a GPU each, or values that add up to 1 at most",
            "do": f"vllm_remove_unlisted: true, which lets {holder['name']} drain and removes it; or other gpus",
        }
        for unit in starting
        for holder in serving
        if (card := _common(unit["gpus"], holder["gpus"], cards)) and not _both_fit(_share(unit), holder["memory"])
    ]
    return [*ports, *memory]


def _memory_of(unit: str) -> dict[str, Any]:
    """Name the cards that a unit gives to vLLM, and how much of each vLLM may take, None where that is not set.

    A unit that cannot be read says neither.
    """
    try:
        read = read_unit(unit)
    except ValueError:
        return {"gpus": [], "memory": None}
    cards = read.env.get(devices.NAME, "").split(",")
    return {"gpus": [card for card in cards if card], "memory": _share({"arguments": parse_command(read.words).flags})}


def _common(wanted: Sequence[str], held: Sequence[str], cards: int) -> str:
    """Name a card of both; without a list vLLM takes the first that it sees, which is known where there is one."""
    if wanted and held:
        return next((card for card in wanted if card in held), "")
    return next(iter((*wanted, *held, "the host's only GPU")), "") if cards == 1 else ""


def _both_fit(wanted: float | None, held: float | None) -> bool:
    return wanted is not None and held is not None and wanted + held <= 1


def _names(units: Sequence[Unit]) -> Iterator[dict[str, str]]:
    for name, here in _shared(units, "instance").items():
        places = " and ".join(str(units.index(unit) + 1) for unit in here)
        yield {
            "found": f"two instances with name {name}: entries {places} of vllm_instances",
            "needed": "one name each",
            "do": f"vllm_instances: {{name: {_free(name, units)}}} in one of them",
        }


def _ports(units: Sequence[Unit]) -> Iterator[dict[str, str]]:
    taken = {str(unit["port"]) for unit in units}
    for port, here in _shared(units, "port").items():
        others = (*range(int(port) + 1, 65536), *range(1024, 65536)) if port.isdecimal() else ()
        free = next((str(n) for n in others if str(n) not in taken), "…")
        yield {
            "found": f"two instances with port {port}: {_listed(here)}",
            "needed": "one port each",
            "do": f"vllm_instances: {{name: {here[-1]['instance']}, port: {free}}}",
        }


def _cards(units: Sequence[Unit]) -> Iterator[dict[str, str]]:
    """vLLM takes its share of a whole card, 0.9 or so unless told, and refuses to start where less is free."""
    seen: set[tuple[str, ...]] = set()
    for card in [*dict.fromkeys(card for unit in units for card in unit["gpus"]), None]:
        # Without a list a service sees every card, and takes the first of them.
        here = [unit for unit in units if not unit["gpus"] or card in unit["gpus"]]
        if len(here) < 2 or (key := tuple(unit["instance"] for unit in here)) in seen:
            continue
        seen.add(key)
        shares = [_share(unit) for unit in here]
        known = [share for share in shares if share is not None]
        if len(known) == len(here) and sum(known) <= 1:
            continue
        said = ", ".join(f"{unit['name']} {share or 'not set'}" for unit, share in zip(here, shares, strict=True))
        each = int(90 / len(here)) / 100
        entries = ", ".join(f"{{name: {unit['instance']}, gpu_memory_utilization: {each}}}" for unit in here)
        yield {
            "found": f"{len(here)} instances on {card or 'the same GPU'}; gpu_memory_utilization: {said}",
            "needed": "a GPU each, or values that add up to 1 at most",
            "do": f"vllm_instances: [{entries}], or other gpus",
        }


def _share(unit: Unit) -> float | None:
    try:
        return float(unit["arguments"]["gpu-memory-utilization"])
    except (KeyError, TypeError, ValueError):
        return None


def _shared(units: Iterable[Unit], key: str) -> dict[str, list[Unit]]:
    found: dict[str, list[Unit]] = {}
    for unit in units:
        found.setdefault(str(unit[key]), []).append(unit)
    return {value: here for value, here in found.items() if len(here) > 1}


def _free(name: str, units: Sequence[Unit]) -> str:
    names = {unit["instance"] for unit in units}
    return next(word for number in range(2, len(units) + 3) if (word := f"{name}-{number}") not in names)


def _listed(units: Iterable[Unit]) -> str:
    return ", ".join(unit["name"] for unit in units)


class FilterModule:
    """The filters of what collides."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {"vllm_collisions": collisions, "vllm_taken": taken}
