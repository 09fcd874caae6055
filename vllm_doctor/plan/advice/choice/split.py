"""On how many cards: tensor parallelism before stages, and a part of the weights in host memory as the last resort."""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from vllm_doctor.knowledge.versions import flag
from vllm_doctor.launch.parse import LaunchError
from vllm_doctor.plan.advice.choice.draft import LEAST, USEFUL, Draft
from vllm_doctor.plan.advice.choice.room import ways
from vllm_doctor.plan.advice.recommendation import Changes, Holds, Sum, holds, requests_held, safe
from vllm_doctor.plan.launch.flags import SettingError
from vllm_doctor.plan.launch.spread import divides_vocabulary
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner


def spread(draft: Draft, length: int) -> int:
    """TP x PP: the fewest cards on which weights, activations and one request of `length` fit, tensor parallelism
    before stages; where nothing holds all of it, a shorter one. The length to go on with, shorter where weights had
    to leave the card."""
    now = draft.planner.settings().parallel
    flags, gpus, tp_now, pp_now = (
        draft.planner.line.flags,
        max(draft.planner.gpus * now.hosts // now.local, 1),
        now.tp,
        now.pp,
    )
    splits = [
        (tp, pp)
        for tp in range(1, gpus + 1)
        for pp in range(1, gpus // tp + 1)
        if pp <= len(draft.arch.layers) and _divides(draft, tp)
    ]
    # Stages only where tensor parallelism alone does not do: they add latency. Fewest cards first.
    splits.sort(key=lambda split: (split[1] > 1, split[0] * split[1], split[1]))
    if tp_now * pp_now <= gpus:
        splits.insert(0, (tp_now, pp_now))
    tensor = [split for split in splits if split[1] == 1 or split == (tp_now, pp_now)]
    asked, useful = draft.asks_length(), min(length, USEFUL)
    tries = [(length, tensor, False), *([(length, splits, True)] if asked else []), (useful, tensor, False)]
    for most, among, narrow in (*tries, (useful, splits, True), (min(length, LEAST), splits, True)):
        for tp, pp in among:
            if _held(draft, tp, pp, most, narrow=narrow) is not None:
                if gpus > 1 or "tensor-parallel-size" in flags:
                    said = {"tensor-parallel-size", "pipeline-parallel-size"} & flags.keys()
                    wide = (tp, pp) if said else _for_workload(draft, (tp, pp), among, most, narrow=narrow)
                    _spread_reason(draft, *wide)
                return length
    widest = max(tp for tp, pp in tensor if pp == 1)
    if _better_than_offload(draft, widest):
        return length
    return next((n for tp in (widest, 1) if (n := _offload(draft, length, tp))), length)


def _divides(draft: Draft, tp: int) -> bool:
    heads, kv = draft.arch.heads, draft.arch.kv_heads
    even = not (heads and heads % tp) and not (kv and draft.arch.mla is None and kv % tp and tp % kv)
    return even and divides_vocabulary(draft.arch, tp)


def _better_than_offload(draft: Draft, widest: int) -> bool:
    """Would weights in 8 or 4 bits, or two or four times the cards, hold it? Each is faster than weights that cross
    PCIe at every step, and each is a person's choice."""
    planner = draft.planner
    if planner.gpu is None:
        return False
    few: Changes = {"max-model-len": str(min(LEAST, draft.arch.context)), "max-num-seqs": "8"}
    tries: list[tuple[Planner, Changes]] = [
        (planner.on(planner.gpu, n), {"tensor-parallel-size": str(n), "pipeline-parallel-size": None})
        for n in (2 * widest, 4 * widest)
        if _divides(draft, n)
    ]
    whole: Changes = {"tensor-parallel-size": str(widest)}
    if planner.gpu.computes_fp8 and draft.arch.quantization is None:
        tries.append((planner, {**whole, "quantization": "fp8"}))
    four = in_four_bits(planner)
    if four is not None:
        tries.append((four, whole))
    try:
        return any(safe(other.predict({**draft.changes, **few, **more})) for other, more in tries)
    except (SettingError, LaunchError):
        return False


def in_four_bits(planner: Planner) -> Planner | None:
    """The same launch of a checkpoint in 4 bits (AWQ, groups of 128); None where this one is quantized already."""
    s = planner.settings()
    if planner.arch.quantization is not None or s.quantization is not None or s.gguf is not None:
        return None
    stored = Section({"quant_method": "awq", "bits": 4, "group_size": 128}, "quantization_config")
    return replace(planner, arch=replace(planner.arch, quantization=stored))


def _offload(draft: Draft, length: int, tp: int) -> int:
    """The last resort: a part of the weights stays in host memory, for few and short requests; 0 if that does not
    do either. Of several cards, which read from the same host memory, a smaller part."""
    short = min(length, 4096)
    small: Changes = {
        **({"tensor-parallel-size": str(tp), "pipeline-parallel-size": None} if tp > 1 else {}),
        "max-model-len": str(short),
        "max-num-seqs": "8",
        "max-num-batched-tokens": str(max(2048, short)),
    }
    p = draft.planner.predict({**draft.changes, **small})
    fact = flag("cpu-offload-gb", draft.planner.version)
    if fact is None or not fact.exists or p.margin_gib is None or p.settings.refusals:
        return 0
    for size in range(
        max(1, ceil(p.needed_kv_gib - p.margin_gib[0])), int((0.7 if tp == 1 else 0.4) * p.weights_gib) + 1
    ):
        if safe(draft.planner.predict({**draft.changes, **small, "cpu-offload-gb": str(size)})):
            draft.changes["max-num-seqs"] = small["max-num-seqs"]
            if tp > 1:
                _spread_reason(draft, tp, 1)
            draft.keep(
                "cpu-offload-gb",
                size,
                "nothing else makes the weights fit; every step reads this part over PCIe, so it is slow: a "
                "larger card or a quantized checkpoint is better",
                Sum("weights left on the card", p.weights_gib - size, "GiB", f"{p.weights_gib:.2f} − {size}", ""),
            )
            return short
    return 0


def _for_workload(
    draft: Draft, first: tuple[int, int], among: list[tuple[int, int]], length: int, *, narrow: bool
) -> tuple[int, int]:
    """The fewest cards, from `first` on, that hold all requests of the workload; else those that hold the most."""
    work = draft.work
    if work.concurrency is None:
        return first
    best, most = first, 0.0
    for tp, pp in (split for split in among if split == first or split[0] * split[1] > first[0] * first[1]):
        p = _held(draft, tp, pp, length, narrow=narrow)
        if p is None:
            continue
        if holds(p, work) is Holds.SURELY:
            return tp, pp
        low = (requests_held(p, work.mean_tokens or work.context or p.length) or (0.0, 0.0))[0]
        if low > most:
            best, most = (tp, pp), low
    return best


def _held(draft: Draft, tp: int, pp: int, length: int, *, narrow: bool) -> Prediction | None:
    """What this split does that holds one request of `length`, with whatever else the choice may still change; None
    where none does."""
    kept = dict(draft.changes)
    draft.changes.update({"tensor-parallel-size": str(tp), "pipeline-parallel-size": str(pp)})
    try:
        for more in ways(draft, narrow=narrow):
            p = draft.predict(max_model_len=str(length), **more)
            # No step, no share and no request makes room for weights.
            if safe(p) or p.outcome == "oom-weights":
                return p if safe(p) else None
    except (SettingError, LaunchError):
        return None
    finally:
        draft.changes = kept
    return None


def _spread_reason(draft: Draft, tp: int, pp: int) -> None:
    gpu = draft.planner.gpu
    p = draft.predict(tensor_parallel_size=str(tp), pipeline_parallel_size=str(pp), max_model_len="16")
    what = "weights" if draft.work.concurrency is None else "weights and what the workload needs"
    why = f"{tp} × {pp} card(s) hold the {what}: {p.weights_gib:.2f} GiB of weights on each"
    if draft.arch.kv_heads and draft.arch.mla is None and tp > draft.arch.kv_heads:
        why += f"; beyond TP {draft.arch.kv_heads} the KV heads are copied, so a request's cache does not shrink"
    if tp > 1 and gpu is not None and gpu.link == "pcie":
        why += "; the cards communicate over PCIe, where the all-reduce of every layer costs time"
    copies = draft.planner.gpus * p.settings.parallel.hosts // (tp * pp)
    if copies > max(1, p.settings.parallel.local):
        why += f"; the host has room for {copies} such copies (data parallel)"
    draft.keep(
        "tensor-parallel-size",
        tp,
        why,
        Sum(
            "weights per card",
            p.weights_gib,
            "GiB",
            "every tensor, split as vLLM splits it",
            "model_executor/layers",
        ),
    )
    if pp > 1:
        draft.keep(
            "pipeline-parallel-size",
            pp,
            f"{len(draft.arch.layers)} layers in {pp} stages; tensor parallelism alone does not divide or does not fit",
        )
