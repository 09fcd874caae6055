"""VD114: the buffers for LoRA adapters do not fit."""

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, sums, tenants
from vllm_doctor.rules.gates.profile_run import in_adapters
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.adapter_slots import SMALLEST_RANK, fewer_slots, slots
from vllm_doctor.rules.remedies.step import fewer_tokens
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding

# Slots × rank at which the buffers beside a model of 8 billion parameters take 5 GiB: 5 MiB for each column of a rank.
_MANY = 1024
_PHASES = {StartupPhase.WEIGHTS: Phase.STARTUP_WEIGHTS}


def judge(case: Case) -> Outcome:
    """Did memory run out among the buffers of adapters?"""
    oom = exhausted(case, StartupPhase.PROFILE, StartupPhase.WEIGHTS, StartupPhase.SERVING, StartupPhase.CONFIG)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    many, rank = slots(case)
    named = in_adapters(oom)
    if not named and not (_nothing_else(case, oom) and many * rank >= _MANY):
        return Clear("the buffers of adapters did not fail")
    serving = _serving(oom)
    return finding(
        RULE,
        phase=Phase.RUNTIME_PREFILL_BURST if serving else _PHASES.get(oom.fault.startup_phase, RULE.phase),
        confidence=Confidence.CONFIRMED if named and oom.fault.files else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(
            Arithmetic(
                "adapter slots",
                many * rank,
                "rank columns",
                f"{many} slots × rank {rank}, whether adapters are loaded or not",
                "the launch",
            ),
            *sums(oom.torch),
        ),
        changes=(
            *fewer_slots(case),
            *(_at_run_time(case, oom) if serving else lighter(case) if many <= 1 and rank <= SMALLEST_RANK else ()),
        ),
        refute="the launch fails in the same frame without --enable-lora",
    )


def _nothing_else(case: Case, oom: Oom) -> bool:
    """Does nothing tell the step, of an engine that takes adapters and served nobody?"""
    unplaced = oom.fault.startup_phase is StartupPhase.CONFIG and not oom.fault.functions
    return unplaced and case.effective("enable-lora") is True and not oom.run.served() and not _serving(oom)


def _serving(oom: Oom) -> bool:
    """In a step that served: as the calls say, or, where they are cut off before the step, because graphs that were
    captured hold their pools: the slots were there long before."""
    placed = oom.fault.startup_phase is not StartupPhase.CONFIG
    captured = oom.torch is not None and bool(oom.torch.private_pools)
    return oom.fault.startup_phase is StartupPhase.SERVING if placed else captured


def _at_run_time(case: Case, oom: Oom) -> tuple[Change | None, ...]:
    """The slots were there when it started: what one step's tokens need beside them comes out of what is left over."""
    return (
        lower_utilization(
            case, oom.torch, "buffers at run time use the memory that gpu_memory_utilization leaves free"
        ),
        fewer_tokens(case, oom.torch, measuring=False),
    )


RULE = rule("VD114", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
