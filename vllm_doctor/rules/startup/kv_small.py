"""VD121: the KV cache cannot hold one request of the configured length."""

import math

import msgspec

from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, Cause, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import environment, finding, gib, set_flag
from vllm_doctor.rules.startup.kv_none import on_cpu, raise_utilization

_BLOCK = 16


class TooSmall(msgspec.Struct, frozen=True):
    """What the check said: lengths in tokens, sizes in GiB (None where V0 counts in tokens)."""

    index: int
    length: int
    fits: int
    need: float | None
    have: float | None
    printed: bool


def judge(case: Case) -> Outcome:
    """Did the check that one full-length request fits fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    small = too_small(case)
    if small is None:
        return NotHere("the check that one full-length request fits did not fail")
    return finding(
        RULE,
        title=f"One request of {small.length} tokens does not fit the KV cache; {small.fits} tokens do",
        evidence=(case.line(small.index),),
        arithmetic=_sum(small),
        changes=(
            set_flag(
                case,
                "max-model-len",
                small.fits,
                Direction.LOWER,
                "requests longer than this are refused; it takes nothing from shorter ones, as "
                "blocks are taken as tokens arrive",
                predicted={"max_model_len": float(small.fits)},
            ),
            _raise(case, small),
            half_size_kv(case, small),
            _host_memory(case, small),
        ),
        refute="the log of the same launch shows a 'Maximum concurrency' of 1.00x or more",
    )


def too_small(case: Case) -> TooSmall | None:
    """The failed check of the first fault, in V0's or V1's wording."""
    root = case.root
    if root is None:
        return None
    for hit in root.hits:
        if hit.id == "kv-below-max-len-v0":
            length, tokens = int(hit.fields["length"]), int(hit.fields["tokens"])
            return TooSmall(hit.index, length, tokens, None, None, printed=True)
        if hit.id == "kv-below-max-len":
            length = int(hit.fields["length"])
            need, have = float(hit.fields["need"]), float(hit.fields["have"])
            said = hit.fields.get("estimate")
            fits = int(said) if said else int(have / need * length) // _BLOCK * _BLOCK if need > 0 else 0
            return TooSmall(hit.index, length, fits, need, have, printed=said is not None)
    return None


def _sum(small: TooSmall) -> tuple[Arithmetic, ...]:
    if small.need is None or small.have is None:
        return (
            Arithmetic("longest request that fits", small.fits, "tokens", "KV blocks × block size", "the error line"),
        )
    formula = (
        "printed by vLLM"
        if small.printed
        else f"{small.have} / {small.need} × {small.length}, rounded down to a block of {_BLOCK}"
    )
    return (
        gib("needed for one request", small.need, f"{small.length} tokens", "the error line"),
        gib("available", small.have, "KV cache memory", "the error line"),
        gib("missing", small.need - small.have, f"{small.need} − {small.have}", "the error line"),
        Arithmetic("longest request that fits", small.fits, "tokens", formula, "the error line"),
    )


def _raise(case: Case, small: TooSmall) -> Change | None:
    if small.need is None or small.have is None or case.total_gib is None:
        return None  # without the size of what is missing, and of the card, no sum shows that raising it helps
    # 0.29.0 and later also keep one block back; a hundredth covers it and the rounding of the printed figures.
    return raise_utilization(case, math.ceil((small.need - small.have) * 101) / 100)


def half_size_kv(case: Case, small: TooSmall) -> Change | None:
    """fp8 KV cache, where twice the tokens that fit are enough and the cache is not already that small.

    Sizes are printed in rounded GiB, and newer releases keep a block back: 1.00 of 1.00 GiB may be a block short, which
    the tokens show.
    """
    need, have = small.need, small.have
    if (
        need is None
        or have is None
        or 2 * small.fits < small.length
        or case.effective("kv-cache-dtype") not in {None, "auto", "bfloat16", "float16"}
    ):
        return None
    return set_flag(
        case,
        "kv-cache-dtype",
        "fp8",
        Direction.SET,
        f"one byte an element: 2 × {small.fits} = {2 * small.fits} tokens fit; check quality",
        predicted={"needed_kv_gib": round(need / 2, 2)},
    )


def _host_memory(case: Case, small: TooSmall) -> Change | None:
    """On the CPU build the cache has a size of its own, in whole GiB; one more than needed leaves room for a block."""
    if small.need is None or small.have is None or not on_cpu(case):
        return None
    to = math.floor(small.need) + 1
    why = f"GiB of host memory for the KV cache of the CPU build, now {small.have:g}; `free -g` says what the host has"
    return environment(
        "VLLM_CPU_KVCACHE_SPACE",
        Direction.RAISE,
        why,
        to=to,
        before=case.env("VLLM_CPU_KVCACHE_SPACE"),
        applicability=Applicability.NEEDS_REVIEW,
    )


RULE = Rule(
    code="VD121",
    slug="kv-below-max-model-len",
    title="One full-length request does not fit the KV cache",
    node="startup-kv",
    cause=Cause.KV_TOO_SMALL,
    phase=Phase.STARTUP_KV_CACHE,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}),
    judge=judge,
)
