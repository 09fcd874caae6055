"""What a planned launch takes of the host's own memory, as JSON and as lines of text."""

from __future__ import annotations

from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.terms.host import REGISTERED_GIB, KeptOnHost

# From here on what torch rounds is worth a word.
_ROUNDED = 1.1


def host_dict(p: Prediction, memory_gib: float | None) -> dict[str, object] | None:
    """The `host` object: GiB, of each rank and of all; None where the launch keeps nothing there."""
    use = p.host
    if not use.pools and not use.unsure:
        return None
    return {
        "memory_gib": None if memory_gib is None else round(memory_gib, 2),
        "taken_gib": round(use.total_gib, 2),
        "shared_memory_gib": round(use.shared_gib, 2),
        "pools": [
            {
                "name": x.name,
                "asked_gib_per_rank": round(x.asked, 3),
                "taken_gib_per_rank": round(x.taken, 3),
                "ranks": x.ranks,
                "taken_gib": round(x.total, 2),
                "in_shared_memory": x.shared,
                "formula": x.formula,
                "source": x.source,
            }
            for x in use.pools
        ],
        "unknown": list(use.unsure),
    }


def host_lines(p: Prediction, memory_gib: float | None, *, explain: bool) -> list[str]:
    """What the launch takes of the host, against what the host has."""
    use = p.host
    if not use.pools and not use.unsure:
        return []
    lines: list[str] = []
    if use.pools:
        of = "" if memory_gib is None else f" of {memory_gib:.1f}"
        beside = "; the processes themselves come on top" if p.outcome != "oom-host" else ""
        lines.append(f"  host     {use.total_gib:.1f}{of} GiB are kept in its memory{beside}")
    for x in use.pools:
        lines += [f"           {_pool(x)}", *_advice(p, x)]
        if explain:
            lines.append(f"             {x.formula}  [{x.source}]")
    if p.outcome == "oom-host" and memory_gib is not None:
        lines.append(
            f"           {use.total_gib - memory_gib:.1f} GiB too much: take less of it, or a host with more memory"
        )
    return lines + [f"           not known: {x}" for x in use.unsure]


def _pool(x: KeptOnHost) -> str:
    ranks = f" on each of {x.ranks} ranks" if x.ranks > 1 else ""
    more = f", {x.asked:.2f} asked: torch rounds what it pins" if x.taken > _ROUNDED * x.asked else ""
    return f"{x.name} {x.taken:.2f} GiB{ranks}{more}"


def _advice(p: Prediction, x: KeptOnHost) -> list[str]:
    """What must be so on the host, and which size costs no more than it gives."""
    if x.shared:
        ends = "the start ends" if x.looked_at else "a rank is killed by SIGBUS"
        lines = [
            f"             /dev/shm must have {x.total:.1f} GiB free, else {ends}; it has half of the memory where",
            "             nothing else is mounted there, 64 MiB in a container without --shm-size",
        ]
        if x.stays_pageable:
            lines.append(
                f"             one call of CUDA pins less than {REGISTERED_GIB} GiB: take less, or 0.31 or later"
            )
        return lines
    if x.used_whole is None or x.taken <= _ROUNDED * x.asked:
        return []
    inner = p.settings.parallel.tp * p.settings.parallel.pp
    return [f"             {x.used_whole * inner:g} GiB of all ranks would be used whole, and take half"]
