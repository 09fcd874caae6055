"""VD207: one image or video is larger than the pool it must fit, or the pool larger than what is left for it."""

import math

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction, Phase, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.named_fault import exception_line
from vllm_doctor.rules.gates.refusals_with_rules import ITEM_POOLS
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.say import finding, gib, set_flag

# Of what decoding and the KV cache divide, the part that the cache keeps at least.
_LEFT = 0.25


def judge(case: Case) -> Outcome:
    """Were items refused because they exceed the encoder cache, or the pool in which they are decoded?"""
    run, root = case.run, case.root
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if root is not None and (told := root.fields("decode-reserve-too-large")):
        return _reserve(case, root, {name: float(value) for name, value in told.items()})
    hits = next((hits for pool in ITEM_POOLS if (hits := run.all(pool))), ())
    if not hits:
        return NotHere("no item exceeded the encoder cache, or the pool in which it is decoded")
    last = hits[-1]
    decoded = last.id == "decode-pool-exceeded"
    return finding(
        RULE,
        title="An image or video needs more GPU memory than its pool for decoding has" if decoded else "",
        severity=Severity.DEGRADED,
        phase=None if decoded else Phase.NOT_MEMORY,  # a request was refused for its size, and nothing ran out
        evidence=tuple(case.line(h.index) for h in hits[-2:]),
        changes=(_pool(case, last) if decoded else _cache(case, hits),),
        refute="the same item fails when scaled down to half its sides",
    )


def _cache(case: Case, hits: tuple[Hit, ...]) -> Change | None:
    """Room for the largest item, which is at least twice the cache where the message does not count it."""
    size = int(hits[-1].fields.get("size", "0"))
    item = max(int(h.fields.get("item", "0")) for h in hits)
    if not size:
        return None
    why = f"this option sets the size of the encoder cache; an item needs {item or f'more than {size}'} tokens"
    return set_flag(case, "max-num-batched-tokens", max(size * 2, item), Direction.RAISE, why)


def _pool(case: Case, hit: Hit) -> Change | None:
    if "asked" not in hit.fields:
        return None
    asked, size = (int(hit.fields[name]) for name in ("asked", "size"))
    why = f"the pool is shared by the API servers: one has {size / GIB:.2f} GiB, and this item needs {asked / GIB:.2f}"
    given, servers = case.number("mm-ipc-gpu-memory-gb"), case.count("api-server-count") or 1
    to = math.ceil(given * asked / size if given and size else asked / GIB * servers)
    return set_flag(case, "mm-ipc-gpu-memory-gb", to, Direction.RAISE, why)


def _reserve(case: Case, root: Fault, told: dict[str, float]) -> Outcome:
    """What is kept for decoding leaves nothing of the KV cache: less of it, else a larger budget."""
    want, frames, free = told["want"], told["frames"], told["free"]
    to = math.floor(free * (1 - _LEFT) - told["decoders"])
    why = f"{want:.2f} GiB are kept for decoding, of {free:.2f} that would be the KV cache: {_LEFT:.0%} are left to it"
    return finding(
        RULE,
        title=f"Decoding of images and video keeps {want:.2f} GiB, of {free:.2f} GiB that are left",
        evidence=(exception_line(case, root),),
        arithmetic=(
            gib("kept for decoding", want, f"{frames:.2f} of frames + {told['decoders']:.2f} of decoders", "the error"),
            gib("left for the KV cache", free, "before it", "the error"),
        ),
        changes=(
            set_flag(case, "mm-ipc-gpu-memory-gb", to, Direction.LOWER, why) if frames and to >= 1 else None,
            raise_utilization(case, want - free + 1.0),
        ),
        refute="the same start fails with --mm-ipc-gpu-memory-gb 0",
    )


RULE = rule("VD207", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
