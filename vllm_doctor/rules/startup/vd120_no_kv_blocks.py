"""VD120: weights and the measured peak use the whole budget; not one KV block is left."""

from vllm_doctor.knowledge.versions import HIGHEST_UTILIZATION, Version
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import CPU_FIXED, POOL, charges_others, cpu_by_share, left_over, on_cpu
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.adapter_slots import fewer_slots, slots
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.own_pool import METAL, larger_metal_share
from vllm_doctor.rules.remedies.prompt_items import fewer_items, ordered
from vllm_doctor.rules.remedies.step import sequences, tokens
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.remedies.weights import fill_the_card, half, lighter, more_gpus, quantize
from vllm_doctor.rules.say import environment, finding, gib, mapping, set_flag

# The least KV cache that is worth starting with, GiB.
_USEFUL = 1.0
# Weights above this explain by themselves why a budget is used up, GiB.
_LARGE_WEIGHTS = 4.0
# Of a card of unknown size: the least that a higher fraction is worth.
_STEP = 0.045

# Slots × rank of adapters whose buffers are worth a word: 5 MiB for each column of a rank beside 8 billion parameters.
_COLUMNS = 256

_RETOLD = "no-kv-blocks-retold"


def judge(case: Case) -> Outcome:
    """Did the start end because nothing was left for KV blocks?"""
    run, root = case.run, case.root
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    said = root is not None and bool(root.ids & {"no-kv-blocks", _RETOLD, "autofit-impossible", METAL})
    if not said and not _below_zero(case):
        return NotHere("the log does not say that no KV block was left over")
    available = run.last(*(message for message, _ in POOL))
    lines = [root.hits[0].index] if said and root is not None else []
    lines += [available.index] if available is not None else []
    return finding(
        RULE,
        title="No memory is left for the KV cache" + (_measured(case) or ""),
        # In a person's own words it may as well have been a pool that filled up while it served.
        confidence=Confidence.LIKELY if root is not None and _RETOLD in root.ids else Confidence.CONFIRMED,
        evidence=tuple(case.line(i) for i in lines),
        arithmetic=_sum(case),
        changes=_changes(case),
        refute="the log of the same launch shows a positive 'Available KV cache memory'",
    )


def _changes(case: Case) -> tuple[Change | None, ...]:
    metal = case.root.fields(METAL) if case.root is not None and METAL in case.root.ids else None
    if metal is not None:
        return larger_metal_share(case, metal)
    return _cpu(case) if on_cpu(case) else (*_beside(case), *_gpu(case))


def _beside(case: Case) -> tuple[Change | None, ...]:
    """What the launch has beside the model, out of the same budget: slots for adapters, and a draft model."""
    many, rank = slots(case)
    adapters = case.effective("enable-lora") is True and many * rank >= _COLUMNS
    draft = "model" in (mapping(case.flag("speculative-config")) or {}) and case.root is not None
    why = "the draft's weights, and its layers of the KV cache, come out of the same budget"
    return (
        *(fewer_slots(case) if adapters else ()),
        set_flag(case, "speculative-config", None, Direction.REMOVE, why) if draft else None,
    )


def _below_zero(case: Case) -> bool:
    """A log that is cut off before the error: the measured size is negative, and no start continues from there."""
    run, left = case.run, left_over(case)
    return run is not None and left is not None and left < 0 and run.root is None and not run.served()


def _measured(case: Case) -> str | None:
    left = left_over(case)
    if left is None and case.root is not None and (said := case.root.fields(METAL).get("left")):
        return f": {said} GB after the model and its overhead"
    return f": {left:.2f} GiB after the weights and the measured peak" if left is not None else None


def _sum(case: Case) -> tuple[Arithmetic, ...]:
    fraction, source = case.utilization
    total, weights, left = case.total_gib, case.weights_gib, left_over(case)
    found = []
    if total is not None and case.fraction_told:
        found.append(gib("budget", total * fraction, f"{total:.2f} GiB × {fraction:g}", source))
    if weights is not None:
        found.append(gib("weights", weights, "as loaded, per rank", "the log"))
    if left is not None:
        found.append(
            gib("left for the KV cache", left, "budget − weights − peak of the profile run − the rest", "the log")
        )
        if total is not None and weights is not None:
            found.append(
                gib(
                    "activations and the rest",
                    total * fraction - weights - left,
                    "budget − weights − left",
                    "from the above",
                )
            )
    return tuple(found)


def _gpu(case: Case) -> tuple[Change | None, ...]:
    more = raise_utilization(case, (-(left_over(case) or 0.0)) + _USEFUL)
    if fill_the_card(case):
        return (*lighter(case, loaded=True), more, _fewer_tokens(case), _fewer_rows(case), _others(case))
    smaller = (_fewer_tokens(case), _fewer_rows(case))
    weights = (
        more_gpus(case) if case.gpus is not None and len(case.gpus) > 1 else None,
        *quantize(case, loaded=True),
    )
    items = _items(case)
    if _reaches(case) and not items:
        return half(case), more, *smaller, *weights, _others(case)
    # A step is smaller for certain where its size is known; of a release that is not known the weights are.
    known = case.version is not None or (case.run is not None and case.run.engine == "V1")
    if items:
        return half(case), *items, more, *weights, _others(case)
    return half(case), *((*smaller, *weights) if known else (*weights, *smaller)), more, _others(case)


def _items(case: Case) -> tuple[Change | None, ...]:
    """V0 profiles the largest items that a prompt may have, and warns first that they are more than fit its sequence:
    where the peak is larger than the weights, they are most of it, and a larger budget goes to the next peak's room."""
    run, weights = case.run, case.weights_gib
    peak = run.number("profile-breakdown", "activation") if run is not None else None
    if run is None or run.last("items-too-many") is None or peak is None or weights is None or peak <= weights:
        return ()
    return ordered(case, fewer_items(case))


def _reaches(case: Case) -> bool:
    """Can a higher fraction add what is missing? One that is nearly the whole card adds a few hundredths of it."""
    if not case.budgeted:
        return True
    rest, total = HIGHEST_UTILIZATION - case.utilization[0], case.total_gib
    if total is None:
        return rest >= _STEP
    return rest * total >= -(left_over(case) or 0.0)


def _others(case: Case) -> Change | None:
    """Where the weights do not explain it, or the release charges what others hold, others may."""
    weights = case.weights_gib
    if weights is not None and weights > _LARGE_WEIGHTS and not charges_others(case):
        return None
    return stop_others(
        case,
        "vLLM before 0.3.1, 0.6.4, and 0.8.0 to 0.9.0 counts the memory of other processes against its own budget; a "
        "higher gpu_memory_utilization frees no memory in any version",
    )


def _fewer_rows(case: Case) -> Change | None:
    """V1 samples a dummy batch of max_num_seqs rows in the profile run: vocabulary-wide buffers of each."""
    run, version = case.run, case.version
    old = (run is not None and run.engine == "V0") or (version is not None and version < Version((0, 8)))
    now = sequences(case)[0]
    to = min(128, now // 2)
    if old or to < 8:
        return None
    why = (
        f"the profile run also samples {now} sequences over the whole vocabulary; sampling {to} of them "
        "leaves that memory to the KV cache"
    )
    return set_flag(case, "max-num-seqs", to, Direction.LOWER, why)


def _fewer_tokens(case: Case) -> Change | None:
    now = tokens(case)
    given = now[0] if now is not None else None
    if given is None or given <= 2048:
        return None
    to = max(2048, int(case.number("max-num-seqs") or 0))
    if case.effective("enable-chunked-prefill") is False and (case.number("max-model-len") or 0) > to:
        return None  # a step shorter than a prompt is refused without chunked prefill
    return set_flag(
        case,
        "max-num-batched-tokens",
        to,
        Direction.LOWER,
        (
            "the peak of the profile run grows with the tokens of one step; a smaller step leaves that "
            "memory to the KV cache"
        ),
    )


def _unset(case: Case) -> str:
    """What counts where it is not set, by release (platforms/cpu.py)."""
    if cpu_by_share(case):
        return "; unset, gpu_memory_utilization sizes it"
    return "; unset means 4" if case.version is not None and case.version < CPU_FIXED else ""


def _cpu(case: Case) -> tuple[Change | None, ...]:
    return (
        environment(
            "VLLM_CPU_KVCACHE_SPACE",
            Direction.RAISE,
            "sets the GiB of host memory for the KV cache of the CPU backend" + _unset(case),
            to=4,
            before=case.env("VLLM_CPU_KVCACHE_SPACE"),
            applicability=Applicability.NEEDS_REVIEW,
        ),
    )


RULE = rule(
    "VD120", reads=frozenset({Signal.MODEL_CONFIG, Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge
)
