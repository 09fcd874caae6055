"""The statistics that a serving engine prints; fields come and go with versions, so each is read by itself."""

import msgspec

from vllm_doctor.knowledge.pattern import Pattern

_FIELD = {
    "prompt": Pattern(r"Avg prompt throughput: (\d{1,12}(?:\.\d{1,6})?)"),
    "generation": Pattern(r"Avg generation throughput: (\d{1,12}(?:\.\d{1,6})?)"),
    "running": Pattern(r"Running: (\d{1,12}) reqs"),
    "waiting": Pattern(r"(?:Waiting|Pending): (\d{1,12}) reqs"),
    "swapped": Pattern(r"Swapped: (\d{1,12}) reqs"),
    "preemptions": Pattern(r"Preemptions: (\d{1,12})"),
    "kv": Pattern(r"\b(?!CPU\b)\w+ KV cache usage: (\d{1,12}(?:\.\d{1,6})?)%"),
    "hit_rate": Pattern(r"(?<!External )(?:[Pp]refix cache hit rate: (?:GPU: )?)(\d{1,12}(?:\.\d{1,6})?)%"),
}


class Stats(msgspec.Struct, frozen=True):
    """Tokens a second, requests, the use of the KV cache and the prefix cache's hits in percent; None: not printed."""

    prompt: float
    generation: float
    running: int = 0
    waiting: int = 0
    swapped: int = 0
    preemptions: int | None = None
    kv: float | None = None
    hit_rate: float | None = None


def parse_stats(text: str) -> Stats | None:
    """The statistics in a line, or None if it holds none."""
    found = {name: m[1] for name, pattern in _FIELD.items() if (m := pattern.search(text)) is not None}
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
    )
