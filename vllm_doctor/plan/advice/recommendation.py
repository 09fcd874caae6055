"""What a recommendation is made of: the workload, the flags with their reasons and sums, and what counts as safe."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Literal

import msgspec

from vllm_doctor.plan.prediction.points import TOO_FEW_STATES
from vllm_doctor.plan.prediction.record import GIB, Prediction

Profile = Literal["conservative", "balanced", "max"]
PROFILES: tuple[Profile, ...] = ("conservative", "balanced", "max")
Changes = dict[str, str | bool | None]
POOL = "KV cache"  # the name of the sum that says what is left for it
Predict = Callable[[Changes], Prediction]  # what a launch with these options in it would do


class Workload(msgspec.Struct, frozen=True):
    """What the service must do: tokens of the longest request, requests at once, and the mean request. None is not
    said."""

    context: int | None = None
    concurrency: int | None = None
    mean_tokens: int | None = None
    source: str = ""


class Sum(msgspec.Struct, frozen=True):
    """One line of arithmetic."""

    name: str
    value: float
    unit: str
    formula: str
    source: str


class Reason(msgspec.Struct, frozen=True):
    """Why a flag has its value."""

    flag: str
    why: str
    arithmetic: tuple[Sum, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """The recommended flags, what they predict, and why. `dropped` are options of the launch that the release refuses
    beside the model or the cards: the recommended launch has them not."""

    launch: dict[str, int | float | str | bool]
    predicted: Prediction
    because: tuple[Reason, ...]
    dropped: frozenset[str] = frozenset()


# The odds of getting beyond graphs and warm-up from which a launch is advised: on small cards the release's own
# defaults leave no more.
_LIKELY = 0.6


def safe(p: Prediction) -> bool:
    """Would this start even at the low end of the range?"""
    if p.outcome != "ok" or p.available_kv_gib is None:
        return False
    if p.doubtful == TOO_FEW_STATES:
        return False  # at the low end
    if p.odds is not None and p.doubtful != "kv-too-small" and p.odds < _LIKELY:
        return False
    low = p.margin_gib[0] if p.margin_gib is not None else p.available_kv_gib
    block = p.checked.block_bytes / GIB if p.checked is not None else 0.0
    return low >= p.needed_kv_gib + block


def requests_held(p: Prediction, length: int) -> tuple[float, float] | None:
    """Requests of this length at once that the pools of all ranks hold: at the low end of the range, and in its
    middle."""
    if p.pool is None or p.available_kv_gib is None:
        return None
    low = p.margin_gib[0] if p.margin_gib is not None else p.available_kv_gib
    ranks = p.settings.parallel.dp  # each with a pool of its own
    at = [ranks * p.pool.concurrency(p.pool.blocks(max(0.0, gib) * GIB), length) for gib in (low, p.available_kv_gib)]
    return at[0], at[1]


class Holds(IntEnum):
    """How surely a launch holds the workload's requests at once."""

    NO = 0
    IN_THE_MIDDLE = 1  # of the range
    SURELY = 2  # at its low end too


def holds(p: Prediction, work: Workload) -> Holds:
    """Does this launch hold the workload's requests at once? Surely, where none or no cache is asked for."""
    held = requests_held(p, work.mean_tokens or work.context or p.length)
    if work.concurrency is None or held is None or held[0] >= work.concurrency:
        return Holds.SURELY
    return Holds.IN_THE_MIDDLE if held[1] >= work.concurrency else Holds.NO


def table_tokens(total_gib: float) -> int:
    """max_num_batched_tokens that published guides give for a card's size (24 GB 4096, 40 GB 8192, 80 GB 16384 to
    24576): the floor of the choice where it fits. Below 24 GB they give none; 2048 is vLLM's own default there."""
    if total_gib < 20:
        return 2048
    if total_gib < 35:
        return 4096
    if total_gib < 70:
        return 8192
    return 16384 if total_gib < 120 else 24576
