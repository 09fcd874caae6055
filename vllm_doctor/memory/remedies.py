"""When a launch cannot start: the smallest single changes that let it, and the cards that would hold it as it is."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_doctor.knowledge.gpus import Gpu, find, names
from vllm_doctor.knowledge.versions import flag
from vllm_doctor.memory.plan import GIB, Prediction
from vllm_doctor.memory.question import Planner
from vllm_doctor.memory.recommendation import Changes, safe


@dataclass(frozen=True)
class Remedy:
    """One change that makes the launch fit, what the pool becomes, and what it costs."""

    flag: str
    value: str
    pool_gib: float
    cost: str


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


def remedies(planner: Planner) -> list[Remedy]:
    """Single changes that are safe, cheapest for the service first; empty when none is."""
    p = planner.predict()
    s = p.settings
    if s.refusals or planner.total_gib is None:
        return []
    tries: list[tuple[str, list[str], str]] = [
        (
            "max-num-batched-tokens",
            [str(n) for n in _halves(s.batched, 512 if s.chunked else s.length)],
            "prefill in narrower steps",
        ),
        ("max-num-seqs", [str(n) for n in _halves(s.seqs, 1)], "fewer requests at once"),
        (
            "gpu-memory-utilization",
            [str(u / 100) for u in range(int(s.utilization * 100) + 1, 97)]
            + [str(u / 100) for u in range(int(s.utilization * 100) - 1, 60, -2)],
            "less (or more) of the card is left outside the budget",
        ),
    ]
    if planner.predict({"max-model-len": "256"}).outcome == "ok" and p.pool is not None and p.margin_gib is not None:
        fits = p.pool.longest(max(0.0, p.margin_gib[0]) * GIB - p.pool.block_bytes, s.length) // 256 * 256
        if fits:
            tries.append(("max-model-len", [str(fits)], "longer requests are refused"))
    if planner.gpu is not None and (planner.gpu.capability or 0) >= 8.9 and s.kv_dtype == "auto":
        tries.append(("kv-cache-dtype", ["fp8"], "keys and values in 8 bits"))
    if not s.eager:
        tries.append(("enforce-eager", ["true"], "no CUDA graphs: slower decoding"))
    for tp in range(s.parallel.tp + 1, planner.gpus + 1):
        if (not planner.arch.heads or planner.arch.heads % tp == 0) and tp * s.parallel.pp <= planner.gpus:
            tries.append(("tensor-parallel-size", [str(tp)], "more cards for one copy of the model"))
            break
    if p.outcome in {"oom-weights", "oom-profile"} or (p.available_kv_gib or 0) < 0:
        short = max(1, int(-(p.margin_gib[0] if p.margin_gib else 0.0) + p.needed_kv_gib) + 1)
        if flag("cpu-offload-gb", planner.version) is not None:
            tries.append(
                (
                    "cpu-offload-gb",
                    [str(short), str(short + 2)],
                    "a part of the weights crosses PCIe at every step: much slower",
                )
            )
    found: list[Remedy] = []
    for name, values, cost in tries:
        for value in values:
            good = _works(planner, {name: True if value == "true" else value})
            if good is not None:
                found.append(Remedy(name, value, good.available_kv_gib or 0.0, cost))
                break
    return found


def hardware(planner: Planner) -> list[tuple[Gpu, int, Prediction]]:
    """The smallest set-ups of one kind of card on which the launch is safe as asked: (card, how many, prediction)."""
    found: list[tuple[Gpu, int, Prediction]] = []
    for name in names():
        gpu = find(name)
        if gpu is None or gpu.unified or gpu.template == "generic":
            continue
        for count in (1, 2, 4, 8):
            if planner.arch.heads and planner.arch.heads % count:
                continue
            moved = planner.on(gpu, count)
            p = moved.predict({"tensor-parallel-size": str(count), "pipeline-parallel-size": None})
            if safe(p):
                found.append((gpu, count, p))
                break
    return sorted(found, key=lambda f: f[0].total_gib * f[1])
