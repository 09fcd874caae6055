"""How a running server uses its KV blocks, by its own metrics: what is left, what a request takes, what is lost.

Inside a block the tokens after a request's last one are lost until it ends (internal waste). Blocks are handed out one
by one from one pool, so there is no loss between them (no external fragmentation), whatever their order.
"""

import math
from collections.abc import Callable

import msgspec

from vllm_doctor.knowledge import serving
from vllm_doctor.knowledge.serving import Histogram
from vllm_doctor.knowledge.versions import FlagFact, flag, parse_version
from vllm_doctor.records.host import Metrics

# The sizes people choose between; which of them a version takes is asked of its own parser's data.
SIZES = (8, 16, 32, 64, 128, 256)
# Below this many finished requests a histogram says little about the next one.
ENOUGH = 20


class Waste(msgspec.Struct, frozen=True):
    """What one block size loses: `tokens` a request on average, and that as a share of what the request takes."""

    block_size: int
    tokens: float
    share: float
    allowed: bool | None


class KvUse(msgspec.Struct, frozen=True):
    """Tokens and blocks of the KV cache, over all engines. None is what this server does not tell."""

    block_size: int | None
    blocks: int | None
    tokens: int | None
    used_share: float | None
    used_blocks: float | None
    free_blocks: float | None
    running: float | None
    waiting: float | None
    preemptions: float | None
    blocks_per_running: float | None
    finished: float
    mean_prompt: float | None
    mean_output: float | None
    mean_request: float | None
    more_mean: int | None
    more_longest: int | None
    max_model_len: int | None
    waste: tuple[Waste, ...]
    waste_now: float | None


def kv_use(metrics: Metrics, *, max_model_len: int | None, version: str | None) -> KvUse:
    """The use of the pool at the last scrape. `max_model_len` in tokens; the version decides on block sizes."""
    scrape = metrics.scrapes[-1]
    config = serving.cache_config(scrape)
    size = serving.count_of_label(config.get("effective_attention_block_size")) or serving.count_of_label(
        config.get("block_size")
    )
    engines = max(1, len(serving.gauges(scrape, serving.KV_USE)))
    blocks = serving.count_of_label(config.get("num_gpu_blocks"))
    pool = serving.count_of_label(config.get("kv_cache_size_tokens")) or (blocks * size if blocks and size else None)
    if blocks is None and pool is not None and size:
        blocks = pool // size
    blocks = blocks * engines if blocks is not None else None
    pool = pool * engines if pool is not None else None
    shares = serving.gauges(scrape, serving.KV_USE)
    share = sum(shares) / len(shares) if shares else None
    used = share * blocks if share is not None and blocks is not None else None
    running = serving.total(scrape, serving.RUNNING)
    prompts = serving.histogram(scrape, serving.PROMPT_LENGTHS)
    outputs = serving.histogram(scrape, serving.OUTPUT_LENGTHS)
    mean_prompt = prompts.mean if prompts else None
    mean_output = outputs.mean if outputs else None
    mean = mean_prompt + mean_output if mean_prompt is not None and mean_output is not None else None
    free = blocks - used if blocks is not None and used is not None else None
    waste = _waste(prompts, mean_output, version) if prompts and prompts.count >= ENOUGH else ()
    here = next((w for w in waste if w.block_size == size), None)
    return KvUse(
        block_size=size,
        blocks=blocks,
        tokens=pool,
        used_share=share,
        used_blocks=used,
        free_blocks=free,
        running=running,
        waiting=serving.total(scrape, serving.WAITING),
        preemptions=serving.total(scrape, serving.PREEMPTIONS),
        blocks_per_running=used / running if used is not None and running else None,
        finished=prompts.count if prompts else 0,
        mean_prompt=mean_prompt,
        mean_output=mean_output,
        mean_request=mean,
        more_mean=_more(free, size, mean),
        more_longest=_more(free, size, max_model_len),
        max_model_len=max_model_len,
        waste=waste,
        waste_now=here.tokens * running if here and running is not None else None,
    )


def _more(free: float | None, size: int | None, tokens: float | None) -> int | None:
    """How many requests of `tokens` fit into `free` blocks; each takes whole blocks."""
    if free is None or not size or not tokens:
        return None
    return int(free // math.ceil(tokens / size))


def _waste(prompts: Histogram, mean_output: float | None, version: str | None) -> tuple[Waste, ...]:
    parsed = parse_version(version) if version else None
    fact = flag("block-size", parsed) if parsed is not None else None
    shift = mean_output or 0.0
    found: list[Waste] = []
    for size in SIZES:
        lost = taken = 0.0
        for low, high, weight in _slices(prompts):
            lost += weight * _lost(low + shift, high + shift, size)
            taken += weight * _taken(low + shift, high + shift, size)
        if taken:
            found.append(Waste(size, lost / prompts.count, lost / taken, _allowed(size, fact)))
    return tuple(found)


def _slices(lengths: Histogram) -> list[tuple[float, float, float]]:
    """Buckets as (above, up to, how many); what lies beyond the last bound is put at the bound."""
    found: list[tuple[float, float, float]] = []
    low = before = 0.0
    for bound, cumulative in lengths.buckets:
        if cumulative > before:
            found.append((low, low if math.isinf(bound) else bound, cumulative - before))
        low, before = (low if math.isinf(bound) else bound), cumulative
    return found


def _lost(low: float, high: float, size: int) -> float:
    """Mean tokens lost in the last block for lengths spread evenly over (low, high]."""
    return _mean(low, high, lambda n: -n % size)


def _taken(low: float, high: float, size: int) -> float:
    """Mean tokens' worth of blocks taken for lengths spread evenly over (low, high]."""
    return _mean(low, high, lambda n: n + -n % size)


def _mean(low: float, high: float, of: Callable[[int], int]) -> float:
    first, last = max(1, math.floor(low) + 1), max(1, math.floor(high))
    if last <= first:
        return float(of(last))
    step = max(1, (last - first + 1) // 512)
    sampled = range(first, last + 1, step | 1)  # an odd step meets every remainder of a power of two
    return sum(of(n) for n in sampled) / len(sampled)


def _allowed(size: int, fact: FlagFact | None) -> bool | None:
    """Does this version's parser take the size? None where the version is not known."""
    if fact is None or fact.exists is None:
        return None
    return fact.exists and (fact.choices is None or size in fact.choices)
