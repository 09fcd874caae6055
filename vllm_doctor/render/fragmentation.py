"""The use of the KV blocks for a person, or as JSON."""

import json

import msgspec

from vllm_doctor.plan.usage.allocator import Allocator, TorchError
from vllm_doctor.plan.usage.kv_use import ENOUGH, KvUse, Waste
from vllm_doctor.records.finding import Subject, subject
from vllm_doctor.records.reading import Absent, Unknown
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.text import figure

GIB = 1 << 30
# A smaller block must give back at least this share of what requests take to be worth a word.
WORTH = 0.05


def unseen(why: Unknown | Absent, output: str) -> str:
    """Why there is nothing to say, and how to change that."""
    verdict = "unknown" if isinstance(why, Unknown) else "not_applicable"
    remedy = why.remedy if isinstance(why, Unknown) else ""
    if output == "json":
        return (
            json.dumps({"schema_version": 1, "verdict": verdict, "reason": why.reason, "remedy": remedy}, indent=2)
            + "\n"
        )
    return f"{verdict.upper().replace('_', ' ')}  {visible(why.reason)}\n" + (
        f"  -> {visible(remedy)}\n" if remedy else ""
    )


def report(use: KvUse, allocator: Allocator, output: str, who: Subject) -> str:
    """The figures, each with what it was computed from."""
    advice = block_advice(use)
    if output == "json":
        told = {
            "schema_version": 1,
            "verdict": "ok",
            "subject": msgspec.to_builtins(who),
            "kv": msgspec.to_builtins(use),
            "allocator": msgspec.to_builtins(allocator),
            "advice": advice,
        }
        return json.dumps(told, indent=2) + "\n"
    lines = [f"KV cache of {visible(subject(who)) or 'the server'}", *_pool(use), *_requests(use), *_waste(use)]
    lines += ["", "Advice on the block size", f"  {advice}", "", "Allocator", *_allocator(allocator)]
    return "\n".join(lines) + "\n"


def _pool(use: KvUse) -> list[str]:
    if use.blocks is None or use.block_size is None:
        return ["  this server does not export its number of blocks (vllm:cache_config_info has no num_gpu_blocks)"]
    tokens = figure(use.blocks * use.block_size)
    lines = [f"  pool       {figure(use.blocks)} blocks of {use.block_size} tokens = {tokens} tokens"]
    if use.used_blocks is not None and use.free_blocks is not None and use.used_share is not None:
        lines.append(
            f"  used       {figure(round(use.used_blocks))} blocks ({use.used_share:.1%}), cached prefixes not counted"
        )
        lines.append(f"  free       {figure(round(use.free_blocks))} blocks")
    return lines


def _requests(use: KvUse) -> list[str]:
    lines = [
        "",
        "Requests",
        f"  running {_or(use.running)}, waiting {_or(use.waiting)}, preempted since the start {_or(use.preemptions)}",
    ]
    if use.blocks_per_running is not None:
        lines.append(f"  each running request holds {figure(round(use.blocks_per_running, 1))} blocks on average")
    if use.mean_request is not None:
        lines.append(
            f"  mean finished request: {figure(round(use.mean_prompt or 0, 1))} prompt"
            f" + {figure(round(use.mean_output or 0, 1))} output"
            f" = {figure(round(use.mean_request, 1))} tokens ({figure(use.finished)} finished)"
        )
    if use.more_mean is not None:
        lines.append(f"  {figure(use.more_mean)} more of the mean length fit into the free blocks")
    if use.more_longest is not None and use.max_model_len is not None:
        lines.append(
            f"  {figure(use.more_longest)} more of the longest allowed ({figure(use.max_model_len)} tokens) fit"
        )
    return lines


def _waste(use: KvUse) -> list[str]:
    lines = ["", "Lost inside the last block of each request"]
    if not use.waste:
        return [
            *lines,
            f"  not known: {figure(use.finished)} requests have finished, a histogram needs {ENOUGH}",
        ]
    if use.waste_now is not None:
        lines.append(f"  now about {figure(round(use.waste_now))} tokens over the running requests")
    for one in use.waste:
        mark = "  <- in use" if one.block_size == use.block_size else ""
        refused = {
            True: "",
            False: "  (this version does not take it)",
            None: "  (not known whether this version takes it)",
        }[one.allowed]
        lines.append(
            f"  block size {one.block_size:>4}: {one.tokens:6.1f} tokens a request,"
            f" {one.share:6.2%} of what it takes{mark}{refused}"
        )
    return lines


def block_advice(use: KvUse) -> str:
    """One sentence; a size is named only if this version takes it and it gives back something worth having."""
    if not use.waste:
        return "none: too few requests have finished to know their lengths"
    here = next((w for w in use.waste if w.block_size == use.block_size), None)
    if here is None:
        return "none: the server does not export its block size"
    better: list[Waste] = [
        w for w in use.waste if w.allowed and w.block_size < here.block_size and here.share - w.share >= WORTH
    ]
    # 16 is the smallest that the FlashAttention family takes: below it another, slower kernel is chosen.
    better = [w for w in better if w.block_size >= 16]
    if not better:
        return (
            f"keep {here.block_size}: {here.share:.1%} is lost inside blocks; no size of this version changes it much"
        )
    best = min(better, key=lambda w: (round(w.share / WORTH), -w.block_size))
    return (
        f"--block-size {best.block_size} would lose {best.share:.1%} instead of {here.share:.1%}, room for about "
        f"{(1 - best.share) / (1 - here.share) - 1:.0%} more requests of these lengths, if the kernel takes it"
    )


def _allocator(told: Allocator) -> list[str]:
    lines: list[str] = []
    for card in told.cards:
        held = f"{card.ours / GIB:.2f} GiB by this unit" if card.ours is not None else "by this unit: unknown"
        other = f"{card.others / GIB:.2f} GiB by others" if card.others is not None else "by others: unknown"
        lines.append(
            f"  GPU {card.index} {visible(card.name)}: {card.free / GIB:.2f} of {card.total / GIB:.2f} GiB free;"
            f" {held}; {other}"
        )
    if told.error is not None:
        lines.append(_error(told.error))
    lines.append(f"  {visible(told.why_not)}")
    return lines


def _error(error: TorchError) -> str:
    asked = f"  last out-of-memory error (line {error.line}): asked {error.asked / GIB:.2f} GiB, "
    if error.unallocated is None:
        return f"{asked}the message does not say how much torch held unused"
    verdict = "fragmentation" if error.fragmented else "a real shortage, not fragmentation"
    return f"{asked}reserved but unallocated {error.unallocated / GIB:.2f} GiB: {verdict}"


def _or(value: float | None) -> str:
    return figure(value) if value is not None else "not told"
