"""Which cards reach a goal: a row and a launch to paste for each, or what the nearest lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from vllm_doctor.launch import quote
from vllm_doctor.launch.write import serve_words
from vllm_doctor.plan.advice.set_ups import SetUp, SetUpAnswer
from vllm_doctor.plan.question.goal import Goal
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.plan_json import SCHEMA_VERSION, predicted_figures
from vllm_doctor.render.plan_launch import pasted

# Rows of the short list, beside the first of a format that is not among them; --explain and JSON have all.
SHORT = 6
# Cards whose memory differs by no more than this part of it are told as one.
_SAME = 0.02


class Reached(msgspec.Struct, frozen=True):
    """The goal and its answer."""

    goal: Goal
    version: str
    answer: SetUpAnswer
    notes: tuple[str, ...]


def as_dict(r: Reached) -> dict[str, object]:
    """The same as JSON, with every row."""
    nearest = r.answer.nearest
    return {
        "schema_version": SCHEMA_VERSION,
        "goal": {
            "context": r.goal.context,
            "concurrency": r.goal.concurrency,
            "rows": [_row(row) for row in r.answer.rows],
            "nearest": None if nearest is None else {**_row(nearest), "missing": _missing(nearest)},
        },
        "notes": list(r.notes),
    }


def _row(row: SetUp) -> Mapping[str, object]:
    line, p = row.planner.line, row.predicted
    return {
        "gpu": row.card.name,
        "gpus": row.count,
        "format": row.format.name,
        "tensor_parallel_size": p.settings.parallel.tp,
        "pipeline_parallel_size": p.settings.parallel.pp,
        "data_parallel_size": p.settings.parallel.dp,
        "expert_parallel": p.settings.parallel.expert,
        "memory_gib": round(row.memory_gib, 2),
        "price_per_hour": None if row.price is None else round(row.price, 4),
        "requests_at_once": None if row.holds is None else [round(held, 2) for held in row.holds],
        "launch": quote.words((*(f"{k}={v}" for k, v in line.env.items()), *serve_words(line, row.planner.version))),
        "predicted": predicted_figures(p),
        "margin": {"available_kv_gib": None if p.margin_gib is None else [round(x, 2) for x in p.margin_gib]},
    }


_REQUESTS = "requests: how many the KV cache holds at the low end of the range and in its middle"


def _missing(row: SetUp) -> str:
    """Why the nearest does not do, in words."""
    p = row.predicted
    if p.settings.refusals:
        return f"vLLM refuses it: {p.settings.refusals[0]}"
    if p.settings.doubts:
        return f"cannot be predicted: {p.settings.doubts[0]}"
    low = 0.0 if row.holds is None else row.holds[0]
    each = " on each GPU" if row.count > 1 else ""
    return (
        f"{row.missing_gib:.2f} GiB more{each}; its KV cache holds {low:.1f} such requests at the low end of the range"
    )


def text(r: Reached, *, explain: bool = False) -> str:
    """What reaches the goal, the cheapest first, each with its launch; or the nearest, and what it lacks."""
    rows, goal = r.answer.rows, r.goal
    asked = f"{goal.concurrency} request{'s' if goal.concurrency > 1 else ''} of {goal.context:,} tokens at once"
    if not rows:
        lines = [f"vLLM {r.version}, {asked}: no card that was tried certainly reaches it"]
        if (near := r.answer.nearest) is not None:
            lines += [f"  nearest  {near.count} × {near.card.name}, {near.format.name}", f"  missing  {_missing(near)}"]
    else:
        first = rows[0]
        price = "" if first.price is None else f", {first.price:g} an hour"
        lines = [
            f"vLLM {r.version}, {asked}: {first.count} × {first.card.name}, {first.format.name}{price}",
            *_without_loss(rows),
            "  certain to start" if first.holds is None else f"  certain to start; {_REQUESTS}",
        ]
        shown = [[row] for row in rows] if explain else _short(rows)
        for row, *alike in shown:
            lines += ["", *_told(row, alike)]
        if (more := len(rows) - sum(map(len, shown))) > 0:
            lines += ["", f"  {more} more with --explain"]
    if r.notes:
        lines += ["", *(f"  note: {n}" for n in r.notes)]
    return "\n".join(visible(line) for line in lines) + "\n"


def _without_loss(rows: Sequence[SetUp]) -> list[str]:
    """The first that keeps weights and cache as they are, where the first of all does not."""
    plain = next((row for row in rows if not row.format.options), None)
    if rows[0].format.options and plain is not None:
        return [f"  8 bits cost some accuracy; full accuracy needs {plain.count} × {plain.card.name}, as stored"]
    if rows[0].format.options:
        return ["  8 bits cost some accuracy; no card that was tried holds it with weights and cache as stored"]
    return []


def _alike(row: SetUp, other: SetUp) -> bool:
    """Do two cards of one generation and size give the same answer?"""
    return (row.count, row.format, row.card.capability) == (other.count, other.format, other.card.capability) and abs(
        row.memory_gib - other.memory_gib
    ) < _SAME * row.memory_gib


def _short(rows: Sequence[SetUp]) -> list[list[SetUp]]:
    """The first of each kind of card and format with those that are like it; each format once. Where prices are given,
    each card of its own."""
    kept: list[list[SetUp]] = []
    for row in rows:
        if row.price is not None:
            kept.append([row])
        elif (group := next((g for g in kept if _alike(g[0], row)), None)) is not None:
            group.append(row)
        elif all((g[0].card.template, g[0].format) != (row.card.template, row.format) for g in kept):
            kept.append([row])
    there = {group[0].format for group in kept[:SHORT]}
    missing = dict.fromkeys(row.format for row in rows if row.format not in there)
    return kept[:SHORT] + [next(g for g in kept if g[0].format == fmt) for fmt in missing]


def _told(row: SetUp, alike: Sequence[SetUp] = ()) -> list[str]:
    p = row.predicted
    each = " on each GPU" if row.count > 1 else ""
    price = "" if row.price is None else f", {row.price:g} an hour"
    nameplate = "" if row.card.exact else " from the nameplate"
    held = "no cache" if row.holds is None else f"{row.holds[0]:.1f} to {row.holds[1]:.1f} requests"
    left = "left" if p.pool is None else "KV cache"
    pool = "" if p.available_kv_gib is None else f", {left} {p.available_kv_gib:.2f}"
    return [
        f"  {row.count} × {row.card.name}, {row.format.name}: {row.memory_gib:.0f} GiB{nameplate}{price}",
        *([f"  or       {', '.join(other.card.name for other in alike)}"] if alike else []),
        f"  holds    {held}; weights {p.weights_gib:.2f}{pool} GiB{each}",
        *pasted(row.planner.line, row.planner),
    ]
