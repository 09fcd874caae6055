"""The memory of each GPU as a bar."""

from __future__ import annotations

from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner

_BAR = 56


def bars_of(planner: Planner, *, whole: bool) -> list[str]:
    """One bar for all GPUs that hold the same; the first stage, the heaviest one between and the last one where they
    differ. `whole` gives each part a line of its own."""
    bars = [_bar(p, _whose(p), whole=whole) for p in planner.stages()]
    lines = [line for bar in bars for line in bar]
    return ["", *lines] if lines else []


def _whose(p: Prediction) -> str:
    count, stages = p.settings.parallel.tp * p.settings.parallel.local, p.settings.parallel.pp
    each = "one GPU" if count == 1 else f"each of {count} GPUs"
    return each if stages == 1 else f"{each} of stage {p.stage + 1} of {stages}"


def _bar(p: Prediction, whose: str, *, whole: bool) -> list[str]:
    if p.total_gib is None or p.available_kv_gib is None:
        return []
    parts = [
        ("weights", p.weights_gib, "█"),
        ("non-torch", p.non_torch_gib or 0.0, "▓"),
        ("activation", p.activation_gib, "▒"),
        ("graphs", p.cudagraph_gib, "▞"),
        *([("KV cache", max(p.available_kv_gib, 0.0), "░")] if p.pool is not None else []),
    ]
    rest = p.total_gib - sum(size for _, size, _ in parts)
    parts.append(("free" if rest >= 0 else "too much", abs(rest), "·" if rest >= 0 else "!"))
    scale = _BAR / max(p.total_gib, sum(size for _, size, _ in parts[:-1]))
    drawn = "".join(mark * round(size * scale) for _, size, mark in parts)
    out = [f"  {whose}, {p.total_gib:.2f} GiB", f"  {drawn}"]
    if not whole:
        return [*out, "  " + "   ".join(f"{mark} {name} {size:.2f}" for name, size, mark in parts if size)]
    spans = {t.name: (t.value - t.below, t.value + t.above) for t in p.taken}
    spans["KV cache"] = p.margin_gib or (0.0, 0.0)
    for name, size, mark in parts:
        told = f"    {mark} {name:<12} {size:8.2f} GiB  {100 * size / p.total_gib:5.1f} %"
        out.append(told + (_span(*spans[name]) if name in spans else ""))
    return out


def _span(low: float, high: float) -> str:
    """From what to what a term may be, where that shows."""
    return f"   {max(low, 0.0):.2f} to {max(high, 0.0):.2f}" if high - low >= 0.01 else ""
