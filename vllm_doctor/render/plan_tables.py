"""Tables: planned beside logged, and one line for each card or model of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.logged_starts import Difference
from vllm_doctor.redact.visible import visible


def differences(found: Sequence[Difference], kept_in: str) -> str:
    """Planned beside logged, one term a line."""
    lines = [f"  {'term':<12} {'planned':>9} {'logged':>9} {'off':>8}   GiB"]
    lines += [f"  {d.term:<12} {d.planned:>9.2f} {d.logged:>9.2f} {d.off:>+8.2f}" for d in found]
    return (
        "\n".join([*lines, f"  kept in {kept_in}: the next plan of this launch on this host uses the logged terms"])
        + "\n"
    )


def _rank(row: tuple[str, int, Prediction | str]) -> tuple[int, float]:
    p = row[2]
    if isinstance(p, str):
        return 2, 0.0
    return (0, p.total_gib or 0.0) if p.verdict == "starts" else (1, -(p.available_kv_gib or 0.0))


_NAME = 44


def _named(name: str) -> str:
    """A name in its column: of a longer one, such as a path, the end, by which those of one folder differ."""
    shown = visible(name)
    return shown if len(shown) <= _NAME else f"…{shown[1 - _NAME :]}"


def sweep(rows: Sequence[tuple[str, int, Prediction | str]]) -> str:
    """A table: one line for each card or model. A text instead of a prediction says why there is none."""
    head = f"{'':<{_NAME}} {'cards':>5} {'outcome':<14} {'weights':>8} {'KV GiB':>8} {'range':>15} {'tokens':>11}"
    lines = [f"{head} {'× length':>9}"]
    # What starts comes first, the smallest card of them at the top.
    for name, count, p in sorted(rows, key=_rank):
        if isinstance(p, str):
            lines.append(f"{_named(name):<{_NAME}} {count:>5} {visible(p)}")
            continue
        span = "" if p.margin_gib is None else f"{p.margin_gib[0]:.1f}..{p.margin_gib[1]:.1f}"
        pool = "" if p.available_kv_gib is None else f"{p.available_kv_gib:.2f}"
        shown = "uncertain" if p.verdict == "uncertain" else p.outcome
        held = f" {p.kv_tokens or 0:>11,} {p.concurrency or 0:>9.2f}" if pool else ""
        line = f"{_named(name):<{_NAME}} {count:>5} {shown:<14} {p.weights_gib:>8.2f} {pool:>8} {span:>15}{held}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"
