"""VD113: the vision or audio encoder runs out of memory, while measured or while serving."""

from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase, names_encoder
from vllm_doctor.log.traceback import Frame
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, sums, tenants
from vllm_doctor.rules.gates.profile_run import in_adapters, in_pass, in_sampler, measuring, weights_fill
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.encoder_decoder import fewer_inputs
from vllm_doctor.rules.remedies.prompt_items import (
    encoder_budget,
    fewer_items,
    fewer_measured,
    ordered,
    per_prompt,
    smaller_items,
)
from vllm_doctor.rules.remedies.step import fewer_tokens, tokens
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding, set_flag

# More than a token takes in any tensor of a step: logits of 512 Ki entries in float32, or 1 Mi values in 16 bits.
_PER_TOKEN = 2 << 20
# The same of V1's profile run, which samples a few of its tokens only: the widest dense layer (gate and up of 53,248
# values each) takes 208 KiB in 16 bits.
_PER_TOKEN_V1 = 256 << 10
# Tokens of a step where they are not known: the largest default (config: default_max_num_batched_tokens).
_MANY = 16384
# The largest tensor of a step whose tokens are not known: no default of V1 has more than 16,384 of 2 MiB, and V0's, as
# long as the longest prompt, takes logits of the last token of each prompt alone (131,072 of 256 KiB).
_LARGEST = 32 << 30
# A step alone calls this.
_OF_A_STEP = "_execute_mm_encoder"


def judge(case: Case) -> Outcome:
    """Was it the encoder that asked?"""
    if (inputs := _of_each_sequence(case)) is not None:
        return inputs
    oom = exhausted(case, StartupPhase.PROFILE_ENCODER)
    if isinstance(oom, NotHere | Unseen):
        return _by_size(case) or _by_warning(case) or oom
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    named = _named(oom)
    if not named and (warned := _by_warning(case)) is not None:
        return warned
    # The profile run calls the model's encoder itself.
    serving = oom.run.up_at(oom.fault) or any(_OF_A_STEP in call for call in _calls(oom))
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD if serving else Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED if named else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*sums(oom.torch), *_items(case)),
        changes=(
            _tiled(case, oom),
            *ordered(case, fewer_items(case), fewer_tokens(case, oom.torch, measuring=not serving)),
            fewer_measured(case) if not serving else None,
            lower_utilization(
                case, oom.torch, "the encoder works in the memory that gpu_memory_utilization leaves free"
            )
            if serving
            else None,
        ),
        refute="the launch fails in the same call with --limit-mm-per-prompt set to 0 for every modality",
    )


def _of_each_sequence(case: Case) -> Finding | None:
    """V0 profiles an encoder-decoder model with the longest encoder input of each of max_num_seqs sequences, and so
    does V1 with the cross-attention's."""
    oom = measuring(case, StartupPhase.PROFILE, StartupPhase.PROFILE_ENCODER, StartupPhase.WEIGHTS)
    if isinstance(oom, NotHere | Unseen) or not in_pass(oom) or in_sampler(oom) or in_adapters(oom):
        return None
    fewer = fewer_inputs(case, oom)
    full = weights_fill(case) is not None
    # Where the weights nearly fill the card, its own line or calls must say that it was this pass.
    if fewer is None or tenants(case, oom.torch) is not None or (full and not _named(oom)):
        return None
    return finding(
        RULE,
        title=f"The longest encoder inputs of {_all(case)} sequences do not fit at once",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(fewer, *(lighter(case) if full else ())),
        refute="the profile run fails with one sequence as well",
    )


def _all(case: Case) -> str:
    now = case.count("max-num-seqs")
    return str(now) if now is not None else "all"


def _named(oom: Oom) -> bool:
    """Does a call name the encoder? The file of the model, without a call of its language model, only suggests it."""
    codes = [frame.code for frame in _frames(oom)]
    near = [line.text for line in oom.run.lines[max(0, oom.fault.index - 2) : oom.fault.index]]
    return names_encoder(oom.fault.files, [*near, *codes], oom.fault.functions)


def _frames(oom: Oom) -> list[Frame]:
    crash = oom.fault.crash
    return [frame for link in crash.links for frame in link.frames] if crash is not None else []


def _calls(oom: Oom) -> list[str]:
    """The calls by name, and the code of their callers: a traceback that is cut has only one of them."""
    return [text for frame in _frames(oom) for text in (frame.function, frame.code)]


def _by_size(case: Case) -> Finding | None:
    """Where the step is not told: one tensor larger than the card, and than any that grows with the tokens of a step.

    Only the attention over all patches of an image or a video, without a kernel that tiles it, grows with their square.
    """
    oom = exhausted(case, StartupPhase.CONFIG)
    if isinstance(oom, NotHere | Unseen) or oom.torch is None or oom.torch.total is None:
        return None
    now = tokens(case)
    if oom.torch.asked <= max(oom.torch.total, _PER_TOKEN * now[0] if now is not None else _LARGEST):
        return None
    return finding(
        RULE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(_tiled(case, oom), fewer_items(case), smaller_items(case)),
        refute="the lines before the error show a traceback without the model's vision or audio code",
    )


def _tiled(case: Case, oom: Oom) -> Change | None:
    """A tensor larger than the card is the table of all pairs of patches: a kernel that tiles it writes no such table,
    and Triton's is there on every card (platforms: get_supported_vit_attn_backends)."""
    torch = oom.torch
    if torch is None or torch.total is None or torch.asked <= torch.total:
        return None
    why = "a tensor larger than the card holds all pairs of an image's patches; Triton's kernel does not store them"
    return set_flag(case, "mm-encoder-attn-backend", "TRITON_ATTN", Direction.CHANGE, why)


def _by_warning(case: Case) -> Finding | None:
    """The profile run of V0 takes the largest items that a prompt may have, and says first that they are more than fit
    its sequence: where no call tells which part of the pass ran out, they are most of it."""
    oom = exhausted(case, StartupPhase.PROFILE, StartupPhase.PROFILE_ENCODER)
    if isinstance(oom, NotHere | Unseen) or _elsewhere(oom) or tenants(case, oom.torch) is not None:
        return None
    warned = oom.run.last("items-too-many")
    if warned is None or warned.index > oom.fault.index:
        return _by_budget(case, oom) or _by_launch(case, oom)
    need = float(warned.fields["need"])
    what = "the tokens of the largest items of one prompt, as vLLM counts them"
    return finding(
        RULE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index), case.line(warned.index)),
        arithmetic=(Arithmetic("tokens of one prompt's items", need, "tokens", what, "the log"), *sums(oom.torch)),
        changes=ordered(case, fewer_items(case), fewer_tokens(case, oom.torch)),
        refute="the launch fails in the same place with --limit-mm-per-prompt set to 0 for every modality",
    )


def _by_budget(case: Case, oom: Oom) -> Finding | None:
    """V1 says that it profiles the encoder, then runs it, then the language model over the tokens of a step: no calls
    tell which of the two ran out, but one tensor that is too large for the second was the encoder's; and where a cut
    message has no figures, the first of the two is nearer, unless the weights left room for none."""
    hit = encoder_budget(case)
    if hit is None or hit.index > oom.fault.index or oom.fault.functions:
        return None
    now = tokens(case)
    of_a_step = oom.torch is not None and oom.torch.asked <= _PER_TOKEN_V1 * (now[0] if now is not None else _MANY)
    if of_a_step or (oom.torch is None and weights_fill(case) is not None):
        return None
    return finding(
        RULE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index), case.line(hit.index)),
        arithmetic=(*sums(oom.torch), *_items(case)),
        changes=ordered(case, fewer_items(case), fewer_tokens(case, oom.torch)),
        refute="the launch fails in the same place with --limit-mm-per-prompt set to 0 for every modality",
    )


def _by_launch(case: Case, oom: Oom) -> Finding | None:
    """The launch allows several items, or videos, in one prompt: the profile run takes the largest of them all."""
    most = per_prompt(case)
    if not most or not (sum(most.values()) > 1 or most.get("video", 0) > 0) or oom.fault.functions:
        return None
    told = ", ".join(f"{count} {name}" for name, count in most.items())
    what = f"--limit-mm-per-prompt: {told}"
    return finding(
        RULE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(
            Arithmetic("items of one prompt", float(sum(most.values())), "", what, "the launch"),
            *sums(oom.torch),
        ),
        changes=(fewer_items(case), smaller_items(case), fewer_tokens(case, oom.torch)),
        refute="the launch fails in the same place with --limit-mm-per-prompt set to 0 for every modality",
    )


def _elsewhere(oom: Oom) -> bool:
    """Does a call say which part of the pass it was? The model's own file, without its language model's, does not."""
    last = oom.fault.files[-1] if oom.fault.files else ""
    return bool(oom.fault.functions) and not (oom.fault.functions[-1] == "forward" and says(last, "call-multimodal"))


def _items(case: Case) -> tuple[Arithmetic, ...]:
    hit = encoder_budget(case)
    if hit is None:
        return ()
    what = f"{hit.fields['items']} {hit.fields['modality']} items of the largest size"
    return (Arithmetic("encoder budget", float(hit.fields["tokens"]), "tokens", what, "the log"),)


RULE = rule(
    "VD113",
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}),
    judge=judge,
)
