"""The prediction: each term of vLLM's start-up, in its order, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import sqrt
from typing import Literal

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import Scheme, scheme
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.points import StartPoint, doubtful, first_end
from vllm_doctor.plan.support import judge
from vllm_doctor.plan.terms.activation import Activation, estimate
from vllm_doctor.plan.terms.fragments import stranded
from vllm_doctor.plan.terms.host import HostUse, Offloaded, host_use, offloaded
from vllm_doctor.plan.terms.kv import Pool
from vllm_doctor.plan.terms.lora import lora_bytes
from vllm_doctor.plan.terms.outside_torch import Estimate, graphs, non_torch, not_of_torch
from vllm_doctor.plan.terms.pages import pool_of
from vllm_doctor.plan.terms.term import Term
from vllm_doctor.plan.terms.weights import EAGLE3_VOCAB, WeightTarget, padded_vocab, rank_weights, step_buffers

GIB = 1 << 30
# The most of a step's activations that is taken as lost to fragmentation: a public log of 200000 batched tokens on
# 80 GB shows 6.19 GiB reserved but unallocated beside 19.5 GiB of live activations when 5.34 GiB more were refused.
# One log, so it widens the range and decides nothing.
FRAGMENTED = 6.19 / 19.5
# How far the activations of 0.20 and later may be off, in GiB and as a share. Fitted: 28 starts of 0.20 to 0.30.
RECENT, RECENT_SHARE, DRAFTS = 0.35, 0.12, 0.8
# How much larger the second runner's sampler warm-up is than its tensors, give or take as much. One start: 20 % at
# least.
WARMED = 0.15
# How far they may be off, in GiB, where LoRA's kernels keep the compiler from fusing. One start: 0.15 more.
ADAPTERS = 0.25


PlanVerdict = Literal["starts", "does-not-start", "uncertain", "unknown"]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM would log, per GPU, in GiB; None where the question gave no card. `outcome` is that of the middle of
    the range, `terms` explain every figure."""

    outcome: str
    odds: float | None  # how likely it starts, where at some point what is needed lies inside the range
    doubtful: str | None  # what it would end with at that point
    widest: Spread | None  # the term that widens the range most
    weights_gib: float
    non_torch_gib: float | None
    activation_gib: float
    cudagraph_gib: float
    cudagraph_budget_gib: float
    available_kv_gib: float | None
    margin_gib: tuple[float, float] | None
    kv_tokens: int | None
    gpu_blocks: int | None
    length: int
    concurrency: float | None
    longest: int | None
    needed_kv_gib: float
    budget_gib: float | None
    total_gib: float | None
    terms: tuple[Term, ...]
    pool: Pool | None
    checked: Pool | None  # what vLLM checks one request against: the same pool, but for pipeline stages of 0.14 to 0.16
    activation: Activation
    settings: Settings
    host: HostUse = HostUse()
    stage: int = 0  # of the pipeline, counted from 0

    @property
    def sizes_only(self) -> bool:
        """Are weights and cache arithmetic all that is known: the device runs another build than CUDA's?"""
        return self.total_gib is not None and self.budget_gib is None

    @property
    def verdict(self) -> PlanVerdict:
        """Does it start, as far as that can be said?"""
        if self.outcome == "unknown":
            return "unknown"
        if self.odds is not None:
            return "uncertain"
        return "starts" if self.outcome == "ok" else "does-not-start"


# What would tell, of each term that a launch leaves open; --learn of one start's log settles every one of them.
_TOLD_BY = {
    "weights": "--weights-gib, from the checkpoint's index or a log of any start of it",
    "layout of the weights": "whether triton_kernels is installed: with it MXFP4 experts are Triton's, else Marlin's",
    "sampler": "whether FlashInfer is installed, or VLLM_USE_FLASHINFER_SAMPLER set either way",
    "runner": "VLLM_USE_V2_MODEL_RUNNER set either way",
    "drafter": "--weights-gib, from a log of any start with this drafter",
    "memory outside torch": "the card's name, which says how cards are linked, and a log of any start on this host",
    "CUDA graphs": "--max-num-seqs or --max-cudagraph-capture-size in the launch: they say how many graphs there are",
    "activation": "--max-num-batched-tokens and --max-num-seqs in the launch, where they are left to the release",
    "model type": "a log of one start of this model",
}


class Spread(msgspec.Struct, frozen=True):
    """How far below and above the predicted pool one term may bring the real one, in GiB."""

    term: str
    below: float
    above: float

    @property
    def told_by(self) -> str:
        """The fact that would narrow it."""
        return _TOLD_BY[self.term]


class Stage(msgspec.Struct, frozen=True):
    """One pipeline stage's terms in bytes."""

    weights: float
    activation: Activation
    pool: Pool | None
    checked: Pool | None  # the pool against which vLLM checks that one request fits
    stranded: float
    heavier: float  # what the weights are more if the host's kernels lay them out the other way
    runner: float  # what the activations are more on the other runner, where it is open which one it is
    offloaded: Offloaded  # of the weights, what stays on the host
    loading: float  # what is there beside the weights until they are loaded


def quantisation(a: Architecture, s: Settings) -> Scheme:
    """The launch's weight formats. Raises ConfigError for a broken quantization_config."""
    return scheme(a.quantization, s.quantization, s.element, s.gguf)


@lru_cache(maxsize=1024)
def _loaded(  # noqa: PLR0917
    a: Architecture,
    quantized: tuple[str | None, int, str | None],
    parallel: Parallel,
    index: int,
    target: WeightTarget,
    draft: str | None,
) -> float:
    """Bytes of one rank's weights. Kept: a search varies what they do not depend on, and they are most of its work."""
    fmt = scheme(a.quantization, *quantized)
    eagle, third = draft in {"eagle", "eagle3"}, draft == "eagle3"
    return rank_weights(
        a, fmt, parallel, index, target, draft_mtp=draft == "mtp", draft_eagle=eagle, draft_eagle3=third
    )


def _stage(a: Architecture, s: Settings, gpu: Card | None, index: int, fmt: Scheme) -> Stage:
    target = WeightTarget(
        s.element,
        splits_large=s.does.splits_large_blocks,
        capability=gpu.capability if gpu else None,
        rope_element=s.element,
    )
    own = a.model_type.startswith("gemma4") and s.does.shares_keys_without_weights
    # A model that pools is built without the head (models/adapters.py StageMissingLayer).
    headless = a.tied or s.pooling
    shown = replace(a, vision=None if s.language_only else a.vision, shares_weights=own, tied=headless)

    def load(to: WeightTarget) -> float:
        return _loaded(shown, (s.quantization, s.element, s.gguf), s.parallel, index, to, s.speculative)

    weights, heavier = load(target) + step_buffers(shown, s.batched, s.element) + lora_bytes(a, s, index), 0.0
    last = index == s.parallel.pp - 1
    weights += _drafter(s, target) if last else 0.0
    # Triton's layout or Marlin's: gpt-oss-120b logs 65.97 GiB with 0.10.1, 64.38 with 0.14.1.
    if fmt.name == "mxfp4" and not s.does.mxfp4_for_triton and 9.0 <= (target.capability or 0) < 10.0:
        heavier = max(0.0, load(replace(target, capability=8.9)) - weights)

    def estimate_of(asked: Settings) -> Activation:
        return estimate(
            shown,
            asked,
            capability=gpu.capability if gpu else None,
            multiprocessors=gpu.multiprocessors if gpu else 132,
            experts=fmt.choose("model.layers.1.mlp.experts.0.up_proj", True).name if a.moe is not None else "",
            first_stage=index == 0,
            last_stage=index == s.parallel.pp - 1,
        )

    activation, runner = estimate_of(s), 0.0
    if s.runner_open:
        other = estimate_of(replace(s, v2_runner=not s.v2_runner))
        runner = other.peak + other.kept - activation.peak - activation.kept
    pool = pool_of(a, s, gpu, index)
    checked = pool_of(a, s, gpu, None) if _checks_all_layers(s) else pool
    away = offloaded(shown, s, fmt, target, index)
    weights += away.buffers - away.moved
    lost = stranded(a, s, gpu, index, fmt)
    return Stage(weights, activation, pool, checked, lost, heavier, runner, away, _while_loading(a, s, index))


def _drafter(s: Settings, target: WeightTarget) -> float:
    """Bytes of one rank of a drafter that is a model of its own, split as the model is (v1/spec_decode/draft_model.py);
    0 where there is none."""
    if s.draft is None:
        return 0.0
    own = Parallel(tp=s.parallel.tp)
    return rank_weights(s.draft, scheme(s.draft.quantization, None, s.element), own, 0, target)


# What drafters make of their own before the model's takes its place: embedding and head (models/*_mtp.py; the drafter
# shares them after both are loaded, v1/spec_decode _maybe_share_embeddings, _maybe_share_lm_head).
_SHARED_LATER = {"mtp": 2, "eagle": 2, "eagle3": 1}


def _while_loading(a: Architecture, s: Settings, index: int) -> float:
    """Bytes of one rank that are there only until the weights are loaded."""
    if s.engine != "V1" or index != s.parallel.pp - 1:
        return 0.0
    rows = padded_vocab(a.vocab, s.parallel.tp) // s.parallel.tp
    return float(_SHARED_LATER.get(s.speculative or "", 0) * rows * a.hidden * s.element)


def _checks_all_layers(s: Settings) -> bool:
    """Does the check that one request fits count the layers of every pipeline stage against one rank's memory? So do
    0.14 to 0.16, where the groups of the whole model are checked (v1/core/kv_cache_utils.py get_kv_cache_configs);
    since 0.17 they are projected to each worker first."""
    return s.engine == "V1" and s.parallel.pp > 1 and s.does.checks_all_stages


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
    fmt = quantisation(a, s)
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
    stage = _stage(a, s, gpu, index, fmt)
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
        spreads = _spreads(a, s, fmt, weights, stage, outside, captured if charged else None, known)
        below, above = _range(spreads)
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
    checked = stage.checked
    needed = checked.needed(held.length) / GIB if checked is not None else 0.0
    odds: float | None = None
    doubt: str | None = None
    if outcome in {"ok", "kv-too-small"} and total_gib is not None and known.available_kv_gib is None:
        points = _points(s, gpu, total_gib, f, held, stage, needed)
        ends, odds = first_end(points)
        outcome, doubt = ends or "ok", doubtful(points) if odds is not None else None
    return Prediction(
        outcome=outcome,
        odds=odds,
        doubtful=doubt,
        widest=max(f.spreads, key=lambda x: x.below + x.above, default=None),
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
        f"at most {free:.2f} GiB, what is free when vLLM looks (contexts and NCCL take the rest)",
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
    if _counts_all(gpu):
        points += _after_the_pool(s, gpu, total, f, stage)
    return points


def _before_the_pool(s: Settings, gpu: Card | None, total: float, f: Figures, loading: float) -> list[StartPoint]:
    """While weights are loaded, with `loading` GiB beside them, and in the profile's pass."""
    free, off = total - held_before_start(s, gpu), _held_off(s, gpu)
    loaded = [x for x in f.spreads if x.term in {"weights", "layout of the weights", "drafter"}]
    # What V0 of old counts outside torch holds blocks that torch gives back when it runs short.
    outside = set() if s.does.counts_used_memory else {"memory outside torch"}
    passed = [*loaded, *(x for x in f.spreads if x.term in {"activation", "sampler", "runner", *outside})]
    found: list[StartPoint] = []
    for outcome, left, spreads in (
        ("oom-weights", free - f.weights - loading, loaded),
        ("oom-profile", free - f.weights - f.stays - f.active, passed),
    ):
        below, above = _range([*spreads, Spread("before the start", off, off)])
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
        spreads += [x for x in f.spreads if x.term in {"weights", "memory outside torch"}]
    else:
        # A larger activation makes the pool smaller, and is free again when graphs are captured.
        spreads += [Spread(x.term, x.above, x.below) for x in f.spreads if x.term == "activation"]
    below, above = _range(spreads)
    # On the second runner the graphs are not charged yet, so the pool takes their place.
    other = f.charged if s.runner_open and not s.does.v2_charges_graphs else 0.0
    here = StartPoint(outcome="oom-cudagraph", left=left, below=below, above=above, otherwise=other)
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
        found.append(StartPoint(outcome="oom-profile", left=left - forward - lost, below=lost, above=lost, doubt=0.05))
    return found


# Spreads that are one way or the other, and no deviation from a middle: added whole.
_WHOLE = frozenset({"layout of the weights", "sampler", "model type", "runner", "drafter"})


def _range(spreads: Iterable[Spread]) -> tuple[float, float]:
    """GiB below and above: the terms' uncertainties taken as independent."""
    free = [x for x in spreads if x.term not in _WHOLE]
    whole = [x for x in spreads if x.term in _WHOLE]
    below = sqrt(sum(x.below**2 for x in free)) + sum(x.below for x in whole)
    return below, sqrt(sum(x.above**2 for x in free)) + sum(x.above for x in whole)


def _spreads(  # noqa: PLR0917
    a: Architecture,
    s: Settings,
    fmt: Scheme,
    weights: float,
    stage: Stage,
    outside: Estimate,
    charged: Estimate | None,
    known: KnownTerms,
) -> list[Spread]:
    """How far below and above the predicted pool each term may bring the real one."""
    act = stage.activation
    found: list[Spread] = []
    more: list[float] = []  # the activations may be larger: the pool smaller
    less: list[float] = []
    if known.weights_gib is None:
        share = 0.001 if fmt.name == "none" else 0.1 if fmt.name == "bitsandbytes" else 0.012 if fmt.exact else 0.1
        found.append(Spread("weights", share * weights + 0.02, share * weights + 0.02))
    if known.activation_gib is None:
        peak = act.peak / GIB
        encoder = sum(t.bytes for t in act.terms if t.name == "vision encoder") / GIB
        # From 0.20 on the runner, the sampler and the graph estimate change from release to release, drafts most.
        recent = RECENT + RECENT_SHARE * peak if s.version >= Version((0, 20)) else 0.0
        if recent and s.speculative:
            recent += DRAFTS
        step = (
            0.03
            + 0.02 * peak
            + recent
            + (0.1 * peak if a.moe is not None else 0.0)
            + (0.15 * peak if s.speculative else 0.0)
        )
        if s.loras:
            step += ADAPTERS
        sure = s.version >= Version((0, 19))  # logs of six starts: the encoder's own peak is within a tenth
        more.append(step + (0.1 if sure else 0.5) * encoder)
        less.append(step + ((0.1 if sure else 0.3) * peak if encoder > 0.8 * peak else 0.0))
        if (
            a.vision is not None
            and "qwen" in a.vision.kind
            and s.image_pixels is None
            and act.winner == "vision encoder"
        ):
            # The checkpoint's preprocessor_config.json may allow smaller images than vLLM's largest, and no launch
            # shows it: a Qwen2-VL-7B that was tuned for screenshots logs 1.16 GiB where the largest image takes 3.77.
            rest = max((t.bytes for t in act.terms if t.name != "vision encoder"), default=0.0) / GIB
            less.append(max(0.0, peak - rest))
        if s.engine == "V0" and act.winner == "logits and sampler":
            forward = max((t.bytes for t in act.terms if t.name.startswith("forward")), default=0.0) / GIB
            less.append(peak - forward)
        if s.engine == "V0" and s.does.counts_used_memory:
            more.append(0.3 * peak)  # blocks that torch kept after the pass counted as used
    found.append(Spread("activation", sqrt(sum(x * x for x in more)), sqrt(sum(x * x for x in less))))
    if known.non_torch_gib is None:
        found.append(Spread("memory outside torch", outside.above, outside.below))
    if charged is not None and known.graphs_gib is None:
        found.append(Spread("CUDA graphs", charged.above, charged.below))
    strange = 0.0 if a.known else 0.1 * (weights + act.peak / GIB) + 0.5
    heavier = stage.heavier / GIB if known.weights_gib is None else 0.0
    differs = (act.otherwise - act.peak) / GIB if known.activation_gib is None else 0.0
    runner = stage.runner / GIB if known.activation_gib is None else 0.0
    if runner and charged is not None and not s.does.v2_charges_graphs:
        runner -= charged.gib
    words = max(0, a.vocab - EAGLE3_VOCAB) if s.speculative == "eagle3" and known.weights_gib is None else 0
    whole = [
        Spread("drafter", words * a.hidden * s.element / s.parallel.tp / GIB, 0.0),
        Spread("runner", max(runner, 0.0), max(-runner, 0.0)),
        Spread("model type", strange, strange),
        Spread("layout of the weights", heavier, 0.0),
        Spread("sampler", max(differs, 0.0), max(-differs, 0.0)),
    ]
    return [x for x in (*found, *whole) if x.below or x.above]
