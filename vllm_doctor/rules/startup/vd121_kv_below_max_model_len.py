"""VD121: the KV cache cannot hold one request of the configured length."""

import math
from collections.abc import Mapping

from vllm_doctor.records.finding import Arithmetic, Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import (
    BLOCK,
    TooSmall,
    cut_short,
    on_cpu,
    serves_nobody,
    smaller_elsewhere,
    too_small,
)
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.kv_cache import half_size_kv
from vllm_doctor.rules.remedies.second_start import second_start
from vllm_doctor.rules.remedies.step import fewer_sequences, fewer_tokens
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import environment, finding, gib, set_flag

# Ranks that do equal work differ by less, GiB.
_UNLIKE = 0.5
_SHORTER = "vLLM then refuses requests longer than this; shorter requests are not affected"
_OF_THE_FIRST = (
    "vLLM then refuses requests longer than this; the length that it prints is that of the rank it checked first"
)


def judge(case: Case) -> Outcome:
    """Did the check that one full-length request fits fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    small = too_small(case)
    if small is None:
        return _of_a_part(case) or NotHere("the check that one full-length request fits did not fail")
    least = smaller_elsewhere(case, small)
    if least is not None:
        return _on_another_rank(case, small, least)
    return finding(
        RULE,
        title=f"The KV cache cannot hold one request of {small.length} tokens; {small.fits} tokens fit",
        confidence=Confidence.LIKELY if small.retold else Confidence.CONFIRMED,
        evidence=(case.line(small.index),),
        arithmetic=_sum(small),
        changes=(
            second_start(case, small),
            _shorter(case, small.fits, _SHORTER, predicted={"max_model_len": float(small.fits)}),
            _raise(case, small),
            half_size_kv(case, small),
            _host_memory(case, small),
            *_more_room(case, small),
        ),
        refute="the log of the same launch shows a 'Maximum concurrency' of 1.00x or more",
    )


def _shorter(case: Case, to: int | None, why: str, predicted: Mapping[str, float] | None = None) -> Change | None:
    return set_flag(case, "max-model-len", to, Direction.LOWER, why, predicted=predicted)


def _on_another_rank(case: Case, small: TooSmall, least: float) -> Finding:
    """The check ended at the first rank; another has less, so what fits the first does not fit the launch."""
    need = small.need or 0.0
    fits = int(small.fits * least / small.have) // BLOCK * BLOCK if least > 0 and small.have else 0
    none = "so no length fits it" if fits <= 0 else f"in which about {fits} tokens fit"
    return finding(
        RULE,
        title=f"The KV cache cannot hold one request of {small.length} tokens; a rank has {least:.2f} GiB, {none}",
        confidence=Confidence.LIKELY if small.retold else Confidence.CONFIRMED,
        evidence=(case.line(small.index), *_pools(case)),
        arithmetic=(
            gib("needed for one request", need, f"{small.length} tokens", "the error line"),
            gib("available", least, "KV cache memory of the rank that has least", "the log"),
            gib("missing", need - least, f"{need} − {least}", "both"),
        ),
        changes=(
            _shorter(case, fits, _OF_THE_FIRST) if fits > 0 else None,
            _freed_there(case, (small.have or 0.0) - least),
            raise_utilization(case, math.ceil((need - least) * 101) / 100) if case.total_gib is not None else None,
            half_size_kv(case, small),
            fewer_sequences(case, None),
            fewer_tokens(case, None),
            *lighter(case, loaded=True),
        ),
        refute="the log of the same launch shows a 'Maximum concurrency' of 1.00x or more",
    )


def _freed_there(case: Case, less: float) -> Change | None:
    """Ranks of one stage hold as many weights and do the same work: what one lacks, something else holds there."""
    run = case.run
    if run is None or less < _UNLIKE or (case.count("pipeline-parallel-size") or run.pipeline) > 1:
        return None
    return stop_others(
        case, f"ranks do equal work, and this one has {less:.2f} GiB less: something else may hold it there"
    )


def _pools(case: Case) -> tuple[Evidence, ...]:
    """The lines in which ranks print their pools, that of the smallest first."""
    hits = case.run.all("kv-available") if case.run is not None else ()
    return tuple(case.line(hit.index) for hit in sorted(hits, key=lambda hit: float(hit.fields["size"]))[:2])


def _of_a_part(case: Case) -> Finding | None:
    """The message without its head: what was asked for is not told, the direction is."""
    part = cut_short(case)
    if part is None:
        return None
    index, have, fits = part
    how = "" if fits is not None else "the log prints the longest that fits as `estimated maximum model length`; "
    return finding(
        RULE,
        title="The KV cache cannot hold one request of the configured length",
        confidence=Confidence.CONFIRMED if have is not None else Confidence.LIKELY,
        evidence=(case.line(index),),
        arithmetic=(gib("available", have, "KV cache memory", "the error line"),) if have is not None else (),
        changes=(_shorter(case, fits, f"{how}{_SHORTER}"),),
        refute="the log of the same launch shows a 'Maximum concurrency' of 1.00x or more",
    )


def _more_room(case: Case, small: TooSmall) -> tuple[Change | None, ...]:
    """Where what fits serves nobody, the memory has to come from what lies beside the KV cache."""
    if on_cpu(case) or not serves_nobody(small.fits, small.length):
        return ()
    return (fewer_sequences(case, None), fewer_tokens(case, None), *lighter(case, loaded=True))


def _sum(small: TooSmall) -> tuple[Arithmetic, ...]:
    if small.need is None or small.have is None:
        return (
            Arithmetic("longest request that fits", small.fits, "tokens", "KV blocks × block size", "the error line"),
        )
    formula = (
        "printed by vLLM"
        if small.printed
        else f"{small.have} / {small.need} × {small.length}, rounded down to a block of {BLOCK}"
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


def _host_memory(case: Case, small: TooSmall) -> Change | None:
    """On the CPU build the cache has a size of its own, in whole GiB; one more than needed leaves room for a block."""
    if small.need is None or small.have is None or not on_cpu(case):
        return None
    to = math.floor(small.need) + 1
    why = (
        f"sets the GiB of host memory for the KV cache of the CPU build, now {small.have:g}; `free "
        "-g` shows what the host has"
    )
    return environment(
        "VLLM_CPU_KVCACHE_SPACE",
        Direction.RAISE,
        why,
        to=to,
        before=case.env("VLLM_CPU_KVCACHE_SPACE"),
        applicability=Applicability.NEEDS_REVIEW,
    )


RULE = rule(
    "VD121", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}), judge=judge
)
