"""Which cards a service may use: what CUDA_VISIBLE_DEVICES will hold, judged before any host is asked.

A UUID in full is one card for ever. An index follows the bus (the unit sets CUDA_DEVICE_ORDER=PCI_BUS_ID) and means
another card once one has fallen off, so a service with some of the cards says that it may.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge.compat import table  # noqa: E402
from vllm_doctor.knowledge.gpus import UUID  # noqa: E402

PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?", re.IGNORECASE)
LISTED = "as nvidia-smi -L on the host lists them"


def card_problems(
    units: Iterable[Mapping[str, Any]], variables: Mapping[str, Any], cards: Sequence[Mapping[str, Any]] | None = None
) -> list[dict[str, str]]:
    """List what is wrong with the cards of each service, as {found, needed, do}; `do` is the line to write.

    `cards` is what NVML said of the host in its local fact ({index, uuid}), where the facts are there already.
    """
    if variables["variant"] == "cpu":
        return []
    return [row for unit in units for row in _of_unit(unit, variables, cards or [])]


def _of_unit(
    unit: Mapping[str, Any], variables: Mapping[str, Any], cards: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, str]]:
    place = f"vllm_instances: gpus of {unit['instance']}" if "gpus" in unit["own"] else "vllm_gpus"
    named = [str(card) for card in unit["gpus"]]
    indexes = [card for card in named if card.isdigit()]
    reads_uuids = table().reads_device_uuids(unit["version"])

    def row(cards: Iterable[str], needed: str, do: str) -> dict[str, str]:
        return {"found": f"{unit['name']}: {place}: {', '.join(cards)}", "needed": needed, "do": f"{place}: {do}"}

    if twice := sorted({card for card in named if named.count(card) > 1}):
        yield row(twice, "each card once: CUDA shows none at all otherwise", f"[{', '.join(dict.fromkeys(named))}]")
    if indexes and reads_uuids is not False and not _may(indexes, variables):
        known = {str(card["index"]): card["uuid"] for card in cards if card.get("uuid")}
        line = ", ".join(known.get(index, "GPU-…") for index in indexes)
        yield row(
            indexes,
            "UUIDs: an index means another card once one has fallen off the bus",
            f"[{line}]{'' if {*indexes} <= {*known} else f', {LISTED}'}; or vllm_gpus_by_index: true",
        )
    uuids = [card for card in named if re.fullmatch(UUID, card)]
    if uuids and reads_uuids is False:
        yield row(
            uuids,
            f"indexes: vLLM {unit['version']} ends at a UUID (invalid literal for int)",
            f"[0], the index that nvidia-smi -L shows; or vllm_version {table().device_uuids_from} or newer",
        )
    for card in named:
        if card not in indexes and card not in uuids:
            yield row([card], _instead(card), f"[GPU-…], {LISTED}")


def _may(indexes: Iterable[str], variables: Mapping[str, Any]) -> bool:
    """Whether the inventory consents, or the service has every card of the host, so that no other is taken for one."""
    count = variables.get("gpu_count")
    return variables["gpus_by_index"] or {*indexes} == {str(index) for index in range(count or 0)}


def _instead(card: str) -> str:
    if card.startswith(("GPU-", "MIG-")):
        return "the UUID in full: CUDA takes its beginning too, vLLM does not"
    if PCI.fullmatch(card):
        return "the card's UUID: CUDA reads no PCI addresses"
    return "the UUID of a card or of a MIG slice"


class FilterModule:
    """The filter of cards."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name it."""
        return {"vllm_card_problems": card_problems}
