"""What the recommended launch leaves as it is, and what a change would bring: a person's choice, because it costs
accuracy or speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge.versions import flag
from vllm_doctor.plan.advice.recommendation import Changes, Reason, Sum
from vllm_doctor.plan.launch.flags import SettingError
from vllm_doctor.plan.prediction.record import GIB, Prediction
from vllm_doctor.plan.question.planner import Planner


def left(planner: Planner, launch: Mapping[str, int | float | str | bool]) -> tuple[Reason, ...]:
    """The flags that the launch does not set, each with its sum on these cards."""
    chosen: Changes = {name: value if isinstance(value, bool) else str(value) for name, value in launch.items()}
    now = planner.predict(chosen)
    if now.pool is None or now.available_kv_gib is None:
        return ()
    said = {*planner.line.flags, *launch}
    return tuple(r for r in _open(planner, now, chosen) if r.flag not in said)


def _open(planner: Planner, now: Prediction, chosen: Changes) -> Iterator[Reason]:
    native = planner.gpu is not None and planner.gpu.computes_fp8
    if native and now.settings.kv_dtype == "auto":
        yield from _instead(planner, now, chosen, "kv-cache-dtype", "keys and values in 8 bits")
    if native and planner.arch.quantization is None and now.settings.gguf is None:
        yield from _instead(planner, now, chosen, "quantization", "weights in 8 bits, made while loading")
    if now.pool is not None:
        smallest = min(group.spec.block for group in now.pool.groups)
        yield Reason(
            "block-size",
            f"pages of {smallest} tokens: the end of a request leaves half a page of it empty on average",
            (Sum("one page of all layers", now.pool.block_bytes / GIB, "GiB", f"{now.pool.block_bytes} B", ""),),
        )
    if not now.settings.eager and now.cudagraph_gib:
        yield Reason(
            "max-cudagraph-capture-size",
            f"the release's own choice for {now.settings.seqs} requests: {now.cudagraph_gib:.2f} GiB; "
            f"fewer sizes would decode some batches without a graph",
            (
                Sum(
                    "CUDA graphs",
                    now.cudagraph_gib,
                    "GiB",
                    "by batch sizes and layers",
                    "v1/worker/gpu_model_runner.py",
                ),
            ),
        )


def _instead(planner: Planner, now: Prediction, chosen: Changes, name: str, what: str) -> Iterator[Reason]:
    fact = flag(name, planner.version)
    if fact is None or not fact.exists:
        return
    try:
        then = planner.predict({**chosen, name: "fp8"})
    except SettingError:
        return
    if then.outcome != "ok" or (then.kv_tokens or 0) <= (now.kv_tokens or 0):
        return
    pool = Sum("KV cache", then.available_kv_gib or 0.0, "GiB", f"{now.available_kv_gib or 0.0:.2f} without", "")
    yield Reason(name, f"fp8 ({what}) would hold {then.kv_tokens:,} tokens instead of {now.kv_tokens or 0:,}", (pool,))
