"""VD208: memory of the GPU ran out, and the log does not tell in which step."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.torch_oom import TorchOom
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


def judge(case: Case) -> Outcome:
    """Is exhausted GPU memory the first fault?"""
    oom = exhausted(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    outside = bool(oom.fault.ids & _OUTSIDE) and oom.torch is None
    # torch names the pools of graphs that were captured: by then the KV cache has its part.
    graphs = oom.torch is not None and bool(oom.torch.private_pools)
    stood = graphs or _builds_metadata(oom.fault) or full_to_budget(case, oom.torch)
    after_kv = stood and tenants(case, oom.torch) is None
    forward = in_model(oom) and not after_kv and tenants(case, oom.torch) is None
    by_far = refused_by_far(oom.torch) and not (outside or after_kv)
    forward = forward and not by_far
    placed = outside or after_kv or forward
    refused = by_far or ((refused_though_free(oom.torch) or refused_at_first(oom.torch)) and not placed)
    status = pool_status(oom) if refused else None
    limits = of_pool(case, status) if status else of_driver(case, oom.torch) if refused else ()
    # Each with its condition: the reader knows whether the server had been ready.
    open_ = not (placed or refused or oom.fault.at_end)
    by_share = sizes_by_share(case) and not diffuses(oom)
    compiling = "device-oom-xla-total" in oom.fault.ids  # the list of a program, which a step is
    loading = open_ and platform(case) in _COMPILED_BEFORE and not oom.run.served() and not compiling
    starting = open_ and (fails_in_start(oom) or loading)
    return finding(
        RULE,
        title=_POOL if status else _IN_START if starting else _title(oom, forward=forward, refused=refused),
        detail=_BY_STEP if open_ else "",
        phase=Phase.STARTUP_WEIGHTS
        if loading
        else Phase.STARTUP_PROFILE
        if starting
        else Phase.RUNTIME_LEAK_OR_FRAGMENTATION
        if status
        else _phase(oom.fault)
        if outside
        else _PHASES.get(oom.fault.startup_phase)
        if refused
        else None,
        cause=Cause.OTHER
        if refused
        else Cause.WEIGHTS_EXCEED_VRAM
        if loading
        else None,  # a limit of the driver or of the host: no share of the card is too high
        severity=Severity.BLOCKS_START if open_ or by_far else Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY if placed or open_ or any(limits) else Confidence.POSSIBLE,
        changes=(
            *(lighter(case) if refused and not status and too_large_by_name(case) is not None else ()),
            *limits,
            *smaller_own_pool(case),
            *(fit(case, oom) if diffuses(oom) else ()),
            *(lighter(case) if loading and by_share else ()),
            fewer_tokens(case, oom.torch, measuring=False) if forward and not diffuses(oom) else None,
            lower_utilization(case, oom.torch, _IF_CACHE if starting else _IF_SERVING if forward or open_ else _ON_TOP)
            if not (open_ and _lacks_much(oom.torch)) and not refused and not diffuses(oom)
            else None,
            fewer_tokens(case, oom.torch, measuring=False) if (after_kv or open_) and by_share else None,
            stop_others(case, "memory of another process is not available to this service")
            if outside or (refused and refused_at_first(oom.torch))
            else None,
        ),
        evidence=(case.line(_decisive(oom.fault)),),
        arithmetic=sums(oom.torch),
        refute="the lines before the error show in which phase of the start it happened",
        then=_who_refuses(oom) if refused and not status else "",
    )


def _title(oom: Oom, *, forward: bool, refused: bool) -> str:
    """The problem where more is known than the rule's title says; else nothing, and that title stands."""
    if refused:
        return _REFUSED if refused_though_free(oom.torch) else _REFUSED_FIRST
    if oom.fault.at_end:
        return f"{RULE.title}: the log does not show the failure before the shutdown"
    return _IN_FORWARD if forward else ""


def _who_refuses(oom: Oom) -> str:
    return _WHO_REFUSES if refused_though_free(oom.torch) else _WHO_HOLDS


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
