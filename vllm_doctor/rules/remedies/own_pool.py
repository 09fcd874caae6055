"""What makes the pool of the KV cache smaller on platforms that do not size it by `gpu_memory_utilization`."""

import math
from collections.abc import Mapping

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import platform
from vllm_doctor.rules.remedies.weights import smaller_model
from vllm_doctor.rules.say import environment, set_flag, thing

# Neuron's worker makes one block a sequence, as long as the longest prompt; in TT's plugin the model's class names the
# tokens of all sequences. No share of the device is asked for.
_BY_LENGTH = frozenset({"neuron"})
_BY_MODEL = frozenset({"tt"})
# Tokens of a block that TT's plugin asks for.
_BLOCK = 64
# vllm-metal, config.py: its own share of the memory that macOS lends the GPU; unset or `auto` it takes what is needed.
_METAL_SHARE = "VLLM_METAL_MEMORY_FRACTION"
_LESS, _LEAST = 0.1, 0.1
# Its own refusal, with its figures; the least KV cache worth a start, GB, and the most that macOS should lend.
METAL = "metal-no-kv"
_USEFUL, _MOST = 1.0, 0.95
# Sequences that still serve somebody.
_FEW = 8
_MOST_USED = "top -l 1 -o mem -n 10"


def sizes_by_share(case: Case) -> bool:
    """Does `gpu_memory_utilization` size the pool here?"""
    return platform(case) not in _BY_LENGTH | _BY_MODEL | {"mps"}


def smaller_own_pool(case: Case) -> tuple[Change | None, ...]:
    """The changes on such a platform; none where the share decides."""
    device = platform(case)
    if device == "mps":
        return _of_metal(case)
    if device in _BY_MODEL:
        return (_fewer_blocks(case),)
    return (*_shorter(case), _more_devices(case)) if device in _BY_LENGTH else ()


def blocks_that_fit(case: Case, asked: int) -> Change | None:
    """Where the number of blocks was given and found no room: the number that was counted, where the log tells it."""
    run = case.run
    hit = run.last("blocks-override") if run is not None else None
    counted = int(hit.fields["counted"]) if hit is not None else 0
    to = counted if 0 < counted < asked else None
    why = f"{asked} blocks found no room" + (f"; {to} is what was counted at the start" if to else "")
    return set_flag(case, "num-gpu-blocks-override", to, Direction.LOWER, why)


def _fewer_blocks(case: Case) -> Change | None:
    """The number that the model's class names, replaced: one prompt of the full length is the least that serves."""
    length, block = case.number("max-model-len"), case.count("block-size") or _BLOCK
    least = -(-int(length) // block) + 1 if length else None
    told = f"; {int(length or 0)} tokens in blocks of {block} are the least that serves" if least else ""
    why = f"replaces the number of blocks that the model's class sizes the KV cache by{told}"
    return set_flag(case, "num-gpu-blocks-override", least, Direction.LOWER, why)


def _of_metal(case: Case) -> tuple[Change | None, ...]:
    why = "the GPU uses the memory of the whole Mac, so other programs leave less of it to the model"
    others = thing(ChangeKind.OS, "other-programs", Direction.STOP, why, command=_MOST_USED)
    told = case.env(_METAL_SHARE)
    now = float(told) if told is not None and told.replace(".", "", 1).isdigit() else None
    if now is None or now - _LESS < _LEAST:
        return (others, smaller_model(case))
    share = "vllm-metal takes this share of the memory that macOS lends the GPU; a step works in the rest"
    to = round(now - _LESS, 2)
    return (environment(_METAL_SHARE, Direction.LOWER, share, to=to, before=now), others)


def larger_metal_share(case: Case, said: Mapping[str, str]) -> tuple[Change | None, ...]:
    """The share that leaves a useful KV cache, by the figures of vllm-metal's refusal; else a smaller model."""
    limit, now, left = (float(said[key]) if said.get(key) else None for key in ("limit", "fraction", "left"))
    model = smaller_model(case)
    if not limit or now is None or left is None:
        told = case.env(_METAL_SHARE)
        if told is not None and told.replace(".", "", 1).isdigit() and float(told) + _LESS > _MOST:
            return (model, _fewer_states(case))
        why = "vllm-metal takes this share of the memory that macOS lends the GPU; the model uses all of it"
        return (environment(_METAL_SHARE, Direction.RAISE, why, before=case.env(_METAL_SHARE)), model)
    to = math.ceil((now * limit - left + _USEFUL) / limit * 100) / 100
    if to > _MOST:
        return (model, _fewer_states(case))
    why = f"({now:g} × {limit:.2f} + {-left:.2f} + {_USEFUL:g}) / {limit:.2f}: it counts before gpu_memory_utilization"
    return (environment(_METAL_SHARE, Direction.RAISE, why, to=to, before=case.env(_METAL_SHARE) or now), model)


def _fewer_states(case: Case) -> Change | None:
    """vllm-metal's refusal names it: it keeps the state of hybrid layers for each sequence."""
    if (case.count("max-num-seqs") or _FEW + 1) <= _FEW:
        return None
    why = "the state of hybrid layers is kept for max_num_seqs sequences, before the KV cache"
    return set_flag(case, "max-num-seqs", _FEW, Direction.LOWER, why)


def _shorter(case: Case) -> tuple[Change | None, ...]:
    length, seqs = case.number("max-model-len"), case.count("max-num-seqs")
    made = "this platform makes its KV cache for max_num_seqs sequences of max_model_len tokens"
    fewer = seqs // 2 if seqs is not None and seqs > 1 else None
    return (
        set_flag(case, "max-model-len", int(length) // 2 if length else None, Direction.LOWER, _half(made, length)),
        set_flag(case, "max-num-seqs", fewer, Direction.LOWER, _half(made, seqs)) if seqs != 1 else None,
    )


def _half(why: str, now: float | None) -> str:
    return f"{why}: half of them take half of it" if now else f"{why}: set half of the present value"


def _more_devices(case: Case) -> Change | None:
    parts = case.count("tensor-parallel-size") or 1
    why = f"splits weights and KV cache: each core holds 1/{parts * 2} of them instead of 1/{parts}"
    return set_flag(case, "tensor-parallel-size", parts * 2, Direction.RAISE, why)
