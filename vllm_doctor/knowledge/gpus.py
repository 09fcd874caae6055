"""NVIDIA cards: what torch reports as total memory, compute capability, multiprocessors, links; MIG slices of them.

Totals are in GiB as cudaMemGetInfo reports them (below the nameplate: ECC and firmware keep a part), read from
start-up logs or nvidia-smi listings; `exact` is False where only the nameplate is known and about 1.5 % is taken off.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from vllm_doctor.knowledge.generations import ADA
from vllm_doctor.knowledge.pattern import Pattern

# A card's or a MIG slice's own name, in full, as NVML gives it.
UUID = r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Card:
    """One kind of card. `unified` shares the host's memory; `link` is how cards of one host reach each other.
    `other_gib` is the memory that a card of the same name is also sold with, `up_to_gib` the most that torch reports of
    it, with older drivers or under WSL, `backend` the build of vLLM that it runs, `compared` whether starts of that
    build on this kind of card were compared with a plan, `speed_as` its name in aiconfigurator
    (systems/*.yaml of 0.12.0), `bandwidth` what its memory reads in GB/s (10^9 bytes; NVIDIA's data sheets, of the
    slowest that is sold under the name)."""

    name: str
    total_gib: float
    capability: float | None
    multiprocessors: int
    link: str = "pcie"
    unified: bool = False
    exact: bool = True
    template: str = "generic"
    slice: bool = False
    other_gib: float | None = None
    up_to_gib: float | None = None
    backend: str = "CUDA"
    compared: bool = True
    speed_as: str | None = None
    bandwidth: float | None = None

    @property
    def alone(self) -> bool:
        """Is there one to a machine? A notebook's name says so."""
        return self.name.endswith(" Laptop GPU")

    @property
    def of_pc(self) -> bool:
        """Is it one that Windows runs on, whose total is all of its memory under WSL? Torch reports 12.00 GiB of an RTX
        2060, 15.92 of a 5070 Ti, 23.99 of a 4090 and 31.84 of a 5090 there."""
        return " GeForce " in self.name

    @property
    def bridged(self) -> bool:
        """Does each card of a host reach every other by a link of the maker's own?"""
        return self.link in {"nvlink", "xgmi"}

    @property
    def computes_fp8(self) -> bool:
        """Does it multiply FP8 matrices itself?"""
        return (self.capability or 0) >= ADA


@cache
def _table() -> dict[str, Card]:
    rows = json.loads(Path(__file__).with_name("gpus.json").read_text(encoding="utf-8"))["gpus"]
    return {row["name"]: Card(**{k: v for k, v in row.items() if k not in {"aliases", "source"}}) for row in rows}


@cache
def _accelerators() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path(__file__).with_name("accelerators.json").read_text(encoding="utf-8"))
    return read


@cache
def _others() -> dict[str, Card]:
    return {
        _key(name): Card(
            row["name"],
            row["total_gib"] or 0.0,
            None,
            0,
            unified=row.get("unified", False),
            exact=False,
            backend=row["backend"],
            link=row.get("link", "pcie"),
            compared=row.get("compared", False),
        )
        for row in _accelerators()["accelerators"]
        for name in (row["name"], *row["aliases"])
    }


@dataclass(frozen=True)
class DeviceTool:
    """What a maker gives for its devices: its `name`, how it lists the processes that hold their memory and, where that
    is known, how it tells what holds the clocks down."""

    platform: str
    name: str
    holders: str
    clocks: str = ""


@cache
def _tools() -> tuple[DeviceTool, ...]:
    return tuple(DeviceTool(**row) for row in _accelerators()["tools"])


def device_tool(platform: str | None) -> DeviceTool:
    """The tool of vLLM's platform of this name; NVIDIA's, the first of the table, for one that has none."""
    return next((tool for tool in _tools() if tool.platform == platform), _tools()[0])


@dataclass(frozen=True)
class OnChip:
    """The devices of one platform of vLLM on which a block of a kernel may have so many bytes of on-chip memory, with
    the compute capabilities that NVIDIA's of them have."""

    platform: str
    bytes: int
    capabilities: tuple[float, ...]


def with_on_chip(limit: int) -> tuple[OnChip, ...]:
    """Whose devices have exactly this limit of on-chip memory (bytes), as the driver tells it; empty for one that is
    not known."""
    rows = (OnChip(row["platform"], row["bytes"], tuple(row["capabilities"])) for row in _accelerators()["on_chip"])
    return tuple(row for row in rows if row.bytes == limit)


def unified_by_name(name: str) -> bool:
    """Does a word of a device's, or its board's, name say that its GPU has no memory of its own?"""
    words = " ".join(re.findall(r"[a-z0-9]+", name.lower()))
    return any(mark in words for mark in _accelerators()["unified_words"])


def unified_by_size(total_gib: float) -> bool:
    """Do all cards that torch calls `cuda` (NVIDIA's and AMD's) and that report about this much share the host's
    memory? Makers name some 6 % more than is reported."""
    cards = (*_table().values(), *(card for card in _others().values() if card.backend == "ROCm build"))
    alike = [card.unified for card in cards if 0.94 * card.total_gib <= total_gib <= 1.02 * card.total_gib]
    return bool(alike) and all(alike)


def elsewhere(name: str, memory_gib: float | None = None) -> Card | None:
    """A device of this name that runs another build of vLLM than CUDA's, or None. `total_gib` is 0 where its name does
    not say its memory and nobody did."""
    key = re.sub(r"\b\d+gb\b", "", _key(name)).strip()
    brands = [brand for maker in _accelerators()["makers"] for brand in maker["brands"]]
    short = {k.removeprefix(f"{brand} "): card for k, card in _others().items() for brand in brands if brand in k}
    bare = key.removeprefix("amd ").removeprefix("intel ")
    card = next((kind[word] for kind in (_others(), short) for word in (key, bare) if word in kind), None)
    return card if card is None or memory_gib is None else replace(card, total_gib=memory_gib)


def other_maker(name: str) -> str | None:
    """The maker of a device that is not NVIDIA's, by a word of its name."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    maker = next((m["name"] for m in _accelerators()["makers"] if any(_is_one_of(m["words"], w) for w in words)), None)
    return maker if maker != "NVIDIA" else None


def unlisted(name: str, total_gib: float) -> Card | None:
    """A device of this size that only its maker's name tells, where all known devices of that maker run one build of
    vLLM; None otherwise."""
    maker = other_maker(name)
    builds = {card.backend for card in _others().values() if maker is not None and card.name.startswith(maker)}
    if len(builds) != 1:
        return None
    shared = unified_by_name(name)
    return Card(name, total_gib, None, 0, unified=shared, exact=False, backend=builds.pop(), compared=False)


def _is_one_of(patterns: list[str], word: str) -> bool:
    return any(re.fullmatch(pattern, word) for pattern in patterns)


def others_of(maker: str) -> tuple[str, ...]:
    """The devices of this maker that are known."""
    return tuple(dict.fromkeys(card.name for card in _others().values() if card.name.startswith(maker)))


@cache
def _aliases() -> dict[str, str]:
    rows = json.loads(Path(__file__).with_name("gpus.json").read_text(encoding="utf-8"))["gpus"]
    return {_key(alias): row["name"] for row in rows for alias in (row["name"], *row.get("aliases", []))}


def _key(name: str) -> str:
    """Letters and digits that tell cards apart: vendor, brand words, units and form words dropped."""
    lowered = re.sub(r"(?<!\d)(\d+)\s{0,20}(gib|gb)\b", r"\1gb", name.lower())
    words = re.findall(r"[a-z0-9]+", lowered)
    drop = {
        "nvidia",
        "tesla",
        "geforce",
        "graphics",
        "gpu",
        "generation",
        "edition",
        "blackwell",
        "tensor",
        "core",
        "workstation",
        "server",
        "max",
        "q",
    }
    return " ".join(w for w in words if w not in drop)


def names() -> tuple[str, ...]:
    """All names, for `--gpu` and completion; a name that is sold with two sizes with each of them."""
    sizes = {name: (c.total_gib, c.other_gib) for name, c in _table().items()}
    return tuple(
        name if other is None else f"{name} {nominal(size)}GB"
        for name, (own, other) in sizes.items()
        for size in ((own,) if other is None else (own, other))
    )


def nominal(gib: float) -> int:
    """The size that a card of so much memory is sold under, in GB."""
    return next((size for size in (6, 8, 10, 12, 16, 24, 32, 48, 64, 72, 80, 96) if size >= gib), 128)


def links_of(total_gib: float) -> set[str]:
    """How cards of about this memory (a tenth more or less) reach each other."""
    return {card.link for card in _table().values() if abs(card.total_gib - total_gib) <= 0.1 * total_gib}


_SLICE = Pattern(r"[\s-](?:MIG[\s-]+)?(?:\d+c\.)?(\d)g\.(\d+)gb\b(?:\+\S+)?", re.IGNORECASE)
# A slice has this share of what its profile is called after (3g.40gb: 39.1 GiB; NVIDIA, MIG user guide, profiles).
_SLICE_SHARE = 0.977


def _sliced(card: Card, gpcs: int, size: int, memory_gib: float | None) -> Card:
    """A MIG slice: its own memory, its sevenths of the multiprocessors, no way to another slice but the host."""
    total = memory_gib or min(round(size * _SLICE_SHARE, 2), card.total_gib)
    return replace(
        card,
        name=f"{card.name} MIG {gpcs}g.{size}gb",
        total_gib=total,
        multiprocessors=card.multiprocessors * gpcs // 8,
        link="pcie",
        exact=False,
        slice=True,
        bandwidth=card.bandwidth and card.bandwidth * total / card.total_gib,
    )


# A virtual GPU by its profile: card, slices of MIG, GB, and the kind of licence; of them C and Q run CUDA, A and B do
# not (NVIDIA, Virtual GPU Software User Guide, virtual GPU types).
_PROFILE = Pattern(r"(?:(?:NVIDIA|GRID)\s+)?([A-Z][A-Z0-9 ]{0,30}?)(?:-(\d))?-(\d{1,3})([CQ])", re.IGNORECASE)
# What a profile calls cards that are sold with two sizes or in two forms; others it calls as they are.
_PROFILED = {
    "A100": "A100-PCIE-40GB",
    "A100D": "A100 80GB PCIe",
    "A100X": "A100-SXM4-40GB",
    "A100DX": "A100-SXM4-80GB",
    "A800D": "A800 80GB PCIe",
    "A800DX": "A800-SXM4-80GB",
    "H100": "H100 PCIe",
    "H100L": "H100 NVL",
    "H100XM": "H100 80GB HBM3",
    "H200L": "H200 NVL",
    "H200X": "H200",
    "H800XM": "H800",
    "V100": "V100-PCIE-16GB",
    "V100D": "V100-PCIE-32GB",
    "V100DX": "V100-SXM2-32GB",
    "V100X": "V100-SXM2-16GB",
    "RTX6000": "Quadro RTX 6000",
    "RTX8000": "Quadro RTX 8000",
    "RTXA5000": "RTX A5000",
    "RTXA5500": "RTX A5500",
    "RTXA6000": "RTX A6000",
}
# CUDA sees this share of a profile's GB, also of one as large as the card, which it sees less of itself (47.74 GiB of
# an A40-48Q, 44.42 of an A40, whose error correction keeps a part).
_PROFILE_SHARE = 0.9946


def _virtual(found: re.Match[str], memory_gib: float | None) -> Card | None:
    """A virtual GPU: a part of a card's memory, or a MIG slice of it, and no way to another but the host."""
    called, gpcs, size = found[1].upper(), found[2], int(found[3])
    card = _whole(_PROFILED.get(called, called), None)
    if card is None or size > 1.15 * card.total_gib:
        return None
    total = memory_gib or round(size * _PROFILE_SHARE, 2)
    if gpcs is not None:
        card = _sliced(card, int(gpcs), size, total)
    return replace(
        card, name=f"NVIDIA {found[0].split()[-1].upper()}", total_gib=total, link="pcie", exact=False, bandwidth=None
    )


def find(name: str, memory_gib: float | None = None) -> Card | None:
    """The card of this name as nvidia-smi, torch or a person writes it, or None. A family name with two sizes (A100,
    V100) is settled by `memory_gib` or a size in the name, else the larger one; more words than a card's name has make
    another card (an RTX 4090 Laptop), unless `memory_gib` is known. `… MIG 3g.40gb` is a slice, `A40-48Q` a
    virtual GPU."""
    if (found := _SLICE.search(name)) is not None:
        card = find(name[: found.start()])
        if card is None or int(found[2]) > card.total_gib * 1.05:
            return None
        return _sliced(card, int(found[1]), int(found[2]), memory_gib)
    if (profile := _PROFILE.fullmatch(name.strip())) is not None:
        return _virtual(profile, memory_gib)
    card = _whole(name, memory_gib)
    if card is None:
        name = _spelled(name)
        card = _whole(name, memory_gib) or _in_any_order(name)
    return card if card is None or card.other_gib is None else _sold_as(card, name, memory_gib)


def _spelled(name: str) -> str:
    """A name as people say it (4090, rtx3090ti, 3060 12G) in the words of the full one."""
    spaced = re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", name.lower())
    spaced = re.sub(r"(?<=\d)(ti|super)\b", r" \1", spaced)
    spaced = re.sub(r"\b(\d{1,3})\s?g\b", r"\1gb", spaced)
    return re.sub(r"^(?:nvidia\s|geforce\s)*(?=[2-5]0[5-9]0\b)", "rtx ", spaced)


def _in_any_order(name: str) -> Card | None:
    """The one card whose name has all of these words (A100 80GB SXM), of two sizes the larger; None where none has, or
    several."""
    words = _unordered(_key(name))
    if all(re.fullmatch(r"\d+gb|sxm|pcie", word) for word in words):
        return None
    found = {full for alias, full in _aliases().items() if words <= _unordered(alias)}
    if not found and "sxm" in words:  # most of a family are that, and its name does not say so
        found = {full for alias, full in _aliases().items() if words - {"sxm"} == _unordered(alias)}
    families = {re.sub(r"[-\s]\d+GB\b", "", full) for full in found}
    return max((_table()[full] for full in found), key=lambda c: c.total_gib) if len(families) == 1 else None


def _unordered(key: str) -> frozenset[str]:
    """A name's words, whatever generation of the socket it says."""
    return frozenset(re.sub(r"\bsxm\d\b", "sxm", key).split())


def _sold_as(card: Card, name: str, memory_gib: float | None) -> Card:
    """Of two cards with one name the one of this memory, or of the size in the name; both where neither is said."""
    sized = re.search(r"\b(\d+)gb\b", _key(name))
    said = memory_gib if memory_gib is not None else float(sized[1]) if sized is not None else None
    if said is None or card.other_gib is None:
        return card
    nearer = abs(card.other_gib - said) < abs(card.total_gib - said)
    total = card.other_gib if nearer else card.total_gib
    return replace(card, name=f"{card.name} {nominal(total)}GB", total_gib=total, other_gib=None)


def _whole(name: str, memory_gib: float | None) -> Card | None:
    key = _key(name)
    known = _aliases().get(key)
    if known is not None and (
        memory_gib is None or "gb" in key or _off(_table()[known], memory_gib) < 0.25 * memory_gib
    ):
        found = [_table()[known]]
    else:
        bare = re.sub(r"\b\d+gb\b", "", key).strip()
        found = [
            _table()[n]
            for k, n in _aliases().items()
            if bare and (k == bare or k.startswith(bare + " ") or (memory_gib is not None and bare.startswith(k + " ")))
        ]
    if not found:
        return None
    if memory_gib is not None:
        return min(found, key=lambda g: _off(g, memory_gib))
    if known is None and (sized := re.search(r"\b(\d+)gb\b", key)) is not None:
        # The name says a size: a card of the family with another one is another card.
        said = int(sized[1])
        nearest_one = min(found, key=lambda g: _off(g, said))
        return nearest_one if _off(nearest_one, said) < 0.1 * said else None
    return max(found, key=lambda g: g.total_gib)


def _off(card: Card, gib: float) -> float:
    """How far a size is from what cards of this name have."""
    return min(abs(size - gib) for size in (card.total_gib, card.other_gib) if size is not None)


def exactly(name: str) -> bool:
    """Is this a card's own name, or one that says as much of it?"""
    card = find(name)
    return card is not None and (card.slice or set(_key(card.name).split()) <= set(_key(name).split()))


def nearest(name: str, count: int = 3) -> tuple[str, ...]:
    """Names that look like this one, best first."""
    close = get_close_matches(_key(name), list(_aliases()), count * 2, 0.4)
    return tuple(dict.fromkeys(_aliases()[c] for c in close))[:count]


# What a driver keeps of a card, at least (GiB): of the cards up to 16 GiB, and of larger ones.
_KEPT_SMALL, _KEPT = 0.2, 0.25
_KEPT_MOST = 0.035


def usable_gib(card: Card, said_gib: float) -> float:
    """Of a size that was said of a card what CUDA sees: nvidia-smi's total has what the driver keeps, and is about as
    much larger than the total that start-up logs show (81559 MiB, 79.65 GiB, of an H100 are 79.19 to torch)."""
    least = _KEPT_SMALL if card.total_gib <= 16 else _KEPT
    whole = not (card.slice or card.unified) and card.exact and card.backend == "CUDA"
    more = said_gib - card.total_gib
    return card.total_gib if whole and least <= more <= _KEPT_MOST * card.total_gib else said_gib


def under_wsl(card: Card, said_gib: float) -> Card:
    """The card, of which CUDA may see all that nvidia-smi's total has where Windows runs on it."""
    return replace(card, up_to_gib=said_gib) if card.of_pc else card


def template_for(name: str | None, memory_gib: float | None = None) -> str:
    """The unit template (`templates/gpu/<this>.service.j2`) of a card by its NVML name; the generic one for others."""
    card = None if name is None else find(name, memory_gib)
    return "generic" if card is None else card.template
