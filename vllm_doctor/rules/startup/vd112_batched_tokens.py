"""VD112: the pass that measures the peak runs out of memory because one step holds too many tokens."""

from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.before_cache import before_cache, one_tensor
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, program_sizes, refused_though_free, sums, tenants
from vllm_doctor.rules.gates.profile_run import first_handle, in_adapters, in_pass, in_sampler, measuring, weights_fill
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.diffusion import diffuses
from vllm_doctor.rules.remedies.encoder_decoder import fewer_inputs
from vllm_doctor.rules.remedies.own_pool import sizes_by_share
from vllm_doctor.rules.remedies.prompt_items import smaller_items
from vllm_doctor.rules.remedies.step import PARTS, Tensor, fewer_tokens, sequences, shorter_prompts, tensor, tokens
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding, gib, set_flag

# Of the card: what leaves no room for a pass.
_HELD = 0.85


def judge(case: Case) -> Outcome:
    """Is it the number of tokens of one step that makes the pass too large?"""
    oom = measuring(case, StartupPhase.PROFILE, StartupPhase.WEIGHTS)
    if isinstance(oom, NotHere | Unseen):
        return _before_the_cache(case) or oom
    named = tensor(case, oom.torch)
    if not in_pass(oom):
        return Clear("the profile run had not begun")
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if first_handle(oom):
        return Clear("a library's first handle found no room: the card was full before the pass had a peak")
    if in_sampler(oom) or in_adapters(oom):
        return Clear("a buffer of the sampler or of an adapter did not fit, not the forward pass")
    if weights_fill(case) is not None and named is None:
        return Clear("the weights alone fill the GPU")
    if fewer_inputs(case, oom) is not None:
        return Clear("the encoder's inputs of all sequences fill the pass of an encoder-decoder model")
    shorter = shorter_prompts(case, oom.torch) if case.number("max-model-len") is not None else None
    fewer = (_of_program(case, oom) or fewer_tokens(case, oom.torch), shorter, _fewer_rows(case, oom, named))
    held = _untold(oom) or _mostly_held(oom) or not any(fewer)
    return finding(
        RULE,
        title=_title(case, named),
        confidence=Confidence.CONFIRMED if named is not None else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*_named(named), *sums(oom.torch), *_rest(case)),
        # A step that cannot be smaller, or of which nobody says how large it was, leaves the weights beside it.
        changes=(*fewer, *lighter(case, loaded=True)) if held else fewer,
        refute="the profile run fails with a quarter of the tokens as well",
    )


def _before_the_cache(case: Case) -> Finding | None:
    """No call and no line tells the step, but a piece of this size before the KV cache stands is of this pass; no share
    of the card makes it smaller."""
    oom = exhausted(case, StartupPhase.CONFIG)
    if isinstance(oom, NotHere | Unseen) or oom.fault.functions or oom.run.served() or diffuses(oom):
        return None
    if not (sizes_by_share(case) and before_cache(case, oom.torch) and one_tensor(oom.torch)):
        return None
    if tenants(case, oom.torch) is not None or refused_though_free(oom.torch):
        return None
    return finding(
        RULE,
        title="The profile run does not fit: one tensor asks for more than is free before the KV cache is made",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            fewer_tokens(case, oom.torch),
            shorter_prompts(case, oom.torch),
            smaller_items(case) if says(case.model or "", "name-of-images") else None,
        ),
        refute="the lines before the error show that the KV cache had its size",
    )


def _of_program(case: Case, oom: Oom) -> Change | None:
    """Where XLA lists what its program takes beside its arguments: the part of the tokens at which what is missing is
    saved; tokens that the log does not count are halved until it is."""
    sizes = program_sizes(oom)
    if sizes is None or oom.torch is None or tokens(case) is not None:
        return None
    handed, beside = sizes
    lacks = oom.torch.asked / GIB
    part = next((name for times, name in PARTS if beside * (1 - 1 / times) >= lacks), None)
    if part is None:
        return None
    why = (
        f"set {part} of the present value (the log prints it as `max_num_batched_tokens`): beside its arguments "
        f"({handed:.2f} GiB, the weights above all) the program takes {beside:.2f} GiB, and {lacks:.2f} are missing"
    )
    return set_flag(case, "max-num-batched-tokens", None, Direction.LOWER, why)


def _mostly_held(oom: Oom) -> bool:
    """Is nearly all of the card held before this small piece? A pass gives back what it used; weights do not."""
    torch, sizes = oom.torch, program_sizes(oom)
    if torch is None or torch.total is None:
        return False
    if sizes is not None:
        return sizes[0] > _HELD * torch.total / GIB
    return torch.allocated is not None and torch.allocated > torch.total


def _untold(oom: Oom) -> bool:
    """Does the driver refuse work, and say nothing of sizes? Then the weights may be what fills the card."""
    return "device-oom-resources" in oom.fault.ids and oom.torch is None


def _fewer_rows(case: Case, oom: Oom, named: Tensor | None) -> Change | None:
    """Where no call tells which part of the pass it was: what it samples, and the graphs it measures, are sequences."""
    now = sequences(case)[0]
    if named is not None or oom.fault.functions or now < 2:
        return None
    why = (
        "the log names no call; the profile run also samples max_num_seqs rows, and newer releases capture "
        "graphs of that size during the profile run"
    )
    return set_flag(case, "max-num-seqs", now // 2, Direction.LOWER, why)


def _title(case: Case, named: Tensor | None) -> str:
    now = tokens(case)
    if named is not None:
        size = named.count * named.width * named.size / GIB
        return (
            f"One step of {named.count} tokens does not fit: the tensor that failed is {named.formula} = {size:.2f} GiB"
        )
    return f"The profile run over {now[0]} tokens does not fit" if now is not None else "The profile run does not fit"


def _named(named: Tensor | None) -> tuple[Arithmetic, ...]:
    if named is None:
        return ()
    return (gib("largest activation", named.count * named.width * named.size / GIB, named.formula, named.shown),)


def _rest(case: Case) -> tuple[Arithmetic, ...]:
    weights = case.weights_gib
    return (gib("weights", weights, "as loaded, per rank", "the log"),) if weights is not None else ()


RULE = rule(
    "VD112", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}), judge=judge
)
