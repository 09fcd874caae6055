"""VD208: memory of the GPU ran out, and the log does not tell in which step."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Confidence, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import platform
from vllm_doctor.rules.gates.full_to_budget import full_to_budget
from vllm_doctor.rules.gates.out_of_memory import (
    EXHAUSTED,
    Oom,
    exhausted,
    refused_at_first,
    refused_by_far,
    refused_though_free,
    sums,
    tenants,
)
from vllm_doctor.rules.gates.profile_run import fails_in_start, in_model, too_large_by_name
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.diffusion import diffuses, fit
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.own_pool import sizes_by_share, smaller_own_pool
from vllm_doctor.rules.remedies.refused_memory import of_driver, of_pool, pool_status
from vllm_doctor.rules.remedies.step import fewer_tokens
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding

# Who asks the driver itself, beside torch's allocator: libraries for their handles and buffers, and sleep mode when it
# maps the pool again. In whatever step that was, what is missing is what vLLM's fraction leaves over.
_OUTSIDE = frozenset(
    {"cublas-alloc", "cublas-create", "nccl-oom", "nccl-calloc", "cumem-oom", "device-oom-program", "device-oom-dxg"}
)

# Neuron's runtime and XLA take memory as weights, cache and programs are loaded: a step brings nothing of its own.
_COMPILED_BEFORE = frozenset({"neuron", "tpu"})

_IF_CACHE = "if the KV cache stood: the steps after it work in the memory that gpu_memory_utilization leaves free"
_IN_START = "GPU memory ran out in the start; the log does not show in which step"
_ON_TOP = "the allocation came on top of the memory that gpu_memory_utilization gives to the KV cache"
_IF_SERVING = "if the server had been ready: a step works in the memory that gpu_memory_utilization leaves free"
_IN_FORWARD = "GPU memory ran out in a forward pass, of the start or of a step"
_OTHERS = "memory of another process is not available to this service"

_REFUSED = "The driver refused memory that it calls free"
_POOL = "The memory pool of sleep mode gets an error from the driver"
_REFUSED_FIRST = "The driver refused the first memory that this process asked for"
_PHASES = {StartupPhase.WEIGHTS: Phase.STARTUP_WEIGHTS, StartupPhase.PROFILE: Phase.STARTUP_PROFILE}
_WHO_REFUSES = (
    "more memory is free than was asked for, so a smaller model or a lower gpu_memory_utilization alone does not "
    "help: where the GPU shares the host's memory, the kernel limits that memory and the page cache "
    "counts (free -g; dmesg | tail); on other GPUs try one GPU alone, then another release of driver and image"
)
_WHO_HOLDS = (
    "torch had nothing on the card yet: xpu-smi shows whether another process holds it; if none does, the driver or a "
    "second visible card is at fault"
)
_BY_STEP = (
    "the lines above show the step: while weights load, more GPUs or a quantized checkpoint help; before 'GPU KV cache "
    "size', fewer tokens a step; after it, a lower gpu_memory_utilization"
)
_CUT = "the log does not show the failure before the shutdown"


def judge(case: Case) -> Outcome:
    """Is exhausted GPU memory the first fault?"""
    oom = exhausted(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    outside = bool(oom.fault.ids & _OUTSIDE) and oom.torch is None
    alone = tenants(case, oom.torch) is None
    stood = alone and _cache_stood(case, oom)
    if stood:
        return _on_top(case, oom, outside=outside, stood=True)
    if refused_by_far(oom.torch):
        return _refused(case, oom)
    if alone and in_model(oom):
        return _in_forward(case, oom, outside=outside)
    if outside:
        return _on_top(case, oom, outside=True, stood=False)
    if refused_though_free(oom.torch) or refused_at_first(oom.torch):
        return _refused(case, oom)
    return _cut(case, oom) if oom.fault.at_end else _open(case, oom)


def _on_top(case: Case, oom: Oom, *, outside: bool, stood: bool) -> Outcome:
    """The allocation came on top of what vLLM's fraction gives to the cache, whatever step it was."""
    return _found(
        case,
        oom,
        title=_cut_title() if oom.fault.at_end else "",
        phase=_phase(oom.fault) if outside else None,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        changes=(
            *_smaller(case, oom),
            _lower(case, oom, _ON_TOP),
            fewer_tokens(case, oom.torch, measuring=False) if stood and _by_share(case, oom) else None,
            stop_others(case, _OTHERS) if outside else None,
        ),
    )


def _in_forward(case: Case, oom: Oom, *, outside: bool) -> Outcome:
    """A pass of the model asked: of the start's profile or of a step."""
    return _found(
        case,
        oom,
        title=_cut_title() if oom.fault.at_end else _IN_FORWARD,
        phase=_phase(oom.fault) if outside else None,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        changes=(
            *_smaller(case, oom),
            None if diffuses(oom) else fewer_tokens(case, oom.torch, measuring=False),
            _lower(case, oom, _IF_SERVING),
            stop_others(case, _OTHERS) if outside else None,
        ),
    )


def _refused(case: Case, oom: Oom) -> Outcome:
    """The driver said no although memory is free: a limit of the driver or of the host, no share of the card."""
    status = pool_status(oom)
    limits = of_pool(case, status) if status else of_driver(case, oom.torch)
    free = refused_though_free(oom.torch)
    return _found(
        case,
        oom,
        title=_POOL if status else _REFUSED if free else _REFUSED_FIRST,
        phase=Phase.RUNTIME_LEAK_OR_FRAGMENTATION if status else _PHASES.get(oom.fault.startup_phase),
        cause=Cause.OTHER,
        severity=Severity.BLOCKS_START if refused_by_far(oom.torch) else Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY if any(limits) else Confidence.POSSIBLE,
        changes=(
            *(lighter(case) if not status and too_large_by_name(case) is not None else ()),
            *limits,
            *_smaller(case, oom),
            stop_others(case, _OTHERS) if refused_at_first(oom.torch) else None,
        ),
        then="" if status else _WHO_REFUSES if free else _WHO_HOLDS,
    )


def _cut(case: Case, oom: Oom) -> Outcome:
    """The line is of the shutdown: what failed before it is not in the log."""
    return _found(
        case,
        oom,
        title=_cut_title(),
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.POSSIBLE,
        changes=(*_smaller(case, oom), _lower(case, oom, _ON_TOP)),
    )


def _open(case: Case, oom: Oom) -> Outcome:
    """No line tells the step: each change comes with its condition, for the reader knows how far the server was."""
    compiling = "device-oom-xla-total" in oom.fault.ids  # the list of a program, which a step is
    loading = platform(case) in _COMPILED_BEFORE and not oom.run.served() and not compiling
    starting = loading or fails_in_start(oom)
    by_share = _by_share(case, oom)
    return _found(
        case,
        oom,
        title=_IN_START if starting else "",
        detail=_BY_STEP,
        phase=Phase.STARTUP_WEIGHTS if loading else Phase.STARTUP_PROFILE if starting else None,
        cause=Cause.WEIGHTS_EXCEED_VRAM if loading else None,
        severity=Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        changes=(
            *_smaller(case, oom),
            *(lighter(case) if loading and by_share else ()),
            None if _lacks_much(oom.torch) else _lower(case, oom, _IF_CACHE if starting else _IF_SERVING),
            fewer_tokens(case, oom.torch, measuring=False) if by_share else None,
        ),
    )


def _found(
    case: Case,
    oom: Oom,
    *,
    title: str,
    severity: Severity,
    confidence: Confidence,
    changes: tuple[Change | None, ...],
    phase: Phase | None = None,
    cause: Cause | None = None,
    detail: str = "",
    then: str = "",
) -> Outcome:
    """What all of them show: the line, its sums, and where the step stands."""
    return finding(
        RULE,
        title=title,
        detail=detail,
        phase=phase,
        cause=cause,
        severity=severity,
        confidence=confidence,
        changes=changes,
        evidence=(case.line(_decisive(oom.fault)),),
        arithmetic=sums(oom.torch),
        refute="the lines before the error show in which phase of the start it happened",
        then=then,
    )


def _cut_title() -> str:
    return f"{RULE.title}: {_CUT}"


def _smaller(case: Case, oom: Oom) -> tuple[Change | None, ...]:
    """What takes less whichever step it was: a pool of one's own, a diffusion model's passes."""
    return (*smaller_own_pool(case), *(fit(case, oom) if diffuses(oom) else ()))


def _lower(case: Case, oom: Oom, condition: str) -> Change | None:
    return None if diffuses(oom) else lower_utilization(case, oom.torch, condition)


def _by_share(case: Case, oom: Oom) -> bool:
    return sizes_by_share(case) and not diffuses(oom)


def _cache_stood(case: Case, oom: Oom) -> bool:
    """Had the KV cache its part? torch names the pools of graphs that were captured, which is after it."""
    graphs = oom.torch is not None and bool(oom.torch.private_pools)
    return graphs or _builds_metadata(oom.fault) or full_to_budget(case, oom.torch)


def _lacks_much(torch: TorchOom | None) -> bool:
    """Is a quarter of the card missing? A fraction lower by that much holds no model that took the others."""
    return (
        torch is not None
        and torch.total is not None
        and torch.free is not None
        and torch.asked - torch.free > torch.total // 4
    )


def _builds_metadata(fault: Fault) -> bool:
    """Were metadata of attention built? The profile run has none: whatever step it was, the KV cache stood."""
    return bool(fault.files) and says(fault.files[-1], "call-of-metadata")


def _decisive(fault: Fault) -> int:
    """The line that says that memory ran out: NCCL writes that below its own."""
    return next((hit.index for hit in fault.hits if hit.id in EXHAUSTED), fault.hits[0].index)


def _phase(fault: Fault) -> Phase | None:
    if fault.at_end:
        return Phase.NCCL_OR_MULTIGPU
    return Phase.RUNTIME_LEAK_OR_FRAGMENTATION if "cumem-oom" in fault.ids else None


RULE = rule("VD208", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
