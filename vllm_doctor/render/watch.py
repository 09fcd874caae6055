"""The live view as a page of text."""

from collections.abc import Sequence

from vllm_doctor.operate.watch.current import ServiceFigures
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.bar import draw
from vllm_doctor.render.page import Page
from vllm_doctor.render.text import figure

_KV = "  KV cache  "
_KV_COLUMNS = 30
# " 100%" behind the bar.
_PERCENT = 5


def page(seen: Sequence[ServiceFigures], at: str, *, width: int, color: bool) -> str:
    """All services, one under the other."""
    out = Page(width, color=color)
    out.line((at, "dim"))
    for one in seen:
        _head(out, visible(one.name, 60), visible(one.state, 60))
        for memory in one.cards:
            draw(out, memory)
        if one.running is not None:
            out.line((_KV, ""), *_meter(one.kv, min(_KV_COLUMNS, out.width - len(_KV) - _PERCENT)))
            preempted = f"{figure(one.preempted or 0)} preempted{_rate(one.preempted_rate)}"
            out.text(f"{figure(one.running)} running, {figure(one.waiting or 0)} waiting, {preempted}", indent=2)
            tokens = f"tokens a second: {_or(one.output_rate)} out, {_or(one.prompt_rate)} in"
            times = f"first token {_or(one.first_ms)} ms, between tokens {_or(one.between_ms)} ms"
            out.text(f"{tokens}; {times}", indent=2)
        if one.why:
            out.text(visible(one.why, 300), "yellow", indent=2)
        if one.host_gib is not None:
            out.text(f"host memory {one.host_gib:.2f} GiB", indent=2)
        if one.finding:
            out.text(visible(one.finding, 300), "red", indent=2)
    return str(out)


def _head(out: Page, name: str, state: str) -> None:
    """Both on one line, where they have room there."""
    if len(name) + 2 + len(state) <= out.width:
        out.line((name, "bold"), (f"  {state}", ""))
        return
    out.line((name, "bold"))
    out.text(state, indent=2)


def _meter(kv: float | None, columns: int) -> tuple[tuple[str, str], ...]:
    if kv is None:
        return (("not told", "dim"),)
    full = round(kv * columns)
    style = "red" if kv > 0.95 else "yellow" if kv > 0.85 else "green"
    return (("█" * full, style), ("░" * (columns - full), ""), (f" {kv:.0%}", ""))


def _or(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _rate(value: float | None) -> str:
    return "" if not value else f" ({value:.2f} a second)"
