"""Two releases' plans of one launch beside each other: each term, what became of the pool, and what the releases do
differently."""

from __future__ import annotations

import msgspec

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import rows
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.plan_json import SCHEMA_VERSION, predicted_figures


class Upgrade(msgspec.Struct, frozen=True):
    """One launch with two releases."""

    old: Version
    new: Version
    before: Prediction
    after: Prediction
    touched: frozenset[str]  # behaviours without which one of the two predictions would be another


def _terms(p: Prediction) -> dict[str, float | None]:
    return {
        "budget": p.budget_gib,
        "weights": p.weights_gib,
        "non-torch": p.non_torch_gib,
        "activation": p.activation_gib,
        "graphs, charged": p.cudagraph_budget_gib,
        "KV cache": p.available_kv_gib,
        "one request needs": p.needed_kv_gib,
    }


def differences(u: Upgrade) -> list[tuple[str, str]]:
    """(what only one of them does and what changes this launch, the file of vLLM that it was read in), oldest first,
    the way of the upgrade: what goes begins with "no longer"."""
    told = []
    for row in rows():
        was, now = row.at(u.old), row.at(u.new)
        if was != now and row.name in u.touched:
            told.append((row.what if now else f"no longer: {row.what}", row.source))
    return told


def as_dict(u: Upgrade) -> dict[str, object]:
    """The same as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "upgrade": {
            "from": {"version": str(u.old), "predicted": predicted_figures(u.before)},
            "to": {"version": str(u.new), "predicted": predicted_figures(u.after)},
            "refused": [
                {"flag": r.flag.removeprefix("--"), "found": r.found, "needed": r.needed}
                for r in u.after.settings.refusals
            ],
            "different": [{"what": what, "source": source} for what, source in differences(u)],
        },
    }


def text(u: Upgrade) -> str:
    """The pool first, then the terms of one GPU, then why."""
    p, q = u.before, u.after
    lines = [f"vLLM {u.old} → {u.new}: {_first(u)}"]
    lines += [f"  refused  {r}" for r in q.settings.refusals]
    lines += [f"  unknown  {d}" for d in q.settings.doubts]
    lines += [f"  depends  on {d}" for d in q.settings.depends]
    lines += ["", f"  {'GiB of one GPU':<18} {u.old!s:>9} {u.new!s:>9} {'':>8}"]
    for (name, was), now in zip(_terms(p).items(), _terms(q).values(), strict=True):
        if was is not None and now is not None:
            lines.append(f"  {name:<18} {was:>9.2f} {now:>9.2f} {now - was:>+8.2f}")
    lines += [
        f"  {name:<18} {was:>9,} {now:>9,} {now - was:>+8,}"
        for name, was, now in (
            ("tokens in all", p.kv_tokens or 0, q.kv_tokens or 0),
            ("batched tokens", p.settings.batched, q.settings.batched),
            ("sequences", p.settings.seqs, q.settings.seqs),
        )
    ]
    different = differences(u)
    if different:
        lines += ["", "  the releases' differences for this launch, as far as the plan knows"]
        lines += [f"    {what}  [{source}]" for what, source in different]
    return "\n".join(visible(line) for line in lines) + "\n"


def _has(gib: float) -> str:
    return f"has {gib:.2f} GiB" if gib >= 0 else f"lacks {-gib:.2f} GiB"


def _first(u: Upgrade) -> str:
    p, q = u.before, u.after
    if q.outcome == "rejected":
        return "the later release refuses the launch"
    if q.verdict == "unknown":
        return "cannot be predicted"
    was, now = p.available_kv_gib, q.available_kv_gib
    if was is None or now is None:
        return "the token arithmetic alone"
    several = q.settings.parallel.cards > 1
    moved = f"the KV cache{' of each GPU' if several else ''} goes from {was:.2f} to {now:.2f} GiB"
    if min(was, now) < 0:
        moved = f"for its KV cache {'each GPU' if several else 'the GPU'} {_has(was)}, then {_has(now)}"
    ends = {
        "starts": "it starts",
        "fails-under-load": "it starts, and its first full step runs out of memory",
        "does-not-start": "it does not start",
        "uncertain": "it may start or not",
        "unknown": "it cannot be predicted",
    }
    if p.verdict == q.verdict:
        return f"{moved}; with both {ends[q.verdict]}"
    return f"{moved}; with {u.old} {ends[p.verdict]}, with {u.new} {ends[q.verdict]}"
