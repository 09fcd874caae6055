"""The choice: the largest launch that is safe, each flag with its reason and its sum.

Safe means that the low end of the predicted range still holds one request of the chosen length, and that no later
step of the start runs out of memory. The order follows the start: where the weights go, how much of the card, how
long, how wide a step, how many requests.
"""

from __future__ import annotations

from msgspec.structs import replace

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.advice.choice.draft import Draft
from vllm_doctor.plan.advice.choice.load import settle_requests, settle_share, settle_step
from vllm_doctor.plan.advice.choice.room import settle_length
from vllm_doctor.plan.advice.choice.split import spread
from vllm_doctor.plan.advice.recommendation import POOL, Changes, Choice, Profile, Reason, Workload, safe
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.logged_starts import History
from vllm_doctor.plan.question.planner import Planner, PlanProblem

_OF_A_STEP = frozenset({"max-num-batched-tokens", "max-num-seqs"})
_SPLITS = frozenset({"tensor-parallel-size", "pipeline-parallel-size"})


def choose(planner: Planner, work: Workload, profile: Profile) -> Choice | None:
    """The recommended launch for a workload on these cards; None when nothing that was tried is safe.

    What earlier starts on this host logged judges the choice, and makes another only where it turns out not to be safe:
    a launch that serves is not restarted for a few hundred tokens more. `tune` is for that.
    """
    if planner.history.starts:
        first = _choose(replace(planner, history=History()), work, profile)
        if first is not None:
            measured = _mended(planner).predict(
                {k: v if isinstance(v, bool) else str(v) for k, v in first.launch.items()}
            )
            if safe(measured):
                return replace(first, predicted=measured)
    return _choose(planner, work, profile)


def _choose(planner: Planner, work: Workload, profile: Profile) -> Choice | None:
    draft = Draft(_mended(planner), work, profile)
    asked = draft.planner.settings()
    if any(one.flag == "--dtype" for one in asked.refusals):
        draft.keep(
            "dtype", asked.dtype, "the release takes the type of the checkpoint, which this card does not compute"
        )
    for one in asked.refusals:
        if one.beside:
            draft.keep(one.beside, True, f"the release takes {one.found} only with this option")
    length = spread(draft, _wanted(draft, asked.length, auto=asked.auto_length))
    settle_share(draft)
    settle_length(draft, length)
    if asked.pooling and not draft.asks_length() and draft.changes.get("max-model-len") == str(asked.length):
        # The release's own may be too long to be asked for: the tokenizer's or sentence_bert_config.json's bounds it
        # where that is shorter (config/model.py _get_and_verify_max_len).
        draft.leave("max-model-len")
    # Without a cache there is nothing to divide, and a step that holds an encoder's input is its cache for each
    # request: both stay as the release has them.
    if draft.planner.predict().pool is not None and not planner.arch.encoder_decoder:
        settle_step(draft)
        settle_requests(draft)
        settle_step(draft)  # fewer requests may have left room for a wider step
    else:
        settled, draft.changes = draft.changes, {k: v for k, v in draft.changes.items() if k not in _OF_A_STEP}
        draft.changes = draft.changes if safe(draft.predict()) else settled
    if (
        planner.version >= Version((0, 9))
        and not planner.arch.hybrid
        and not planner.arch.encoder_decoder
        and not asked.pooling
        and asked.engine == "V1"
        and "enable-prefix-caching" not in draft.planner.line.flags
    ):
        draft.keep(
            "enable-prefix-caching",
            True,
            "vLLM computes shared prefixes of prompts once; this takes no memory beyond the KV cache",
        )
    final = draft.planner.predict(draft.changes)
    if not (safe(final) and draft.useful):
        return None
    dropped = planner.line.flags.keys() - draft.planner.line.flags.keys()
    return Choice(_values(draft.changes), final, _of_the_whole(draft.reasons, final), frozenset(dropped))


def _of_the_whole(reasons: list[Reason], final: Prediction) -> tuple[Reason, ...]:
    """The reasons with the KV cache of the settled launch: what was settled later takes from it, or leaves it more."""
    pool = final.available_kv_gib or 0.0
    return tuple(
        replace(r, arithmetic=tuple(replace(s, value=pool) if s.name == POOL else s for s in r.arithmetic))
        for r in reasons
    )


def _wanted(draft: Draft, asked: int, *, auto: bool) -> int:
    if draft.work.context:
        longest = max(draft.arch.context, asked)
        if draft.work.mean_tokens is not None:  # measured: the bound of a bucket, which no request need have reached
            return min(draft.work.context, longest)
        if draft.work.context > longest:
            raise PlanProblem(
                f"--context: found {draft.work.context}; needed: at most {longest}, the longest request of the model; "
                "where its card gives a rope scaling for more, --hf-overrides and --max-model-len in the launch"
            )
        return draft.work.context
    if draft.profile == "conservative" and "max-model-len" not in draft.planner.line.flags:
        return min(2048, draft.arch.context)
    return draft.arch.context if auto else asked


def _mended(planner: Planner) -> Planner:
    """The launch without the options that this release or these cards refuse."""
    refused = {r.flag.lstrip("-") for r in (*planner.settings().refusals, *planner.line.refusals)}
    if refused & _SPLITS:
        refused |= _SPLITS  # each is checked against the other
    by_ray = planner.line.flags.get("distributed-executor-backend") == "ray"
    if not by_ray and all(r.flag != "--nnodes" for r in planner.line.refusals):
        refused -= {"nnodes"}  # the release has it: more ranks are the answer, which the search looks for
    if not refused & planner.line.flags.keys() and not planner.line.refusals:
        return planner
    kept = {name: value for name, value in planner.line.flags.items() if name not in refused}
    return replace(planner, line=replace(planner.line, refusals=(), flags=kept))


def _values(changes: Changes) -> dict[str, int | float | str | bool]:
    out: dict[str, int | float | str | bool] = {}
    for name, value in changes.items():
        if isinstance(value, bool) or value is None:
            out[name] = bool(value)
        elif value.isdigit():
            out[name] = int(value)
        else:
            try:
                out[name] = float(value)
            except ValueError:
                out[name] = value
    return out
