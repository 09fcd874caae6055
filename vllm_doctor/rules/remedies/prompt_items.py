"""How many images and videos a prompt may have, and how large they may be, as each release takes it."""

import json

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom
from vllm_doctor.rules.say import json_with, set_flag

# Pairs (`image=1,video=0`) before this sample, JSON in it and after it (engine/arg_utils.py).
_JSON_FROM = Version((0, 8, 5))
# 1280 × 784: a picture of 1280 tokens of Qwen2-VL, a quarter of the default's side.
_PIXELS = 1280 * 784
# What puts the embeddings of images, video and audio among those of the text, in a step that has some (models/utils.py,
# v1/worker/gpu_model_runner.py); the profile run of the language model has none.
_MERGES = frozenset(
    {"merge_multimodal_embeddings", "_merge_multimodal_embeddings", "_gather_mm_embeddings", "scatter_mm_placeholders"}
)


def limit(case: Case, **most: int) -> str:
    """The value of `--limit-mm-per-prompt`; what the launch says of other kinds stays."""
    if case.version is not None and case.version < _JSON_FROM:
        return ",".join(f"{kind}={count}" for kind, count in most.items())
    return json_with(case, "limit-mm-per-prompt", most)


def per_prompt(case: Case) -> dict[str, int]:
    """How many items of each kind the launch allows; empty where it does not say so."""
    given = case.effective("limit-mm-per-prompt")
    if not isinstance(given, str):
        return {}
    try:
        told = json.loads(given.replace("'", '"'))
    except ValueError:
        told = dict(pair.split("=", 1) for pair in given.split(",") if "=" in pair)
    counts = (
        ((str(k), v.get("count") if isinstance(v, dict) else v) for k, v in told.items())
        if isinstance(told, dict)
        else ()
    )
    return {kind: int(str(count)) for kind, count in counts if str(count).isdecimal() and len(str(count)) < 6}


def smaller_items(case: Case) -> Change | None:
    """Qwen's processors take a limit of pixels; others have options of other names."""
    if case.has_flag("mm-processor-kwargs") is None or "qwen" not in (case.model or "").lower():
        return None
    why = "the largest image that is allowed sets the peak; vLLM scales larger ones down to this many pixels"
    to = json_with(case, "mm-processor-kwargs", {"max_pixels": _PIXELS})
    return set_flag(case, "mm-processor-kwargs", to, Direction.LOWER, why)


def items_of_step(case: Case, oom: Oom) -> tuple[Change | None, ...]:
    """Fewer and smaller items, where the step that failed merged some: its tokens are mostly theirs."""
    if _MERGES.isdisjoint(oom.fault.functions):
        return ()
    told = per_prompt(case)
    why = "the step that failed merged the tokens of images, video or audio: fewer of them in one prompt take less"
    most = {kind: 1 for kind, count in told.items() if count > 1} or ({} if told else {"image": 1})
    fewer = set_flag(case, "limit-mm-per-prompt", limit(case, **most), Direction.LOWER, why) if most else None
    return (fewer, smaller_items(case))
