"""Where memory may run out, in the order of the start."""

from __future__ import annotations

from math import sqrt

from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.prediction.before_start import held_before_start, held_off
from vllm_doctor.plan.prediction.figures import Figures, Held, counts_all, full
from vllm_doctor.plan.prediction.points import UNDER_LOAD, StartPoint
from vllm_doctor.plan.prediction.record import GIB
from vllm_doctor.plan.prediction.spreads import COMPILED, OF_PASS, OF_WEIGHTS, OUTSIDE, Spread, range_of
from vllm_doctor.plan.prediction.stage import Stage
from vllm_doctor.plan.prediction.state_blocks import state_point
from vllm_doctor.plan.prediction.tried_graphs import tried_bytes
from vllm_doctor.plan.terms.kv import Pool

# The most of a step's activations that is taken as lost to fragmentation: a public log of 200000 batched tokens on
# 80 GB shows 6.19 GiB reserved but unallocated beside 19.5 GiB of live activations when 5.34 GiB more were refused.
# One log, so it widens the range and decides nothing.
FRAGMENTED = 6.19 / 19.5
# How much larger the second runner's sampler warm-up is than its tensors, give or take as much. One start: 20 % at
# least.
WARMED = 0.15


def points_of(  # noqa: PLR0917
    s: Settings, gpu: Card | None, total: float, f: Figures, held: Held, stage: Stage, needed: float
) -> list[StartPoint]:
    """Where memory may run out, in the order of the start."""
    points: list[StartPoint] = []
    if counts_all(gpu):
        points += _before_the_pool(s, gpu, total, f, stage.loading / GIB)
        tried = tried_bytes(s, stage.pool) / GIB
        points += [_tried_point(s, gpu, total, f, tried)] if tried else []
    if stage.checked is not None and f.available is not None:
        points.append(_pool_point(s, f, held, stage.checked, needed))
        states = state_point(s, gpu, stage.pool, f.available, f.margin)
        points += [] if states is None else [states]
    if counts_all(gpu):
        points += _after_the_pool(s, gpu, total, f, stage)
    return points


def _before_the_pool(s: Settings, gpu: Card | None, total: float, f: Figures, loading: float) -> list[StartPoint]:
    """While weights are loaded, with `loading` GiB beside them, and in the profile's pass."""
    free, off = total - held_before_start(s, gpu), held_off(s, gpu)
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


def _tried_point(s: Settings, gpu: Card | None, total: float, f: Figures, tried: float) -> StartPoint:
    """The graphs that are tried out on a cache of `tried` GiB: the whole card is theirs, whatever the utilization."""
    off = held_off(s, gpu)
    spreads = [x for x in f.spreads if x.term in {*OF_WEIGHTS, OUTSIDE}]
    below, above = range_of([*spreads, Spread("before the start", off, off)])
    left = total - held_before_start(s, gpu) - f.weights - f.stays - tried
    return StartPoint(outcome="oom-cudagraph", left=left, below=below, above=above)


def _pool_point(s: Settings, f: Figures, held: Held, checked: Pool, needed: float) -> StartPoint:
    """The check that one request fits. A length that follows the pool, and a pool of given blocks, leave no doubt but
    whether there is one."""
    available = f.available or 0.0
    if s.auto_length or s.blocks_override or f.margin is None:
        return StartPoint(outcome="kv-too-small", left=-1.0 if full(held) else 1.0, below=0.0, above=0.0)
    least = needed + (checked.block_bytes / GIB if checked.rules.reserve_null_block else 0.0)
    left = available - least
    left = min(left, -1e-9) if full(held) else max(left, 0.0)
    below, above = available - f.margin[0], f.margin[1] - available
    # What lies in the claimed range is in doubt, to its ends.
    return StartPoint(outcome="kv-too-small", left=left, below=below, above=above, doubt=0.05)


def _after_the_pool(s: Settings, gpu: Card | None, total: float, f: Figures, stage: Stage) -> list[StartPoint]:
    """While graphs are captured, while the sampler is warmed up, and in the first full step. What the pool took is what
    vLLM measured as free, so errors of weights and of what lies outside torch cancel, but where its size is given."""
    free = total - held_before_start(s, gpu)
    left = free - f.weights - f.stays - max(f.available or 0.0, 0.0) - f.captured.gib - stage.stranded / GIB
    left -= stage.reserved / GIB
    off = held_off(s, gpu)
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
