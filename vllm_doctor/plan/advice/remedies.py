"""When a launch cannot start: the smallest single changes that let it, and the cards that would hold it as it is."""

from __future__ import annotations

from math import inf

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card, find, names
from vllm_doctor.knowledge.versions import flag
from vllm_doctor.plan.advice.recommendation import Changes, safe
from vllm_doctor.plan.prediction.points import TOO_FEW_STATES
from vllm_doctor.plan.prediction.record import GIB, Prediction
from vllm_doctor.plan.question.planner import Planner

Try = tuple[str, list[str], str]  # a flag, the values that are tried in turn, and what it costs


class Remedy(msgspec.Struct, frozen=True):
    """One change that makes the launch fit, what the pool becomes, and what it costs; `length` is the shorter
    max_model_len and `cards` the tensor parallel size that it needs beside it, where no change does alone."""

    flag: str
    value: str
    pool_gib: float
    cost: str
    length: int | None = None
    cards: int | None = None


def _works(planner: Planner, changes: Changes) -> Prediction | None:
    p = planner.predict(changes)
    return p if safe(p) else None


def _halves(start: int, least: int) -> list[int]:
    out = []
    value = start // 2
    while value >= least:
        out.append(value)
        value //= 2
    return out


_HOST, _BUDGET = "cpu-offload-gb", "gpu-memory-utilization"
_SHARE = "--gpu-memory-utilization"
# Lengths that are tried beside a change where no change does alone.
_SHORTER = (8192, 4096, 2048)


def remedies(planner: Planner) -> list[Remedy]:
    """Single changes that are safe, cheapest for the service first; where none is, those that are with a shorter
    max_model_len, and weights in host memory where nothing else is. Empty when nothing does."""
    if planner.total_gib is None:
        return []
    wide = max(_wider(planner), default=None)
    asked = planner.settings().length
    last: list[Remedy] = []
    for cards in (None, wide) if wide is not None else (None,):
        spread = planner if cards is None else _with(planner, "tensor-parallel-size", cards)
        for length in (None, *(n for n in _SHORTER if n < asked)):
            tried = spread if length is None else _with(spread, "max-model-len", length)
            beside = {*(["max-model-len"] if length else []), *(["tensor-parallel-size"] if cards else [])}
            found = [replace(r, length=length, cards=cards) for r in _single(tried) if r.flag not in beside]
            if any(r.flag != _HOST for r in found):
                return found
            last = last or found
    return last


def _with(planner: Planner, name: str, value: int) -> Planner:
    return replace(planner, line=replace(planner.line, flags={**planner.line.flags, name: str(value)}))


def _wider(planner: Planner) -> list[int]:
    """Larger tensor parallel sizes that the model and the host allow."""
    now, a = planner.settings().parallel, planner.arch
    return [
        tp
        for tp in range(now.tp + 1, planner.gpus * now.hosts // (now.pp * now.local) + 1)
        if not (a.heads and a.heads % tp) and not (a.kv_heads and a.mla is None and a.kv_heads % tp and tp % a.kv_heads)
    ]


def _single(planner: Planner) -> list[Remedy]:
    p = planner.predict()
    if p.settings.refusals or planner.total_gib is None:
        return []
    found: list[Remedy] = []
    # No step, no share and no graph makes room for weights: of the flags more cards alone do.
    flags = [t for t in _flags(planner, p) if p.outcome != "oom-weights" or t[0] == "tensor-parallel-size"]
    for name, values, cost in [*flags, *_quantized(planner, p), *_offloaded(planner, p)]:
        for value in values if all(r.flag != name for r in found) else ():
            good = _works(planner, {name: True if value == "true" else value})
            if good is not None:
                found.append(Remedy(name, value, good.available_kv_gib or 0.0, cost))
                break
    return found


def _flags(planner: Planner, p: Prediction) -> list[Try]:
    s = p.settings
    narrower: Try = (
        "max-num-batched-tokens",
        [str(n) for n in _halves(s.batched, 512 if s.chunked else s.length)],
        "prefill in narrower steps",
    )
    tries: list[Try] = [
        # Of a narrower step the release makes fewer sequences, where none are asked for: that is said itself.
        *([narrower] if p.outcome != TOO_FEW_STATES else []),
        ("max-num-seqs", [str(n) for n in _halves(s.seqs, 1)], "fewer requests at once"),
        (
            _BUDGET,
            [str(u / 100) for u in range(int(s.utilization * 100) + 1, 97)],
            "less of the card is left outside the budget",
        ),
        (
            _BUDGET,
            [str(u / 100) for u in range(int(s.utilization * 100) - 1, 60, -2)],
            "a smaller KV cache, and more of the card beside it",
        ),
    ]
    if planner.predict({"max-model-len": "256"}).outcome == "ok" and p.checked is not None and p.margin_gib is not None:
        fits = p.checked.longest(max(0.0, p.margin_gib[0]) * GIB - p.checked.block_bytes, s.length) // 256 * 256
        if fits:
            tries.append(("max-model-len", [str(fits)], "longer requests are refused"))
    if planner.gpu is not None and planner.gpu.computes_fp8 and s.kv_dtype == "auto":
        tries.append(("kv-cache-dtype", ["fp8"], "keys and values in 8 bits"))
    if not s.eager:
        fact = flag("max-cudagraph-capture-size", planner.version)
        if fact is not None and fact.exists:
            captured = s.capture_sizes or 512
            sizes = [str(n) for n in _halves(captured, 8)]
            tries.append(("max-cudagraph-capture-size", sizes, "larger batches decode without a CUDA graph"))
        tries.append(("enforce-eager", ["true"], "no CUDA graphs: slower decoding"))
    tries.append(("tensor-parallel-size", [str(tp) for tp in _wider(planner)], "more cards for one copy of the model"))
    return tries


def _quantized(planner: Planner, p: Prediction) -> list[Try]:
    s = p.settings
    if planner.arch.quantization is not None or s.quantization is not None or s.gguf is not None:
        return []
    four = ("quantization", ["bitsandbytes"], "weights in 4 bits, made while loading: slower; or a 4-bit checkpoint")
    if planner.gpu is not None and planner.gpu.computes_fp8:
        return [("quantization", ["fp8"], "weights in 8 bits, made while loading"), four]
    return [four]


def _offloaded(planner: Planner, p: Prediction) -> list[Try]:
    if p.outcome not in {"oom-weights", "oom-profile"} and (p.available_kv_gib or 0) >= 0:
        return []
    short = max(1, int(-(p.margin_gib[0] if p.margin_gib else 0.0) + p.needed_kv_gib) + 1)
    if flag("cpu-offload-gb", planner.version) is None or short >= 0.7 * p.weights_gib:
        return []
    slow = "a part of the weights crosses PCIe at every step: much slower"
    return [(_HOST, [str(short), str(short + 2)], slow)]


def hardware(planner: Planner) -> list[tuple[Card, int, Prediction]]:
    """The smallest set-ups on which the launch is safe as asked: (card, how many, prediction), one of each kind of card
    for which there is a template (a B300 stands for the GB300 too)."""
    kinds: dict[str, tuple[Card, int, Prediction]] = {}
    # What one card holds at the least, by how many share the weights and by the kernels' layout: most cards are ruled
    # out by it alone. What a release refuses on one card of a generation it refuses on them all, but for the share,
    # of which a larger card has more free.
    least: dict[tuple[int, float | None], float] = {}
    heads = planner.arch.heads
    counts = [count for count in (1, 2, 4, 8) if not heads or heads % count == 0]
    cards = [gpu for name in names() if (gpu := find(name)) is not None]
    set_ups = [
        (gpu, n)
        for gpu in cards
        if not gpu.unified and gpu.template != "generic"
        for n in counts
        if not gpu.alone or n == 1
    ]
    # The smallest first, so that of each kind nothing beyond the first that is safe is planned at all; a request never
    # needs less on a larger card, whose step is as wide or wider.
    for gpu, count in sorted(set_ups, key=lambda one: one[0].total_gib * one[1]):
        layout = (count, gpu.capability)
        if gpu.template in kinds or least.get(layout, 0.0) > gpu.total_gib:
            continue
        one_host: Changes = {"pipeline-parallel-size": None, "nnodes": None, "node-rank": None}
        p = planner.on(gpu, count).predict({"tensor-parallel-size": str(count), **one_host})
        refused = any(r.flag != _SHARE for r in p.settings.refusals)
        least[layout] = inf if refused else p.weights_gib + p.needed_kv_gib
        if safe(p):
            kinds[gpu.template] = (gpu, count, p)
    return list(kinds.values())
