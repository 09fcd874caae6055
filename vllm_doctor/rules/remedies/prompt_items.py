"""How many images and videos a prompt may have, and how large they may be, as each release takes it."""

import json

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.log.match import Hit
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.say import json_with, set_flag

# Pairs (`image=1,video=0`) before this sample, JSON in it and after it (engine/arg_utils.py).
_JSON_FROM = Version((0, 8, 5))
# 1280 × 784: a picture of 1280 tokens of Qwen2-VL, a quarter of the default's side.
_PIXELS = 1280 * 784
# So many requests at once serve somebody still.
_MEASURED = 8
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
    if case.has_flag("mm-processor-kwargs") is None or not _of_qwen(case):
        return None
    why = "the largest image that is allowed sets the peak; vLLM scales larger ones down to this many pixels"
    to = json_with(case, "mm-processor-kwargs", {"max_pixels": _PIXELS})
    return set_flag(case, "mm-processor-kwargs", to, Direction.LOWER, why)


def _of_qwen(case: Case) -> bool:
    """Is it a model of Qwen's, by its name or by the file of its code?"""
    crash = case.root.crash if case.root is not None else None
    files = [frame.file for link in crash.links for frame in link.frames] if crash is not None else []
    return any("qwen" in name.rpartition("/")[2].lower() for name in (case.model or "", *files))


def fewer_items(case: Case) -> Change | None:
    """Fewer items of one prompt, where the launch or the release allows several; none of a kind that is one already."""
    kind = _alone(case)
    if kind is not None:
        why = f"it was measured with one {kind} already: 0, where no request brings any, leaves the encoder out"
        return set_flag(case, "limit-mm-per-prompt", limit(case, **{kind: 0}), Direction.LOWER, why)
    most = {"audio": 1} if _hears(case) else {"image": 1, "video": 0}
    if _of_v0(case) and not per_prompt(case):
        # Where a call names the images, no video was measured.
        most = {name: count for name, count in most.items() if count == 0 and not _sees(case)}
    why = (
        "the profile run takes the largest items of every modality that is allowed: set unused ones "
        "to 0; --mm-processor-kwargs caps the size of the others"
    )
    return set_flag(case, "limit-mm-per-prompt", limit(case, **most), Direction.LOWER, why) if most else None


def fewer_measured(case: Case) -> Change | None:
    """V0's profile run takes as many of the largest items as max_num_seqs, or as its tokens hold, whichever is less
    (worker/model_runner.py, 0.5 to 0.10); small items are as many as the sequences."""
    now = sequences(case)[0]
    if not _of_v0(case) or now <= _MEASURED:
        return None
    why = (
        f"the profile run of V0 takes one item of the largest size for each of {now} sequences, as far as its tokens "
        f"hold them: now at most {_MEASURED}"
    )
    return set_flag(case, "max-num-seqs", _MEASURED, Direction.LOWER, why)


def ordered(case: Case, *changes: Change | None) -> tuple[Change | None, ...]:
    """One item alone is made smaller first: fewer of them are none."""
    smaller = smaller_items(case)
    alone = _alone(case) is not None or sum(per_prompt(case).values()) == 1
    return (smaller, *changes) if alone else (*changes, smaller)


def encoder_budget(case: Case) -> Hit | None:
    """V1's line on what it measures the encoder with."""
    return case.run.last("encoder-budget") if case.run is not None else None


def _alone(case: Case) -> str | None:
    """The modality of which one item alone was measured; None where it was more, or the log does not say."""
    hit = encoder_budget(case)
    if hit is not None:
        return hit.fields["modality"] if hit.fields["items"] == "1" else None
    warned = case.run.last("items-too-many") if case.run is not None else None
    if warned is None or not _of_v0(case):
        return None
    kinds = [pair.partition(":")[0].strip(" '\"") for pair in warned.fields.get("items", "").split(",") if ":" in pair]
    return kinds[0] if len(kinds) == 1 and per_prompt(case).get(kinds[0], 1) == 1 else None


def _of_v0(case: Case) -> bool:
    """V0 allows one item of each kind where the launch sets nothing, V1 as many as fit (MultiModalConfig)."""
    return case.run is not None and case.run.engine == "V0"


def _hears(case: Case) -> bool:
    """Was it the encoder of audio, by the names of its calls, or by what V1 said that it measures?"""
    crash = case.root.crash if case.root is not None else None
    frames = [frame for link in crash.links for frame in link.frames] if crash is not None else []
    budget = encoder_budget(case)
    named = [name for frame in frames for name in (frame.function, frame.code)]
    named += [budget.fields["modality"]] if budget is not None else []
    return any("audio" in name for name in named) and not any("image" in name or "video" in name for name in named)


def _sees(case: Case) -> bool:
    """Was it the encoder of images, by the names of its calls?"""
    crash = case.root.crash if case.root is not None else None
    frames = [frame for link in crash.links for frame in link.frames] if crash is not None else []
    named = [name for frame in frames for name in (frame.function, frame.code)]
    return any("image" in name for name in named) and not any("video" in name for name in named)


def items_of_step(case: Case, oom: Oom) -> tuple[Change | None, ...]:
    """Fewer and smaller items, where the step that failed merged some: its tokens are mostly theirs."""
    if _MERGES.isdisjoint(oom.fault.functions):
        return ()
    told = per_prompt(case)
    why = "the step that failed merged the tokens of images, video or audio: fewer of them in one prompt take less"
    most = {kind: 1 for kind, count in told.items() if count > 1} or ({} if told else {"image": 1})
    fewer = set_flag(case, "limit-mm-per-prompt", limit(case, **most), Direction.LOWER, why) if most else None
    return (fewer, smaller_items(case))
