"""The ramp's table, and the inventory's lines that keep its result."""

from collections.abc import Sequence

from vllm_doctor.operate.tune.decide import Limits, Measured, trouble
from vllm_doctor.records.finding import Change
from vllm_doctor.remedy import inventory

HEAD = ("seqs", "tokens/step", "tokens/s", "TTFT p50", "p99 ms", "ITL p50", "p99 ms", "KV use", "preempted", "failed")


def table(rows: Sequence[Measured], best: Measured | None, limits: Limits) -> str:
    """The rows in the order of their trial, the chosen one marked, each with what speaks against it."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    lines = ["  " + "  ".join(c.rjust(w) for c, w in zip(HEAD, widths, strict=True))]
    for row, line in zip(rows, cells[1:], strict=True):
        mark = "* " if row is best else "  "
        why = trouble(row, rows[0], limits)
        figures = "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True))
        lines.append(f"{mark}{figures}{f'  {why}' if why else ''}".rstrip())
    return "\n".join(lines)


def _cells(row: Measured) -> tuple[str, ...]:
    return (
        str(row.setting.seqs),
        "-" if row.setting.tokens is None else str(row.setting.tokens),
        f"{row.output_tps:.1f}" if row.requests else "-",
        _number(row.ttft_ms),
        _number(row.ttft_p99_ms),
        _number(row.itl_ms),
        _number(row.itl_p99_ms),
        "?" if row.kv_peak is None else f"{row.kv_peak:.1%}",
        "?" if row.preemptions is None else f"{row.preemptions:.0f}",
        str(row.errors),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def lines_of(changes: Sequence[Change]) -> tuple[str, ...]:
    """The lines of the inventory."""
    return tuple(
        inventory.line(c) or f"vllm_extra_args: {{{c.name}: {c.after}}}" for c in changes if c.after is not None
    )


def text(
    unit: str,
    rows: Sequence[Measured],
    *,
    best: Measured | None,
    limits: Limits,
    why: str,
    changes: Sequence[Change],
    restored: bool,
) -> str:
    """The whole answer for a person."""
    out = [unit, "", table(rows, best, limits), ""] if rows else [unit, ""]
    if why:
        out += [f"Stopped: {why}.", ""]
    if best is None:
        out.append("No setting that was tried is good; nothing is recommended.")
    elif not changes:
        out.append("The service already runs with the best setting that was tried; change nothing.")
    else:
        gain = f" ({best.output_tps / rows[0].output_tps - 1:+.0%} tokens a second)" if rows[0].output_tps else ""
        out += [
            f"Inventory{gain}; the next playbook run applies it:",
            *(f"  {line}" for line in lines_of(changes)),
        ]
    if restored:
        out += ["", "The earlier configuration serves again; a trial changes nothing permanently."]
    return "\n".join(out) + "\n"
