"""How much at once: the card's share, the tokens of a step and the requests that run."""

from __future__ import annotations

from vllm_doctor.knowledge.versions import default_utilization
from vllm_doctor.plan.advice.choice.draft import Draft
from vllm_doctor.plan.advice.recommendation import Holds, Sum, holds, safe, table_tokens
from vllm_doctor.plan.prediction.points import TOO_FEW_STATES
from vllm_doctor.plan.prediction.record import GIB, Prediction


def _has_room(p: Prediction) -> bool:
    """Does this share do? Where states alone lack blocks, fewer sequences are the answer, and not more memory."""
    return safe(p) or TOO_FEW_STATES in {p.outcome, p.doubtful}


def settle_share(draft: Draft) -> None:
    """The fraction of the card, by the profile; what the user asked for stays where it is safe."""
    s = draft.planner.settings()
    if (
        "gpu-memory-utilization" in draft.planner.line.flags
        and draft.profile == "balanced"
        and _has_room(draft.predict(max_model_len="256"))
    ):
        return
    total = draft.planner.total_gib
    if total is None:
        return
    default = s.utilization if "gpu-memory-utilization" in s.defaulted else default_utilization(draft.planner.version)
    if draft.profile == "conservative":
        value, why = 0.80, "the conservative profile leaves a fifth of the card free for memory that grows at run time"
    elif draft.profile == "balanced":
        value, why = (
            default,
            "the release's default: the memory above it holds graphs, libraries and fragmentation",
        )
    else:
        value, why = (
            draft.highest(total),
            "the most that still leaves room for graphs, the sampler's warm-up and 0.5 GiB of run-time growth",
        )
    p = draft.predict(gpu_memory_utilization=str(value), max_model_len="256")
    if p.outcome not in {"ok", TOO_FEW_STATES} and value < 0.95:
        value = draft.highest(total)
        why = "a lower value leaves no KV cache: this is the most that the card allows"
    draft.share(value, why)


def settle_step(draft: Draft) -> None:
    """Tokens of a step: the widest that is safe, up to what published tables give for a card of this size."""
    total = draft.planner.total_gib
    if total is None:
        return
    floor_ = table_tokens(total)
    asked = draft.planner.settings().batched if "max-num-batched-tokens" in draft.planner.line.flags else None
    if asked is not None and asked <= floor_ and safe(draft.predict()) and draft.profile == "balanced":
        return
    best = _least(draft)
    for tokens in sorted({2048, 4096, 8192, 16384, floor_}):
        narrow = draft.profile == "conservative" and tokens > max(2048, floor_ // 2)
        if _least(draft) < tokens <= floor_ and not narrow and _affords(draft, best, tokens):
            best = tokens
    p = draft.predict(max_num_batched_tokens=str(best))
    peak = p.activation.peak / GIB
    forbidden: tuple[Sum, ...] = ()
    if best < floor_:
        wide = draft.predict(max_num_batched_tokens=str(floor_))
        sure = holds(wide, draft.work)
        taken = safe(wide) and sure is not Holds.SURELY
        at_the_end = " there" if sure is Holds.IN_THE_MIDDLE else ""
        left = wide.margin_gib[0] if wide.margin_gib is not None else wide.available_kv_gib or 0.0
        forbidden = (
            Sum(
                f"KV cache left at {floor_}",
                left,
                "GiB",
                f"at the low end of the range; one request of {wide.length} tokens needs {wide.needed_kv_gib:.2f}"
                + (f"; predicted {wide.outcome}" if wide.outcome != "ok" else "")
                + (
                    f"; it would not hold the workload's {draft.work.concurrency} requests at once{at_the_end}"
                    if taken
                    else ""
                ),
                "v1/worker/gpu_worker.py",
            ),
        )
    draft.keep(
        "max-num-batched-tokens",
        best,
        "wider steps make prefill faster, up to this size on such a card; each token of a step takes memory from "
        "the KV cache",
        Sum(
            "activation peak",
            peak,
            "GiB",
            next((t.formula for t in p.terms if t.name == p.activation.winner), p.activation.winner),
            "profile_run",
        ),
        Sum("KV cache left", p.available_kv_gib or 0.0, "GiB", "with steps of this size", "v1/worker/gpu_worker.py"),
        *forbidden,
    )


def _affords(draft: Draft, narrow: int, wide: int) -> bool:
    """Is the wide step safe, and does it hold the workload's requests as surely as the narrow one? Where neither holds
    them, some wait with both."""
    p = draft.predict(max_num_batched_tokens=str(wide))
    if not safe(p):
        return False
    sure = holds(p, draft.work)
    return sure is Holds.SURELY or sure >= holds(draft.predict(max_num_batched_tokens=str(narrow)), draft.work)


def _least(draft: Draft) -> int:
    """Below this vLLM refuses or changes the launch."""
    s = draft.planner.settings(draft.changes)
    return s.length if not s.chunked else min(2048, max(s.length, 256))


def settle_requests(draft: Draft) -> None:
    """Requests at once: the workload's, or as many as the pool holds."""
    flags = draft.planner.line.flags
    p = draft.predict()
    default = p.settings.seqs
    if draft.work.concurrency:
        wanted = max(1, min(draft.work.concurrency, p.settings.batched))
        why = f"the workload's {draft.work.concurrency} requests at once" + (
            ""
            if wanted == draft.work.concurrency
            else f", of which a step of {p.settings.batched} tokens takes {wanted}"
        )
    elif draft.profile == "conservative":
        wanted = 8
        why = "the conservative profile starts with few requests at once; watch the server under load, then raise it"
    elif "max-num-seqs" in flags:
        return
    else:
        mean = draft.work.mean_tokens or min(p.length, 2048)
        fits = max(1, int((p.kv_tokens or 0) // mean))
        wanted = max(1, min(default, 1 << (fits - 1).bit_length()))
        guessed = "" if draft.work.mean_tokens else " (assumed; --metrics measures them)"
        held = f"the KV cache holds about {fits} requests of {mean} tokens{guessed}"
        why = f"{held}; more sequences would only take memory for logits and wait for blocks"
    for candidate in (wanted, wanted // 2, wanted // 4, wanted // 8, 1):
        if candidate >= 1 and safe(draft.predict(max_num_seqs=str(candidate))):
            wanted = candidate
            break
    q = draft.predict(max_num_seqs=str(wanted))
    sampler = next((t for t in q.terms if t.name == "logits and sampler"), None)
    sums = (
        (Sum("logits and sampler", sampler.bytes / GIB, "GiB", sampler.formula, sampler.source),)
        if sampler is not None
        else ()
    )
    draft.keep("max-num-seqs", wanted, why, *sums)
