"""How long a request may be, and what gives way for it: slots, the rest of the card, width, the cache's type."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.versions import flag
from vllm_doctor.plan.advice.choice.draft import LEAST, USEFUL, Draft
from vllm_doctor.plan.advice.formats import computes_fp8_cache
from vllm_doctor.plan.advice.recommendation import POOL, Sum, safe, table_tokens
from vllm_doctor.plan.prediction.record import GIB


def settle_length(draft: Draft, wanted: int) -> None:
    """The longest request: `wanted` tokens, or as near to it as there is room for."""
    limited = _make_room(draft, wanted)
    if limited < wanted and draft.asks_length() and _fp8_helps(draft, wanted):
        limited = _make_room(draft, wanted)
    limited = max(limited, 1)
    draft.useful = limited >= min(wanted, LEAST)
    shrunk = f" (asked: {wanted}; more does not fit even once beside this step)" if limited < wanted else ""
    named = (
        f"the workload's longest request, {draft.work.context}, {draft.work.source}"
        if draft.work.context
        else "one request of this length must fit at start-up"
    )
    q = draft.predict(max_model_len=str(limited))
    draft.keep(
        "max-model-len",
        limited,
        named + shrunk,
        Sum(
            "KV of one request",
            q.needed_kv_gib,
            "GiB",
            f"{q.checked.request_blocks(limited)} blocks × {q.checked.block_bytes} B" if q.checked else "no cache",
            "v1/kv_cache_interface.py",
        ),
        *(
            ()
            if q.available_kv_gib is None
            else (
                Sum(
                    POOL,
                    q.available_kv_gib,
                    "GiB",
                    "budget − weights − non-torch − activation − charged graphs",
                    "v1/worker/gpu_worker.py",
                ),
            )
        ),
    )


def ways(draft: Draft, *, narrow: bool) -> Iterator[dict[str, str]]:
    """What may make room for a request, least painful first: nothing; slots for requests that the pool would not
    hold anyway; the rest of the card; narrower steps, if `narrow`. Nothing that the user set is given up but the
    width."""
    flags, total = draft.planner.line.flags, draft.planner.total_gib
    s = draft.planner.settings(draft.changes)
    if narrow or total is None:
        yield {}
    if total is None:
        return
    free = "max-num-seqs" not in flags and not draft.work.concurrency
    seqs = [n for n in (256, 64, 16) if n < s.seqs] if free else []
    table = table_tokens(total)
    widths = sorted({n for n in (table, 8192, 4096, 2048) if n <= table}, reverse=True)
    if draft.profile == "conservative":
        widths = [n for n in widths if n <= max(2048, table // 2)]
    asked = [] if "max-num-batched-tokens" not in flags or s.batched > table else [s.batched]
    shares: list[dict[str, str]] = [{}]
    if "gpu-memory-utilization" not in flags and draft.profile == "balanced":
        shares.append({"gpu_memory_utilization": str(draft.highest(total))})
    for share in shares:
        for width in (asked or widths)[:1]:
            for n in (s.seqs, *(seqs if share == shares[-1] else seqs[:2])):
                yield {**share, "max_num_batched_tokens": str(width), "max_num_seqs": str(n)}
    if not narrow:
        return
    for width in (asked or widths)[1:]:
        yield {**shares[-1], "max_num_batched_tokens": str(width), "max_num_seqs": str(([s.seqs, *seqs])[-1])}
    yield {**shares[-1], **({"max_num_seqs": str(seqs[-1])} if seqs else {})}


def _reach(draft: Draft, wanted: int, more: dict[str, str]) -> int:
    """The longest request, up to `wanted`, that the launch with these further changes safely takes; 0 is none."""
    # A long length may widen the profile itself (videos of a vision model), so shorter ones are looked at as well.
    for most in (wanted, *(n for n in (4 * USEFUL, USEFUL, LEAST) if n < wanted)):
        p = draft.predict(max_model_len=str(most), **more)
        if safe(p) or p.checked is None or p.margin_gib is None:
            return most
        fitting = p.checked.longest(max(p.margin_gib[0], 0.0) * GIB - p.checked.block_bytes, most)
        fitting = fitting if fitting < 1024 else fitting // 256 * 256
        if fitting and safe(draft.predict(max_model_len=str(fitting), **more)):
            return fitting
    return 0


# So many times longer must a request be, that a narrower step pays.
_MUCH = 4


def _make_room(draft: Draft, wanted: int) -> int:
    """The length that is recommended: `wanted`, or what the first way that gives one of use reaches; that way is
    taken over."""
    asked = draft.asks_length()
    whole = asked or any(_reach(draft, wanted, more) >= wanted for more in ways(draft, narrow=False))
    goal = wanted if whole else min(wanted, USEFUL)
    best, taken, last = -1, {}, None
    for more in list(ways(draft, narrow=True))[0 if asked else 1 :]:
        place = {k: v for k, v in more.items() if k != "max_num_seqs"}
        narrower = best >= goal and place != last
        if narrower and _MUCH * best >= wanted:
            break
        reach = _reach(draft, wanted, more)
        # Slots are given up for a much longer request, not for a little, and the step's width for one far longer:
        # layers with a window keep every step in flight beside it.
        if reach > best * (_MUCH if narrower else 1.25 if best >= goal else 1):
            best, taken = reach, more
        last = place
    share = taken.get("gpu_memory_utilization")
    if share is not None:
        draft.share(float(share), "one request needs it: this is the most that the card allows")
    draft.changes.update({k.replace("_", "-"): v for k, v in taken.items() if k != "gpu_memory_utilization"})
    return best


def _fp8_helps(draft: Draft, wanted: int) -> bool:
    """fp8 KV halves the cache; offered only when the length does not fit without."""
    fact = flag("kv-cache-dtype", draft.planner.version)
    gpu = draft.planner.gpu
    if (
        "kv-cache-dtype" in draft.planner.line.flags
        or fact is None
        or not fact.exists
        or gpu is None
        or not computes_fp8_cache(draft.arch, gpu)
    ):
        return False
    plain = draft.predict(max_model_len=str(wanted))
    small = draft.predict(max_model_len=str(wanted), kv_cache_dtype="fp8")
    if small.needed_kv_gib >= plain.needed_kv_gib:
        return False
    draft.keep(
        "kv-cache-dtype",
        "fp8",
        f"{wanted} tokens need {plain.needed_kv_gib:.2f} GiB in {plain.settings.dtype} and "
        f"{small.needed_kv_gib:.2f} GiB in fp8, which {gpu.name} computes natively",
        Sum("KV of one request", small.needed_kv_gib, "GiB", "1 byte an element", "config/cache.py CacheDType"),
    )
    return True
