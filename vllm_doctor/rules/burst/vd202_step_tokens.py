"""VD202: a step at run time failed on a tensor that grows with the tokens of one step."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import sums, tenants
from vllm_doctor.rules.gates.run_time import at_run_time, for_logprobs, unmeasured_kernel
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.prompt_items import items_of_step
from vllm_doctor.rules.remedies.step import fewer_tokens, tensor
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import finding, gib


def judge(case: Case) -> Outcome:
    """Does the failed allocation follow from the tokens of one step?"""
    oom = at_run_time(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(case, oom.torch) is not None or for_logprobs(oom):
        return Clear("the message or the frames name another cause")
    named = tensor(case, oom.torch)
    unmeasured = unmeasured_kernel(oom)
    if (named is None or named.option != "max-num-batched-tokens") and unmeasured is None:
        return Clear("the tokens of one step explain no tensor of this size")
    shown = (
        (gib("tensor that failed", named.count * named.width * named.size / GIB, named.formula, named.shown),)
        if named is not None
        else ()
    )
    return finding(
        RULE,
        title=RULE.title
        if unmeasured is None
        else f"A prefill kernel ({unmeasured}) needs scratch memory that was not measured at start",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*shown, *sums(oom.torch)),
        changes=(
            fewer_tokens(case, oom.torch, measuring=False),
            lower_utilization(
                case, oom.torch, "buffers at run time use the memory that gpu_memory_utilization leaves free"
            ),
            *items_of_step(case, oom),
        ),
        refute="a prompt of a quarter of the tokens fails in the same frame",
    )


RULE = rule(
    "VD202", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}), judge=judge
)
