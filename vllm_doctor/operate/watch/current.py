"""What a person wants to see of a service now: two looks made into figures; no I/O."""

from collections.abc import Mapping

import msgspec

from vllm_doctor.records.finding import Memory, Part
from vllm_doctor.records.sample import CardUse, Look

_GIB = 1 << 30


class ServiceFigures(msgspec.Struct, frozen=True):
    """One service. Rates are a second, times in milliseconds, `kv` lies between 0 and 1; None is not known (yet).

    `answers` is whether /health said 200 just now.
    """

    name: str
    state: str
    why: str = ""
    kv: float | None = None
    running: float | None = None
    waiting: float | None = None
    preempted: float | None = None
    preempted_rate: float | None = None
    prompt_rate: float | None = None
    output_rate: float | None = None
    first_ms: float | None = None
    between_ms: float | None = None
    host_gib: float | None = None
    cards: tuple[Memory, ...] = ()
    finding: str = ""
    answers: bool = True


def figures(before: Look | None, now: Look, started: Mapping[str, float], finding: str = "") -> ServiceFigures:
    """`started` is what the start logged of its memory, GiB by the names weights, graphs and KV cache."""
    c = now.counters
    b = before.counters if before is not None and before.invocation == now.invocation else None
    seconds = now.awake - before.awake if before is not None else 0.0

    def rate(name: str) -> float | None:
        new, old = getattr(c, name, None), getattr(b, name, None)
        return (new - old) / seconds if new is not None and old is not None and new >= old and seconds > 0 else None

    return ServiceFigures(
        name=now.unit,
        state=_state(now),
        why=now.why,
        kv=c.kv if c else None,
        running=c.running if c else None,
        waiting=c.waiting if c else None,
        preempted=c.preemptions if c else None,
        preempted_rate=rate("preemptions"),
        prompt_rate=rate("prompt"),
        output_rate=rate("generated"),
        first_ms=_mean(b.first if b else None, c.first if c else None),
        between_ms=_mean(b.between if b else None, c.between if c else None),
        host_gib=now.host / _GIB if now.host else None,
        cards=tuple(bar for card in now.cards if (bar := _bar(card, c.kv if c else None, started)) is not None),
        finding=finding,
        answers=now.health == 200,
    )


def _state(now: Look) -> str:
    words = [word for word in (now.active, "drained" if now.drained else "", now.held) if word]
    asleep = ["asleep"] if now.counters is not None and now.counters.asleep else []
    return ", ".join((*words, now.state, *asleep))


def _mean(before: tuple[float, float] | None, now: tuple[float, float] | None) -> float | None:
    """The mean of what came between two looks, milliseconds."""
    if before is None or now is None or now[1] <= before[1] or now[0] < before[0]:
        return None
    return 1000 * (now[0] - before[0]) / (now[1] - before[1])


def _bar(card: CardUse, kv: float | None, started: Mapping[str, float]) -> Memory | None:
    """A card's memory in parts that are together all of it."""
    if card.total is None or card.free is None or card.own is None:
        return None
    total, free, own = (size / _GIB for size in (card.total, card.free, card.own))
    others = min((card.others or 0) / _GIB, max(0.0, total - free - own))
    parts: list[Part] = []
    left = own
    for name in ("weights", "graphs", "KV cache"):
        size = min(started.get(name, 0.0), left)
        left -= size
        if name == "KV cache" and kv is not None and size:
            parts += [Part("KV used", size * kv), Part("KV free", size * (1 - kv))]
        elif size:
            parts.append(Part(name, size))
    parts.append(Part("its other memory" if parts else "this service", left))
    if others:
        parts.append(Part("other processes", others))
    rest = total - free - own - others
    if rest > 0.01:
        parts.append(Part("driver", rest))
    return Memory(card.uuid, total, (*(p for p in parts if p.gib > 0.005), Part("free", free)))
