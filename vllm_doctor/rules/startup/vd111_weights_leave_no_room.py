"""VD111: the weights fit, but leave no room for the pass that measures the peak."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.out_of_memory import Oom, sums, tenants
from vllm_doctor.rules.gates.profile_run import first_handle, in_adapters, measuring, weights_fill, weights_of
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.encoder_decoder import fewer_inputs
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.step import fewer_tokens, tensor
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding, gib, set_flag


def judge(case: Case) -> Outcome:
    """Do the weights alone take so much of the card that no pass fits beside them?"""
    oom = measuring(case, StartupPhase.PROFILE)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if first_handle(oom):
        return _full_before(case, oom)
    share, told, total = weights_fill(case), weights_of(case), case.total_gib
    if share is None or told is None or total is None:
        return Clear("the weights leave room for a profile run")
    weights, source = told
    if in_adapters(oom):
        return Clear("the adapters' buffers did not fit, not the profile run")
    if tensor(case, oom.torch) is not None:
        return Clear("the tensor that failed is not a weight")
    tokens, shorter = fewer_tokens(case, oom.torch), _shorter(case)
    same = tokens is not None and shorter is not None and tokens.name == shorter.name
    return finding(
        RULE,
        title=f"The weights take {weights:.2f} of {total:.2f} GiB and leave no room for the profile run",
        confidence=Confidence.CONFIRMED if case.weights_gib is not None else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(
            gib("weights", weights, "of each rank", source),
            gib(
                "left of the GPU's memory",
                total - weights,
                f"{total:.2f} − {weights:.2f}",
                "before contexts and workspaces",
            ),
            *sums(oom.torch),
        ),
        changes=(fewer_inputs(case, oom), *lighter(case, loaded=True), None if same else tokens, shorter),
        refute="the profile run fits with the smallest number of tokens per step",
    )


def _full_before(case: Case, oom: Oom) -> Finding:
    """cuBLAS found no room for its first handle: weights, or what others hold, fill the card."""
    return finding(
        RULE,
        title="The GPU was full before the profile run: cuBLAS got no handle",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        changes=(
            stop_others(case, "a handle takes some MiB, and less than that was left on the card"),
            *lighter(case, loaded=True),
        ),
        refute=f"{maker_tool(case).name} shows a GiB or more free while the weights are loaded",
    )


def _shorter(case: Case) -> Change | None:
    length = case.number("max-model-len")
    if length is None or length <= 4096:
        return None
    return set_flag(
        case,
        "max-model-len",
        4096,
        Direction.LOWER,
        "a shorter context needs less KV cache, and little memory remains for it",
    )


RULE = rule(
    "VD111", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}), judge=judge
)
