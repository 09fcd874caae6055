"""The prediction: each term of vLLM's start-up, in its order, and the outcome."""

from __future__ import annotations

from math import sqrt

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import WEIGHED
from vllm_doctor.plan.model.quantization import Scheme
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.points import UNDER_LOAD, StartPoint, doubtful, first_end
from vllm_doctor.plan.prediction.record import GIB, Prediction
from vllm_doctor.plan.prediction.spreads import COMPILED, OF_PASS, OF_WEIGHTS, OUTSIDE, Spread, range_of, spreads_of
from vllm_doctor.plan.prediction.stage import Stage, quantization, stage_of
from vllm_doctor.plan.prediction.state_blocks import state_point
from vllm_doctor.plan.prediction.sums import start_terms
from vllm_doctor.plan.support import judge
from vllm_doctor.plan.terms.host import host_use
from vllm_doctor.plan.terms.kv import Pool
from vllm_doctor.plan.terms.outside_torch import Estimate, graphs, non_torch, not_of_torch
from vllm_doctor.plan.terms.term import Term

# The most of a step's activations that is taken as lost to fragmentation: a public log of 200000 batched tokens on
# 80 GB shows 6.19 GiB reserved but unallocated beside 19.5 GiB of live activations when 5.34 GiB more were refused.
# One log, so it widens the range and decides nothing.
FRAGMENTED = 6.19 / 19.5
# How much larger the second runner's sampler warm-up is than its tensors, give or take as much. One start: 20 % at
# least.
WARMED = 0.15


def predict(
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms | None = None
) -> Prediction:
    """Predict one start. `total_gib` is the card's memory as torch reports it; without it only the cache arithmetic
    of a known pool is given. Raises ConfigError for a broken quantization_config."""
    results = stages(a, s, gpu, total_gib, known)
    binding = min(results, key=_room_of)
    ranges = [p.margin_gib for p in results if p.margin_gib is not None]
    if len(ranges) < 2:
        return binding
    # Each stage logs a pool of its own; the claimed range holds them all.
    return replace(binding, margin_gib=(min(r[0] for r in ranges), max(r[1] for r in ranges)))


def _room_of(stage: Prediction) -> tuple[bool, bool, float, float]:
    """The stage that decides comes first: one that fails, one in doubt, then the one whose memory holds the fewest
    blocks (v1/core/kv_cache_utils.py get_kv_cache_configs takes the least of all ranks)."""
    blocks = stage.gpu_blocks if stage.gpu_blocks is not None else 0
    return stage.outcome == "ok", stage.odds is None, blocks, stage.available_kv_gib or 0.0


def _asked_stages(a: Architecture, par: Parallel) -> list[int]:
    """The first stage, the last one, and of those between, which have neither embedding nor head, the one with most
    layers where it has more: what remains of an equal division goes to them (distributed/utils.py get_pp_indices)."""
    layers = par.stages(len(a.layers))
    between = max(range(par.pp), key=lambda i: layers[i])
    more = layers[between] > min(layers[0], layers[-1])
    return sorted({0, par.pp - 1, *([between] if more else [])})


def stages(
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms | None = None
) -> list[Prediction]:
    """The prediction of the first and of the last pipeline stage, and of the heaviest one between: one where there is
    one. Raises as `predict`."""
    fmt = quantization(a, s)
    told = judge(a, s, gpu)
    # What is said of a method here says more than that the option's table lacks it.
    judged = {"--quantization"} & {refusal.flag for refusal in told.refusals}
    s = replace(s, refusals=(*(r for r in s.refusals if r.flag not in judged), *told.refusals), doubts=told.doubts)
    return [_one(a, s, gpu, total_gib, known or KnownTerms(), fmt, i) for i in _asked_stages(a, s.parallel)]


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


def _figures(  # noqa: PLR0917
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms, fmt: Scheme, index: int
) -> tuple[Figures, Stage]:
    """Each term as it is planned or known, and what they leave for the cache."""
    stage = stage_of(a, s, gpu, index, fmt)
    outside = non_torch(a, s, gpu, total_gib, last_stage=index == s.parallel.pp - 1)
    stays = not_of_torch(a, s, gpu, total_gib, last_stage=index == s.parallel.pp - 1)
    weights = known.weights_gib if known.weights_gib is not None else stage.weights / GIB
    rest = known.non_torch_gib if known.non_torch_gib is not None else outside.gib + stage.activation.kept / GIB
    active = known.activation_gib if known.activation_gib is not None else stage.activation.peak / GIB
    captured = graphs(a, s, gpu, index) if known.graphs_gib is None else Estimate(known.graphs_gib, 0.02, 0.02)
    charged = _charged(s, captured, known)
    budget = total_gib * s.utilization if total_gib is not None and _counts_all(gpu) else None
    available = known.available_kv_gib
    if available is None and s.kv_bytes:
        available = s.kv_bytes / GIB
    margin = None if available is None else (available, available)
    spreads: list[Spread] = []
    if available is None and budget is not None:
        available = budget - weights - rest - active - charged
        spreads = spreads_of(
            a, s, fmt, weights, stage, outside, captured if charged else None, known, named=gpu is not None
        )
        below, above = range_of(spreads)
        margin = (available - below, available + above)
    found = Figures(
        weights=weights,
        rest=rest,
        stays=rest if known.non_torch_gib is not None else min(rest, stays + stage.activation.kept / GIB),
        active=active,
        captured=captured,
        charged=charged,
        budget=budget,
        available=available,
        margin=margin,
        spreads=tuple(spreads),
    )
    return found, stage


def _counts_all(gpu: Card | None) -> bool:
    """Are all terms known of this device? Of another maker's only weights and cache are."""
    return gpu is None or gpu.backend == "CUDA"


def _held(s: Settings, stage: Stage, available: float | None) -> Held:
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


def _outcome(  # noqa: PLR0917
    s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms, f: Figures, held: Held, stage: Stage
) -> str:
    """What vLLM would end with before memory decides, or where nothing but the pool is known."""
    outcome = "rejected" if s.refusals else "unknown" if s.doubts else "ok"
    if outcome == "ok" and stage.pool is not None and f.available is not None and _full(held):
        outcome = "kv-too-small"
    if total_gib is None or known.available_kv_gib is not None or _counts_all(gpu):
        return outcome
    return "oom-weights" if outcome == "unknown" and f.weights > total_gib else outcome


# How much less the weights of a model type may be that is not known: experts without a gate have a third less.
_STRANGE_WEIGHTS = 0.35


def _unknown(  # noqa: PLR0917
    a: Architecture, s: Settings, gpu: Card | None, total: float, known: KnownTerms, f: Figures
) -> str:
    """What cannot be said, unless the weights alone are more than the card has."""
    strange = not a.known and a.model_type not in WEIGHED and known.weights_gib is None
    off = _STRANGE_WEIGHTS if strange else 0.02
    least = f.weights * (1 - off)
    return "oom-weights" if least > total - held_before_start(s, gpu) + _held_off(s, gpu) else "unknown"


def _full(held: Held) -> bool:
    """Is there no room for one request?"""
    return held.longest is None or held.longest < held.length


def _one(  # noqa: PLR0917
    a: Architecture, s: Settings, gpu: Card | None, total_gib: float | None, known: KnownTerms, fmt: Scheme, index: int
) -> Prediction:
    f, stage = _figures(a, s, gpu, total_gib, known, fmt, index)
    if f.budget is not None and known.available_kv_gib is None:
        short = _too_little_free(s, gpu, total_gib)
        s = s if short is None else replace(s, refusals=(*s.refusals, short))
    held = _held(s, stage, f.available)
    host = host_use(s, gpu, stage.pool, stage.offloaded, f.available)
    outcome = _outcome(s, gpu, total_gib, known, f, held, stage)
    if outcome in {"ok", "kv-too-small"} and known.host_gib is not None and host.total_gib > known.host_gib:
        outcome = "oom-host"
    if outcome == "unknown" and total_gib is not None and known.available_kv_gib is None and f.budget is not None:
        outcome = _unknown(a, s, gpu, total_gib, known, f)
    checked = stage.checked
    needed = checked.needed(held.length) / GIB if checked is not None else 0.0
    odds: float | None = None
    doubt: str | None = None
    lacking: float | None = None
    if outcome in {"ok", "kv-too-small"} and total_gib is not None and known.available_kv_gib is None:
        points = _points(s, gpu, total_gib, f, held, stage, needed)
        ends, odds = first_end(points)
        outcome, doubt = ends or "ok", doubtful(points) if odds is not None else None
        step = next((p for p in points if p.outcome == UNDER_LOAD), None)
        if step is not None and UNDER_LOAD in {outcome, doubt}:
            lacking = step.below - step.left
    return Prediction(
        outcome=outcome,
        odds=odds,
        doubtful=doubt,
        widest=max(f.spreads, key=lambda x: x.below + x.above, default=None),
        taken=start_terms(
            weights=f.weights,
            outside=f.rest,
            activation=f.active,
            graphs=f.captured,
            winner=stage.activation.winner,
            spreads=f.spreads,
            known=known,
        ),
        weights_gib=f.weights,
        non_torch_gib=f.rest,
        activation_gib=f.active,
        cudagraph_gib=f.captured.gib,
        cudagraph_budget_gib=f.charged,
        available_kv_gib=f.available,
        margin_gib=f.margin,
        kv_tokens=held.tokens,
        gpu_blocks=held.blocks,
        length=held.length,
        concurrency=held.concurrency,
        longest=held.longest,
        needed_kv_gib=needed,
        budget_gib=f.budget,
        total_gib=total_gib,
        terms=_terms(stage),
        pool=stage.pool,
        checked=checked,
        activation=stage.activation,
        settings=s,
        host=host,
        stage=index,
        lacking_gib=lacking,
    )


def _charged(s: Settings, captured: Estimate, known: KnownTerms) -> float:
    """GiB of graphs that the release takes out of the budget."""
    if known.activation_gib is not None and s.does.measures_consumed:
        return 0.0  # the logged peak has them
    return captured.gib if s.estimate_graphs and (s.does.v2_charges_graphs or not s.v2_runner) else 0.0


def _terms(stage: Stage) -> tuple[Term, ...]:
    if not stage.stranded:
        return stage.activation.terms
    lost = Term(
        "stranded while loading",
        stage.stranded,
        "gate and up minus down, of each layer's experts; missing once pool and graphs are there",
        "vLLM pull request 41268",
    )
    return (*stage.activation.terms, lost)


def held_before_start(s: Settings, gpu: Card | None) -> float:
    """GiB in use before vLLM's snapshot: CUDA context, and since 0.11 NCCL too. Worker start logs: 0.17 to 0.61 on one
    card (six hosts), 0.63, 0.63 and 0.96 with ranks over PCIe, 1.5 to 2.0 over NVLink."""
    if gpu is not None and gpu.unified:
        return 2.0
    linked = gpu is None or gpu.link == "nvlink"
    if s.parallel.tp * s.parallel.pp > 1 and s.does.nccl_before_snapshot:
        return 1.6 if linked else 0.65
    return 0.5


def _too_little_free(s: Settings, gpu: Card | None, total_gib: float | None) -> Refusal | None:
    """The check at the very start, since 0.9.2: free memory must cover utilization x total (v1/worker/utils.py
    request_memory)."""
    if total_gib is None or s.engine == "V0" or not s.does.checks_free_at_start or s.kv_bytes:
        return None
    free = total_gib - held_before_start(s, gpu)
    if s.utilization * total_gib <= free:
        return None
    return Refusal(
        "--gpu-memory-utilization",
        f"{s.utilization:g}, that is {s.utilization * total_gib:.2f} GiB",
        f"at most {free:.2f} GiB, the free memory that vLLM sees (contexts and NCCL take the rest)",
    )


# How far what is in use before vLLM looks may be off, in GiB: one context, NCCL over PCIe, NCCL over NVLink.
_HELD_ONE, _HELD_PCIE, _HELD_NVLINK, _HELD_UNIFIED = 0.2, 0.35, 0.5, 1.0


def _held_off(s: Settings, gpu: Card | None) -> float:
    if gpu is not None and gpu.unified:
        return _HELD_UNIFIED
    if s.parallel.tp * s.parallel.pp > 1 and s.does.nccl_before_snapshot:
        return _HELD_NVLINK if gpu is None or gpu.link == "nvlink" else _HELD_PCIE
    return _HELD_ONE


def _points(  # noqa: PLR0917
    s: Settings, gpu: Card | None, total: float, f: Figures, held: Held, stage: Stage, needed: float
) -> list[StartPoint]:
    """Where memory may run out, in the order of the start."""
    points: list[StartPoint] = []
    if _counts_all(gpu):
        points += _before_the_pool(s, gpu, total, f, stage.loading / GIB)
    if stage.checked is not None and f.available is not None:
        points.append(_pool_point(s, f, held, stage.checked, needed))
        states = state_point(s, gpu, stage.pool, f.available, f.margin)
        points += [] if states is None else [states]
    if _counts_all(gpu):
        points += _after_the_pool(s, gpu, total, f, stage)
    return points


def _before_the_pool(s: Settings, gpu: Card | None, total: float, f: Figures, loading: float) -> list[StartPoint]:
    """While weights are loaded, with `loading` GiB beside them, and in the profile's pass."""
    free, off = total - held_before_start(s, gpu), _held_off(s, gpu)
    loaded = [x for x in f.spreads if x.term in OF_WEIGHTS]
    # What V0 of old counts outside torch holds blocks that torch gives back when it runs short.
    outside = set() if s.does.counts_used_memory else {OUTSIDE}
    passed = [*loaded, *(x for x in f.spreads if x.term in {*OF_PASS, *outside})]
    found: list[StartPoint] = []
    for outcome, left, spreads in (
        ("oom-weights", free - f.weights - loading, loaded),
        ("oom-profile", free - f.weights - f.stays - f.active, passed),
    ):
        below, above = range_of([*spreads, Spread("before the start", off, off)])
        found.append(StartPoint(outcome=outcome, left=left, below=below, above=above))
    return found


def _pool_point(s: Settings, f: Figures, held: Held, checked: Pool, needed: float) -> StartPoint:
    """The check that one request fits. A length that follows the pool, and a pool of given blocks, leave no doubt but
    whether there is one."""
    available = f.available or 0.0
    if s.auto_length or s.blocks_override or f.margin is None:
        return StartPoint(outcome="kv-too-small", left=-1.0 if _full(held) else 1.0, below=0.0, above=0.0)
    least = needed + (checked.block_bytes / GIB if checked.rules.reserve_null_block else 0.0)
    left = available - least
    left = min(left, -1e-9) if _full(held) else max(left, 0.0)
    below, above = available - f.margin[0], f.margin[1] - available
    # What lies in the claimed range is in doubt, to its ends.
    return StartPoint(outcome="kv-too-small", left=left, below=below, above=above, doubt=0.05)


def _after_the_pool(s: Settings, gpu: Card | None, total: float, f: Figures, stage: Stage) -> list[StartPoint]:
    """While graphs are captured, while the sampler is warmed up, and in the first full step. What the pool took is what
    vLLM measured as free, so errors of weights and of what lies outside torch cancel, but where its size is given."""
    free = total - held_before_start(s, gpu)
    left = free - f.weights - f.stays - max(f.available or 0.0, 0.0) - f.captured.gib - stage.stranded / GIB
    off = _held_off(s, gpu)
    # Graphs that were charged cancel, but for what vLLM's own estimate is off.
    size = f.captured.gib
    graphs_off = Spread("graphs", 0.1 + 0.25 * size, 0.1 + 0.5 * size) if f.charged else None
    graphs_off = graphs_off or Spread("graphs", f.captured.above, f.captured.below)
    spreads = [Spread("before the start", off, off), graphs_off]
    if s.kv_bytes:
        spreads += [x for x in f.spreads if x.term in {"weights", OUTSIDE}]
    else:
        # A larger activation makes the pool smaller, and is free again when graphs are captured.
        spreads += [Spread(x.term, x.above, x.below) for x in f.spreads if x.term in {"activation", COMPILED}]
    below, above = range_of(spreads)
    here = StartPoint(outcome="oom-cudagraph", left=left, below=below, above=above)
    found = [] if s.eager else [here]
    warm_up = stage.activation.warm_up / GIB
    if warm_up:
        # The first runner profiled its pass. Of the second one's, kernels of FlashInfer take a part that no
        # tensor of vLLM shows: four H100 of 0.25 with 4.3 GiB left ran out in a pass of 3.6 by its tensors.
        more = WARMED * warm_up if s.v2_runner else 0.0
        wide = sqrt(below**2 + more**2), sqrt(above**2 + more**2)
        found.append(replace(here, left=left - warm_up - more, below=wide[0], above=wide[1]))
    forward = max((t.bytes for t in stage.activation.terms if t.name.startswith("forward")), default=0.0) / GIB
    if forward > 0.5 * f.active:
        # A full step needs its widest tensors in one piece, and blocks freed by earlier steps may not join.
        lost = 0.0 if s.expandable else forward * FRAGMENTED / 2
        found.append(StartPoint(outcome=UNDER_LOAD, left=left - forward - lost, below=lost, above=lost, doubt=0.05))
    return found
