"""The statistics that a serving engine prints; fields come and go with versions, so each is read by itself."""

import msgspec

from vllm_doctor.log.match import read

# A part of the line each: its field, and the message that reads it.
_FIELDS = {
    "prompt": "stats-prompt",
    "generation": "stats-generation",
    "running": "stats-running",
    "waiting": "stats-waiting",
    "swapped": "stats-swapped",
    "preemptions": "stats-preemptions",
    "corrupted": "stats-corrupted",
    "engine": "stats-engine",
    "kv": "stats-kv",
    "hit_rate": "stats-hit-rate",
}


class Stats(msgspec.Struct, frozen=True):
    """Tokens a second, requests, the use of the KV cache and the prefix cache's hits in percent; None: not printed.

    `corrupted` are requests with NaN in their logits, `engine` is the number of the engine that the line is of.
    """

    prompt: float
    generation: float
    running: int = 0
    waiting: int = 0
    swapped: int = 0
    preemptions: int | None = None
    kv: float | None = None
    hit_rate: float | None = None
    corrupted: int = 0
    engine: str = ""


def parse_stats(text: str) -> Stats | None:
    """The statistics in a line, or None if it holds none."""
    found = {name: said["value"] for name, message in _FIELDS.items() if (said := read(message, text)) is not None}
    if "generation" not in found:
        return None
    preemptions, kv, hits = found.get("preemptions"), found.get("kv"), found.get("hit_rate")
    return Stats(
        prompt=float(found.get("prompt", "0")),
        generation=float(found["generation"]),
        running=int(found.get("running", "0")),
        waiting=int(found.get("waiting", "0")),
        swapped=int(found.get("swapped", "0")),
        preemptions=int(preemptions) if preemptions is not None else None,
        kv=float(kv) if kv is not None else None,
        hit_rate=float(hits) if hits is not None else None,
        corrupted=int(found.get("corrupted", "0")),
        engine=found.get("engine", ""),
    )
