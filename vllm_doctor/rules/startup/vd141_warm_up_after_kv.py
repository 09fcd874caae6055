"""VD141: after the KV cache was made, the warm-up (or the cache itself) asks for more than is left."""

from vllm_doctor.log.startup_phase import StartupPhase, startup_phase_of
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Phase
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import compiles_programs
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, held_by_arguments, refused_though_free, sums, tenants
from vllm_doctor.rules.gates.pinned import pins
from vllm_doctor.rules.gates.profile_run import in_sampler
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.own_pool import blocks_that_fit, smaller_own_pool
from vllm_doctor.rules.remedies.refused_memory import of_driver
from vllm_doctor.rules.remedies.step import fewer_tokens
from vllm_doctor.rules.remedies.uncounted_draft import uncounted, without_draft
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.whole_pool import layers_to_come
from vllm_doctor.rules.say import finding

_LIMITS = (
    "Find what limits the process below the free memory: the host's own memory where the GPU shares it "
    "(ttm.pages_limit on AMD, `free -g` elsewhere), the memory of the virtual machine or WSL, a limit of the container"
)
_PHASES = {StartupPhase.KV: Phase.STARTUP_KV_CACHE, StartupPhase.GRAPHS: Phase.STARTUP_CUDAGRAPH}


def judge(case: Case) -> Outcome:
    """Did an allocation fail between the sizing of the KV cache and the end of the start?"""
    programs = (StartupPhase.GRAPHS,) if compiles_programs(case) else ()
    oom = exhausted(case, StartupPhase.WARMUP, StartupPhase.SAMPLER, StartupPhase.KV, *programs)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if held_by_arguments(oom):
        return Clear("the weights alone fill the memory")
    if oom.torch is None and pins(oom.fault):  # torch's own figures are of its allocator on the GPU
        return Clear("memory of the host was asked for, not of the GPU")
    if in_sampler(oom) or oom.fault.ids & {"sampler-oom", "pooler-oom"}:
        return Clear("the sampler's dummy batch failed")
    kv = oom.fault.startup_phase is StartupPhase.KV
    refused = refused_though_free(oom.torch)
    draft = uncounted(case, oom)
    blocks = oom.fault.fields("device-oom-blocks").get("blocks")
    return finding(
        RULE,
        title=(
            "The driver refused memory that it counts as free"
            if refused
            else "The KV cache was planned larger than the memory that is free"
            if kv
            else "The KV cache left too little memory for the warm-up after it"
        ),
        phase=_PHASES.get(oom.fault.startup_phase, RULE.phase),
        # Without frames only the line before it tells the step, and lines may be missing in between.
        confidence=Confidence.LIKELY
        if refused or startup_phase_of(oom.fault.functions) is None
        else Confidence.CONFIRMED,
        then=_LIMITS if refused else "",
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(
            blocks_that_fit(case, int(blocks)) if blocks else None,
            None
            if blocks
            else lower_utilization(
                case,
                oom.torch,
                "the KV cache takes all that gpu_memory_utilization allows, before the warm-up runs",
                more=_to_come(case, oom, draft) if kv and not refused else None,
            ),
            without_draft(case) if draft is not None else None,
            *smaller_own_pool(case),
            None if kv else fewer_tokens(case, oom.torch, measuring=False),
            *(of_driver(case, oom.torch) if refused else ()),
        ),
        refute="the same allocation fails with gpu_memory_utilization lower by 0.1",
    )


def _to_come(case: Case, oom: Oom, draft: float | None) -> float | None:
    """GiB that were not allocated yet: of a draft that the plan left out, its weights at the least are missing."""
    if draft is None or oom.torch is None or oom.torch.free is None:
        return layers_to_come(case, oom.torch)
    return oom.torch.free / GIB + draft


RULE = rule("VD141", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
