"""VD201: a step at run time asked for more than the KV cache and everything else had left."""

from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Arithmetic, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom, sums, tenants, told_whose
from vllm_doctor.rules.gates.profile_run import in_adapters
from vllm_doctor.rules.gates.run_time import at_run_time, for_logprobs, unmeasured_kernel
from vllm_doctor.rules.gates.sleep import maps_again, wakes
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.diffusion import diffuses, fit
from vllm_doctor.rules.remedies.own_pool import smaller_own_pool
from vllm_doctor.rules.remedies.prompt_items import items_of_step
from vllm_doctor.rules.remedies.step import fewer_sequences, fewer_tokens, tensor
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import finding, gib


def judge(case: Case) -> Outcome:
    """Was too little left outside the pool for a step's temporary memory?"""
    oom = at_run_time(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if wakes(oom) or maps_again(oom):
        return Clear("the engine was waking up")
    if for_logprobs(oom) or in_adapters(oom):
        return Clear("the frames name another cause")
    if unmeasured_kernel(oom) is not None:
        return Clear("a prefill kernel asked for memory that was not measured at start")
    if oom.torch is not None and oom.torch.fragmented:
        return Clear("the memory was free, but fragmented")
    if diffuses(oom):
        return _of_diffusion(case, oom)
    named = tensor(case, oom.torch)
    # The sampler works on rows of the vocabulary, one a sequence, however many tokens the step had.
    rows = any(says(file, "call-v1-sampler", "call-v0-sampler") for file in oom.fault.files[-2:])
    if named is not None and named.option == "max-num-batched-tokens":
        return Clear("the tokens of one step explain the size of the tensor that failed")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.CONFIRMED if told_whose(oom) else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*sums(oom.torch), *_room(case)),
        changes=(
            lower_utilization(
                case, oom.torch, "buffers at run time use the memory that gpu_memory_utilization leaves free"
            ),
            None if rows else fewer_tokens(case, oom.torch, measuring=False),
            *smaller_own_pool(case),
            *items_of_step(case, oom),
            fewer_sequences(case, oom.torch) if rows or (named and named.option == "max-num-seqs") else None,
        ),
        refute="the same requests fail with gpu_memory_utilization lower by 0.1",
    )


def _of_diffusion(case: Case, oom: Oom) -> Finding:
    return finding(
        RULE,
        title="A diffusion request does not fit beside the model",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        cause=Cause.OTHER,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=fit(case, oom),
        refute="a request of one small picture fails in the same call",
    )


def _room(case: Case) -> tuple[Arithmetic, ...]:
    total, (fraction, source) = case.total_gib, case.utilization
    if total is None or not case.fraction_told:
        return ()
    return (gib("left outside the budget", total * (1 - fraction), f"{total:.2f} × (1 − {fraction:g})", source),)


RULE = rule(
    "VD201", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}), judge=judge
)
