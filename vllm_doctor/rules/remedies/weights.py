"""The remedies of weights that are too large: quantize them, take another checkpoint, split them over more GPUs."""

import math

from vllm_doctor.knowledge import gpus
from vllm_doctor.knowledge.hub import billions, names_quantization
from vllm_doctor.log.match import says
from vllm_doctor.plan.launch.online import STREAMED
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import FOUR_BYTES
from vllm_doctor.rules.say import set_flag, thing

# The KV cache and the profile run together need about this share of the budget before anybody is served.
_BESIDE = 0.2
# Above this part of the card the context, a pass and a useful KV cache do not fit beside weights.
_FILLED = 0.8
# FP8 weights are computed with by Marlin's kernels from compute capability 7.5 or 8.0 on, by release.
_FP8_FROM = 7.5
# bfloat16 is computed from this compute capability on.
_BF16_FROM = 8.0
# A budget below this part of the weights was not meant for them; the usual fraction.
_SMALL, _USUAL = 0.3, 0.9
# What a driver's context and libraries leave of a card.
_CARD = 0.95
# Lines that somebody writes; a program's log has more.
_WRITTEN = 40
# What FP8 leaves of weights in 16 bits: some layers stay as they are.
_FP8_LEAVES = 0.55


def quantize(case: Case, *, loaded: bool = False) -> tuple[Change | None, ...]:
    """Smaller weights: a flag where the checkpoint is in 16 bits and it would help, another checkpoint in any case.

    `loaded` where the weights did fit while they were loaded: then it does not matter when they are quantized.
    """
    # Of a release that is not known it may be that all weights lie on the card in 16 bits first.
    found = (_fp8(case, loaded=loaded), smaller_model(case))
    return found if loaded or case.version is not None else found[::-1]


def half(case: Case) -> Change | None:
    """Two bytes a weight where the launch or the engine's own word is four: what the model was made in, on a card that
    is known to compute bfloat16; else what every card computes."""
    if case.effective("dtype") not in FOUR_BYTES:
        return None
    card = gpus.find(case.gpu_name) if case.gpu_name else None
    new = card is not None and card.capability is not None and card.capability >= _BF16_FROM
    why = "float32 takes 4 bytes a weight and 4 a value of the KV cache: 16 bits take half"
    now = case.weights_gib
    return set_flag(
        case,
        "dtype",
        "auto" if new else "half",
        Direction.CHANGE,
        why,
        predicted={"weights_gib": round(now / 2, 2)} if now is not None else None,
    )


def lighter(case: Case, *, loaded: bool = False) -> tuple[Change | None, ...]:
    """The weights' remedies in the order of what they cost: 16 bits instead of 32, and GPUs that are here and idle, for
    nothing is lost by them; then fewer bits; then GPUs of which nothing is known."""
    split = more_gpus(case)
    first = case.gpus is not None
    return (half(case), split if first else None, *quantize(case, loaded=loaded), None if first else split)


def _fp8(case: Case, *, loaded: bool) -> Change | None:
    card = gpus.find(case.gpu_name) if case.gpu_name else None
    unfit = card is not None and card.capability is not None and card.capability < _FP8_FROM
    # AMD's cards of the last generations alone compute with it, and CUDA's allocator is every other one's.
    unfit = unfit or (
        card is None and case.run is not None and case.run.oom is not None and case.run.oom.backend == "HIP"
    )
    old = case.run is not None and case.run.engine == "V0"
    late = not loaded and (old or (case.version is not None and case.version < STREAMED))
    if unfit or late or quantized(case) or _still_too_large(case):
        return None
    why = "halves 16-bit weights while loading; a checkpoint that is already quantized is better"
    now = case.weights_gib
    predicted = {"weights_gib": round(now * _FP8_LEAVES, 2)} if now is not None and loaded else None
    return set_flag(case, "quantization", "fp8", Direction.ADD, why, predicted=predicted)


def quantized(case: Case) -> bool:
    """Is the checkpoint in fewer than 16 bits: by an option, its name, or the code that was reading it?"""
    if case.effective("quantization") not in {None, False, "None"} or names_quantization(case.model or ""):
        return True
    root = case.root
    if root is None:
        return False
    by_calls = any(says(file, "call-of-quantized-weights") for file in root.files) or any(
        says(name, "function-of-few-bits") for name in root.functions
    )
    return by_calls or _told_of_bits(case)


def _told_of_bits(case: Case) -> bool:
    """Where no launch names the model: does a word of what somebody wrote?"""
    if case.run is None or case.model is not None or len(case.run.lines) > _WRITTEN:
        return False
    return any(names_quantization(word) for line in case.run.lines for word in line.text.split())


def _still_too_large(case: Case) -> bool:
    """Would one rank's part fill the card in 8 bits, too? Loading is not bound by the fraction."""
    whole, total = whole_weights(case), case.total_gib
    return whole is not None and total is not None and whole * _FP8_LEAVES > total * _CARD


def smaller_model(case: Case) -> Change:
    """Another checkpoint, with the size that would fit where the card's is known. Which one is the owner's choice."""
    room = weights_that_fit(case)
    whole = whole_weights(case)
    if room is None:
        return _model("its files, split over the GPUs, must leave a fifth of each card free")
    fraction, total = _fraction(case), case.total_gib
    sum_ = f"{fraction:g} × {total:.2f} GiB, less a fifth for the profile run and the KV cache"
    kind = ""
    if whole is not None and whole > room and not names_quantization(case.model or ""):
        kind = f": now {whole:.1f}, in 8 bits {whole / 2:.1f}, in 4 bits {whole * 0.3:.1f}"
    why = f"at most {room:.1f} GiB of weights fit a GPU{kind} ({sum_})"
    return _model(why, {"weights_gib_at_most": round(room, 1)})


def _model(why: str, predicted: dict[str, float] | None = None) -> Change:
    made = thing(ChangeKind.FLAG, "model", Direction.SMALLER, why, inventory="vllm_model")
    return Change(
        made.kind, made.name, None, None, made.direction, made.applicability, None, {**(predicted or {})}, why
    )


def weights_that_fit(case: Case) -> float | None:
    """GiB of one GPU that weights may take; None where the card's size is not known."""
    total = case.total_gib
    return _fraction(case) * total * (1 - _BESIDE) if total is not None else None


def fill_the_card(case: Case) -> bool:
    """Do the weights of one rank take so much of the card that hardly anything is left beside them, whatever the
    fraction? As loaded, as its files say, or as the model's name counts them."""
    whole, total = whole_weights(case), case.total_gib
    return whole is not None and total is not None and whole > _FILLED * total


def _fraction(case: Case) -> float:
    """The fraction that the launch asks for; one in which this model could never be served is no measure for it."""
    asked, whole, total = case.utilization[0], whole_weights(case), case.total_gib
    tiny = whole is not None and total is not None and asked * total < _SMALL * whole
    return max(asked, _USUAL) if tiny else asked


def whole_weights(case: Case) -> float | None:
    """Weights of one rank, GiB: as loaded, else its part of the checkpoint's files, else of two bytes for each of the
    parameters that the model's name counts."""
    run = case.run
    files = run.number("checkpoint-size", "size") if run is not None else None
    ranks = _split(case) * (case.count("pipeline-parallel-size") or (run.pipeline if run is not None else 1))
    if case.weights_gib is not None or files is not None:
        return case.weights_gib or (files / ranks if files is not None else None)
    named = billions(case.model) if case.model else case.told_setup.billions
    return named * 2e9 / GIB / ranks if named is not None and not quantized(case) else None


def more_gpus(case: Case) -> Change | None:
    """The number of GPUs to split over: the next that the model's heads allow and that leaves room, where those are
    known; None where so many are known not to be here, or too few for the weights."""
    now = _split(case)
    here = case.gpus
    most = len(here) // int(case.count("pipeline-parallel-size") or 1) if here is not None else 64
    heads, whole, room = _heads(case), whole_weights(case), weights_that_fit(case)
    steps = [now * 2**n for n in range(1, 6) if now * 2**n <= most]
    steps = [n for n in steps if heads is None or heads % n == 0]
    fit = [n for n in steps if whole is None or room is None or whole * now / n <= room]
    # Where none leaves room, the widest split that the budget holds at all.
    tight = [n for n in steps if whole is not None and room is not None and whole * now / n < room / (1 - _BESIDE)]
    to = next(iter(fit or tight[-1:]), None)
    if to is None:
        return None
    why = f"splits the weights: each GPU holds 1/{to} of them instead of 1/{now}"
    if heads is not None:
        why += f"; {to} divides {heads} attention heads"
    predicted = {"weights_gib": round(whole * now / to, 2)} if whole is not None else None
    return set_flag(case, "tensor-parallel-size", to, Direction.RAISE, why, predicted=predicted)


def _split(case: Case) -> int:
    """Over how many GPUs the weights are split now: as launched, and at least over the ranks that wrote lines."""
    given, run = case.count("tensor-parallel-size"), case.run
    if given is not None or run is None:
        return given or 1
    # torch counts the GPUs that it sees, one a rank; of several replicas each splits the weights by itself
    here = (run.oom.gpu or 0) + 1 if run.oom is not None and run.replicas == 1 else 1
    stages = case.count("pipeline-parallel-size") or run.pipeline
    ranks = run.tensor or math.ceil(max(run.ranks, here) / stages)  # a name says it before a count of what was seen
    return 1 << (ranks - 1).bit_length()


def _heads(case: Case) -> int | None:
    config = case.model_config or {}
    inner = config.get("text_config")
    found = (inner if isinstance(inner, dict) else config).get("num_attention_heads")
    return found if isinstance(found, int) and found > 0 else None
