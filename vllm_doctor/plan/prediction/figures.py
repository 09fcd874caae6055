"""One stage's memory as vLLM counts it, and the pool that it leaves."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import Scheme
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.record import GIB
from vllm_doctor.plan.prediction.spreads import STEP, Spread, range_of, spreads_of
from vllm_doctor.plan.prediction.stage import Stage, stage_of
from vllm_doctor.plan.terms.outside_torch import Estimate, graphs, non_torch, not_of_torch


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One stage's memory in GiB as vLLM counts it; `available` and `margin` None where the question gave no card."""

    weights: float
    rest: float
    stays: float  # of the rest, what stays taken where torch runs short
    active: float
    captured: Estimate
    charged: float
    budget: float | None
    available: float | None
    margin: tuple[float, float] | None
    spreads: tuple[Spread, ...] = ()


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool holds; None where there is no pool, or no memory for one."""

    length: int
    longest: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    concurrency: float | None = None


def figures_of(  # noqa: PLR0917
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms, fmt: Scheme, index: int
) -> tuple[Figures, Stage]:
    """Each term as it is planned or known, and what they leave for the cache."""
    stage = stage_of(a, s, gpu, index, fmt)
    outside = non_torch(a, s, gpu, total_gib, last_stage=index == s.parallel.pp - 1)
    stays = not_of_torch(a, s, gpu, total_gib, last_stage=index == s.parallel.pp - 1)
    weights = known.weights_gib if known.weights_gib is not None else stage.weights / GIB
    rest = known.non_torch_gib if known.non_torch_gib is not None else outside.gib + _kept(stage, known)
    active = known.activation_gib if known.activation_gib is not None else stage.activation.peak / GIB
    captured = graphs(a, s, gpu, index) if known.graphs_gib is None else Estimate(known.graphs_gib, 0.02, 0.02)
    charged = _charged(s, captured, known, gpu)
    budget = total_gib * s.utilization if total_gib is not None and counts_all(gpu) else None
    available = known.available_kv_gib
    if available is None and s.kv_bytes:
        available = s.kv_bytes / GIB
    margin = None if available is None else (available, available)
    spreads: list[Spread] = []
    if available is None and budget is not None:
        available = budget - weights - rest - active - charged
        spreads = spreads_of(
            a, s, fmt, weights, stage, outside, captured if charged else None, known, gpu=gpu, total_gib=total_gib
        )
        if s.on_a100 is not None:
            seqs, batched = s.on_a100
            there = replace(s, seqs=seqs, batched=batched, on_a100=None)
            other = figures_of(a, there, gpu, total_gib, known, fmt, index)[0].available or available
            spreads.append(Spread(STEP, max(0.0, available - other), max(0.0, other - available)))
        below, above = range_of(spreads)
        margin = (available - below, available + above)
    found = Figures(
        weights=weights,
        rest=rest,
        stays=rest if known.non_torch_gib is not None else min(rest, stays + _kept(stage, known)),
        active=active,
        captured=captured,
        charged=charged,
        budget=budget,
        available=available,
        margin=margin,
        spreads=tuple(spreads),
    )
    return found, stage


def _kept(stage: Stage, known: KnownTerms) -> float:
    """GiB of torch's that the profile's pass leaves behind; the copy that a first start may leave is of that pass."""
    return (stage.activation.kept + (stage.staying if known.activation_gib is None else 0.0)) / GIB


def counts_all(gpu: Card | None) -> bool:
    """Are all terms known of this device? Of a build of which no start was compared only weights and cache are."""
    return gpu is None or gpu.compared


def held_by(s: Settings, stage: Stage, available: float | None) -> Held:
    """The pool of `available` GiB in blocks and tokens."""
    pool, checked = stage.pool, stage.checked
    if pool is None or checked is None or available is None or available <= 0:
        return Held(length=s.length)
    blocks = s.blocks_override or pool.blocks(available * GIB)
    overridden = s.blocks_override and s.does.plans_by_overridden_blocks
    longest = checked.longest(blocks * checked.block_bytes if overridden else available * GIB, s.length)
    length = longest if s.auto_length and longest else s.length
    return Held(
        length=length,
        longest=longest,
        blocks=blocks,
        tokens=pool.tokens(blocks, length),
        concurrency=pool.concurrency(blocks, length),
    )


def full(held: Held) -> bool:
    """Is there no room for one request?"""
    return held.longest is None or held.longest < held.length


def _charged(s: Settings, captured: Estimate, known: KnownTerms, gpu: Card | None) -> float:
    """GiB of graphs that the release takes out of the budget."""
    if gpu is not None and gpu.backend != "CUDA" and not s.does.charges_graphs_elsewhere:
        return 0.0
    if known.activation_gib is not None and s.does.measures_consumed:
        return 0.0  # the logged peak has them
    return captured.gib if s.estimate_graphs and (s.does.v2_charges_graphs or not s.v2_runner) else 0.0
