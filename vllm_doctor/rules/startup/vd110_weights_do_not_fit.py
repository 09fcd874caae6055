"""VD110: the weights do not fit the card."""

import math

from vllm_doctor.knowledge.versions import HIGHEST_UTILIZATION, USUAL_UTILIZATION
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.deaths import START_FAILED
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.out_of_memory import (
    Oom,
    beyond_weights,
    engines_made,
    exhausted,
    held_by_arguments,
    sums,
    tenants,
    told_whose,
)
from vllm_doctor.rules.gates.profile_run import in_adapters, in_pass, too_large_by_name
from vllm_doctor.rules.gates.sleep import wakes
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.diffusion import diffuses, offload
from vllm_doctor.rules.remedies.refused_memory import memory_of_wsl
from vllm_doctor.rules.remedies.weights import lighter, weights_that_fit, whole_weights
from vllm_doctor.rules.say import finding, gib, set_flag

# Graphs and run-time buffers go a little beyond the budget; this is more than they do.
_OVER = 1.1
# So much of the card is torch's and so little of that unused only while tensors are made that stay; a pass or a step
# leaves what it freed. Buffers of a step are larger than a tensor of one layer.
_MADE, _FREED, _ONE_TENSOR = 0.94, 0.001, 0.06
# What a process holds that fills a card with weights: the last tensor and contexts take the rest.
_MOSTLY = 0.8
# Devices whose memory is not mapped from the host: vLLM's offload of weights needs CUDA or ROCm.
_NO_OFFLOAD = frozenset({"device-oom-xla", "device-oom-neuron", "device-oom-habana"})


# The kernel of WSL says that Windows did not back memory of the GPU, whatever the card has.
_BY_WINDOWS = "device-oom-dxg"

# Of what is offloaded already, where nothing says how much lay on the card.
_QUARTER = 0.25


def judge(case: Case) -> Outcome:
    """Did memory run out while weights were built, loaded or rearranged?"""
    oom = exhausted(case, StartupPhase.WEIGHTS, StartupPhase.CONFIG, StartupPhase.GRAPHS)
    if isinstance(oom, NotHere | Unseen):
        return oom
    if oom.fault.startup_phase is StartupPhase.GRAPHS and not held_by_arguments(oom):
        return NotHere("the log does not show that memory ran out while weights were loaded")
    unplaced = oom.fault.startup_phase is StartupPhase.CONFIG
    if unplaced and not (
        _over_budget(case, oom)
        or _full_at_start(oom)
        or _nothing_freed(case, oom)
        or held_by_arguments(oom)
        or _first_is_too_large(oom)
        or _larger_by_name(case, oom)
    ):
        return NotHere("the log does not show that memory ran out while weights were loaded")
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if beyond_weights(case, oom) is not None:
        return Clear("torch held far more memory than the weights of a model of this size need")
    if in_pass(oom):
        return Clear("the weights were loaded; the profile run failed")
    if in_adapters(oom):
        return Clear("the adapters' buffers did not fit, not the weights")
    if wakes(oom):
        return Clear("a sleeping engine takes its memory back")
    by_windows = _BY_WINDOWS in oom.fault.ids
    return finding(
        RULE,
        title="Windows gave WSL no GPU memory while the weights were loaded"
        if by_windows
        else "The weights do not fit on the GPU" + _how_far(oom),
        # Without figures nobody can say that it is not another process that holds the card, and of a program that makes
        # several engines not which of them does.
        confidence=Confidence.CONFIRMED
        if told_whose(oom) and not unplaced and not engines_made(oom)
        else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*sums(oom.torch), *_by_name(case), *_whole(case)),
        changes=(
            memory_of_wsl() if by_windows else None,
            _without_draft(case, oom),
            _without_sleep(case, oom),
            *lighter(case),
            set_flag(
                case,
                "cpu-offload-gb",
                _offload(case, oom),
                Direction.RAISE,
                "keeps this many GiB of weights in host memory; every step then waits for transfers over PCIe"
                + _beside_v1_runner(case),
            )
            if not oom.fault.ids & _NO_OFFLOAD and not diffuses(oom)
            else None,
            *(offload(case) if diffuses(oom) else ()),
        ),
        refute=f"{maker_tool(case).name} shows another process on this GPU while the weights load",
    )


def _how_far(oom: Oom) -> str:
    """What the message tells of it, behind the title; empty where it has no figures."""
    torch = oom.torch
    if torch is None or torch.allocated is None:
        return ""
    if _first_is_too_large(oom):
        return f": the first tensor asks for {torch.asked / GIB:.2f} GiB of {(torch.total or 0) / GIB:.2f}"
    return f": {torch.allocated / GIB:.2f} GiB of weights were loaded when the memory was full"


def _without_draft(case: Case, oom: Oom) -> Change | None:
    """The model itself was loaded; its draft no longer fitted beside it."""
    crash = oom.fault.crash
    codes = [frame.code for link in crash.links for frame in link.frames] if crash is not None else []
    if not any(says(f, "call-draft") for f in oom.fault.files) and not any(
        says(code, "code-loads-draft") for code in codes
    ):
        return None
    why = "the model was loaded, its draft model did not fit: without a draft the server starts, and decodes slower"
    named = "speculative-config" if case.has_flag("speculative-config") is not None else "speculative-model"
    return set_flag(case, named, None, Direction.REMOVE, why)


def _without_sleep(case: Case, oom: Oom) -> Change | None:
    """An engine that may sleep loads its weights into a pool of its own, out of which nothing that is freed comes back:
    a release of torch that counts no pools tells it as unused."""
    torch = oom.torch
    if case.effective("enable-sleep-mode") is not True or torch is None:
        return None
    unused = torch.unused if torch.unused is not None and torch.unused >= torch.asked else None
    kept = torch.private_pools or unused
    if not kept:
        return None
    why = f"its pool ({kept / GIB:.2f} GiB) keeps memory that only the loading needed"
    return set_flag(case, "enable-sleep-mode", None, Direction.REMOVE, why)


def _over_budget(case: Case, oom: Oom) -> bool:
    """Does torch hold clearly more than the fraction that was asked for? The KV cache is cut to fit it, so it was not
    yet there: only weights, and the pass that is measured beside them, come before it and know no fraction."""
    asked, total = case.number("gpu-memory-utilization"), case.total_gib
    if asked is None or total is None or oom.torch is None or oom.torch.allocated is None:
        return False
    return oom.torch.allocated / GIB > _OVER * asked * total


def _full_at_start(oom: Oom) -> bool:
    """A start of the V1 engine that failed with the card full of torch's own, before any graph: the KV cache is cut to
    the fraction, which nobody sets as high, so it is the weights, or at most the pass that is measured beside them."""
    torch = oom.torch
    if torch is None or torch.total is None or torch.allocated is None or torch.private_pools is not None:
        return False
    failed = any(d.id in START_FAILED and d.index >= oom.fault.index for d in oom.run.deaths)
    return failed and torch.allocated > HIGHEST_UTILIZATION * torch.total


def _nothing_freed(case: Case, oom: Oom) -> bool:
    """Is the card full of what torch made and never freed, with no graph and no request served? Passes and steps leave
    freed memory behind, and the KV cache ends at the fraction: only weights, layer by layer, fill it so."""
    torch, asked = oom.torch, case.number("gpu-memory-utilization")
    if torch is None or torch.total is None or torch.allocated is None or torch.unused is None:
        return False
    if torch.private_pools is not None or oom.run.served() or (asked is not None and asked > USUAL_UTILIZATION):
        return False
    # What others hold was never this process's to fill.
    mine = torch.total - (torch.held_by_others or 0)
    full = torch.allocated > _MADE * mine and torch.unused < _FREED * torch.total
    return full and torch.asked < _ONE_TENSOR * torch.total


def _first_is_too_large(oom: Oom) -> bool:
    """Does a process that holds nothing yet ask for more than the card has? The KV cache is cut to fit the card, and
    the pass that is measured needs the weights: only one of these can come first."""
    torch = oom.torch
    return torch is not None and torch.total is not None and torch.allocated == 0 and torch.asked > torch.total


def _larger_by_name(case: Case, oom: Oom) -> bool:
    """Are the weights, as the model's name counts them, more than the card, and did this process fill it? No step that
    comes after them was ever reached."""
    torch = oom.torch
    if too_large_by_name(case) is None or oom.run.served():
        return False
    return torch is None or torch.allocated is None or torch.total is None or torch.allocated > _MOSTLY * torch.total


def _offload(case: Case, oom: Oom) -> int:
    whole, room = whole_weights(case), weights_that_fit(case)
    least = max(10, math.ceil(whole - room)) if whole is not None and room is not None else 10
    now, torch = case.number("cpu-offload-gb"), oom.torch
    if not now:
        return least
    # More than is offloaded already: by what lay on the card, beside what fits it; more weights may have followed.
    over = (torch.allocated + torch.asked) / GIB - room if torch and torch.allocated and room else now * _QUARTER
    return max(least, math.ceil(now + max(over, 1.0)))


def _beside_v1_runner(case: Case) -> str:
    """What the option needs beside it where a release runs models on a runner that does not read it."""
    does = behaviour(case.version) if case.version is not None else None
    if does is None or not (does.v2_qwen3 and does.v2_keeps_weights):
        return ""
    return "; beside VLLM_USE_V2_MODEL_RUNNER=0, as this release's second model runner keeps all weights on the GPU"


def _by_name(case: Case) -> tuple[Arithmetic, ...]:
    found = too_large_by_name(case)
    if found is None:
        return ()
    return (gib("weights of one GPU", found[0], "parameters × bits, at the least", "the model's name and the launch"),)


def _whole(case: Case) -> tuple[Arithmetic, ...]:
    run = case.run
    whole = run.number("checkpoint-size", "size") if run is not None else None
    return (gib("checkpoint on disk", whole, "all files, before splitting", "the log"),) if whole is not None else ()


RULE = rule(
    "VD110", reads=frozenset({Signal.MODEL_CONFIG, Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge
)
