"""VD117: the weights need more than one GPU, and more are here than are used."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import exhausted, tenants
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.weights import more_gpus
from vllm_doctor.rules.say import finding, gib


def judge(case: Case) -> Outcome:
    """Would splitting over GPUs that stand idle make the weights fit?"""
    oom = exhausted(case, StartupPhase.WEIGHTS, StartupPhase.PROFILE)
    if isinstance(oom, NotHere | Unseen):
        return oom
    used = case.count("tensor-parallel-size") or 1
    here = case.gpus
    if here is None:
        return Unseen(frozenset({Signal.GPUS}), "the number of GPUs is not known")
    whole, total = oom.run.number("checkpoint-size", "size"), case.total_gib
    if len(here) < 2 * used or tenants(case, oom.torch) is not None:
        return Clear(f"{len(here)} GPUs, {used} used")
    if whole is None or total is None or whole / used < 0.8 * total:
        return Clear("the size of the checkpoint does not show that it is too large")
    split = more_gpus(case)
    if split is None:
        return Clear("the weights do not fit even split over all GPUs of this host")
    after = int(split.after) if isinstance(split.after, int) else 2 * used
    return finding(
        RULE,
        title=(
            f"Each GPU of {total:.1f} GiB would hold {whole / used:.1f} GiB of weights, and "
            f"{len(here) - used} GPUs stand idle"
        ),
        severity=Severity.ADVICE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(gib("weights a GPU after the split", whole / after, f"{whole} / {after}", "the log"),),
        changes=(split,),
        refute="the other GPUs are used by other services",
    )


RULE = rule(
    "VD117", reads=frozenset({Signal.MODEL_CONFIG, Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge
)
