"""VD105: an allocation failed, and another process holds the memory that would have served it."""

import math

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_step import TENANT
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.kv_cache import charges_others
from vllm_doctor.rules.gates.out_of_memory import Oom, beyond_weights, exhausted, has_words, most_bytes, sums, tenants
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.remedies.own_pool import sizes_by_share
from vllm_doctor.rules.remedies.utilization import SPARE_GIB, lower_utilization, raise_utilization
from vllm_doctor.rules.say import finding, gib, set_flag, thing

# More of the pool may follow, or the step is not known.
_NOT_WHOLE = frozenset({StartupPhase.KV, StartupPhase.CONFIG})
# Of a smaller share nobody means to serve a model that had begun with the usual one.
_LEAST_SHARE = 0.3
_IF_THEY_STAY = "if the other processes must stay"
# What the fraction does not bound: it is applied when the KV cache is sized.
_BEFORE_KV = frozenset({StartupPhase.DEVICE, StartupPhase.WEIGHTS, StartupPhase.PROFILE, StartupPhase.PROFILE_ENCODER})

_SHARE = (
    "If the other process is a vLLM server that must stay, start it again with a lower --gpu-memory-utilization: "
    "the value is a part of the whole card, so the values of all servers on the card must add up to less than 1"
)
_MOST = 0.8
# What a process of vLLM holds outside torch on a card at most, and the least KV cache that is worth a start, GiB.
_OWN_MOST, _USEFUL = 3.0, 1.0


def judge(case: Case) -> Outcome:
    """Does torch's own message show that others hold a large part of the card?"""
    oom = exhausted(case)
    if isinstance(oom, NotHere | Unseen):
        return _counted_in(case) or oom
    if _told_of_another(oom):
        return _as_told(case, oom)
    if oom.torch is None:
        return Clear("the message does not say who holds the memory")
    held = tenants(case, oom.torch)
    if held is None and (excess := beyond_weights(case, oom)) is not None:
        return _in_this_process(case, oom, *excess)
    if held is None:
        return Clear("this process itself holds nearly all of the GPU's memory")
    total = oom.torch.total or 0
    mine = total - (oom.torch.free or 0) - held
    return finding(
        RULE,
        title=(
            f"Other processes hold {held / GIB:.2f} of {total / GIB:.2f} GiB of GPU "
            f"{oom.torch.gpu if oom.torch.gpu is not None else '?'}; this engine held {mine / GIB:.2f}"
        ),
        severity=Severity.WILL_FAIL_UNDER_LOAD if oom.run.up_at(oom.fault) else Severity.BLOCKS_START,
        # More weights may follow than the others leave, where this engine holds most of the card already.
        confidence=Confidence.LIKELY
        if oom.fault.startup_phase is StartupPhase.WEIGHTS and mine > total * _MOST
        else Confidence.CONFIRMED,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(
            gib("held by others", held / GIB, "total − free − this process", "torch's message"),
            *sums(oom.torch),
        ),
        changes=(
            stop_others(
                case,
                f"stop the other processes: that frees {held / GIB:.2f} GiB; "
                f"the allocation needed {oom.torch.asked / GIB:.2f}",
            ),
            _smaller(case, oom, total, held)
            if oom.fault.startup_phase not in _BEFORE_KV or oom.run.up_at(oom.fault)
            else None,
        ),
        refute="the processes that torch lists are ranks of this same engine",
        then=_SHARE,
    )


def _told_of_another(oom: Oom) -> bool:
    """Does a person say that something else was on the card, beside a message that does not say who holds it?"""
    silent = oom.torch is None or not oom.torch.tells_whose
    return silent and has_words(oom, TENANT)


def _as_told(case: Case, oom: Oom) -> Finding:
    return finding(
        RULE,
        title="Something else was on the GPU before, as the text says",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        changes=(stop_others(case, "memory of another process is not available to this service"),),
        refute=f"{maker_tool(case).name} shows an empty card before the start, and it fails all the same",
        then=_SHARE,
    )


def _smaller(case: Case, oom: Oom, total: int, held: int) -> Change | None:
    """A smaller pool: within what the others leave, or by what was missing where the pool is whole already."""
    if oom.fault.startup_phase in _NOT_WHOLE and not charges_others(case):
        return _beside(case, total, held)
    return lower_utilization(case, oom.torch, f"{_IF_THEY_STAY}, shrink the KV cache by the memory that they need")


def _beside(case: Case, total: int, held: int) -> Change | None:
    """A budget within what the others leave: while the KV cache is made, or where the step is not known, more of it may
    follow than the piece that was refused. None where the weights, or any model, would not fit it."""
    if not total or not sizes_by_share(case):
        return None
    to = math.floor((total - held - SPARE_GIB * GIB) / total * 100) / 100
    budget = to * total / GIB
    if to < _LEAST_SHARE or to >= case.utilization[0] or budget <= (case.weights_gib or 0.0):
        return None
    formula = f"({total / GIB:.2f} − {held / GIB:.2f} − {SPARE_GIB}) / {total / GIB:.2f}"
    why = f"{_IF_THEY_STAY}, the whole budget must fit beside them: {formula}"
    predicted = {"budget_gib": round(budget, 2)}
    return set_flag(case, "gpu-memory-utilization", to, Direction.LOWER, why, predicted=predicted)


def _counted_in(case: Case) -> Finding | Clear | None:
    """V0 0.6.4 takes all that is used on the card and not torch's own for memory of this process, and charges it."""
    run, root = case.run, case.root
    results = run.last("profile-results") if run is not None else None
    if results is None or root is None or "no-kv-blocks" not in root.ids:
        return None
    outside = float(results.fields["outside"])
    if outside <= _OWN_MOST:
        return Clear(f"{outside:.2f} GiB are used outside torch, as much as one process takes")
    return finding(
        RULE,
        title=f"Other processes hold GPU memory: {outside:.2f} GiB are used outside torch",
        confidence=Confidence.LIKELY,
        evidence=(case.line(results.index), case.line(root.hits[0].index)),
        arithmetic=(
            gib("used, and not torch's", outside, "non_torch_memory", "the log"),
            gib("of one process at most", _OWN_MOST, "driver context, libraries, NCCL", "measured starts"),
            gib("left for the KV cache", float(results.fields["kv"]), "budget − torch's peak − the rest", "the log"),
        ),
        changes=(
            stop_others(
                case, f"this release charges them to its own budget: about {outside - _OWN_MOST:.0f} GiB or more"
            ),
            raise_utilization(case, _USEFUL - float(results.fields["kv"])),
        ),
        refute=f"{maker_tool(case).name} shows no other process on this GPU",
    )


def _in_this_process(case: Case, oom: Oom, held: float, most: float) -> Finding:
    """Another engine or model lies in the memory of the very process that loads this one."""
    return finding(
        RULE,
        title=f"This process held {held:.2f} GiB while it loaded a model of at most {most:.2f}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(
            gib(
                "the most of its weights",
                most,
                f"parameters in the model's name × {most_bytes(case, oom)} B",
                "the name",
            ),
            *sums(oom.torch),
        ),
        changes=(
            thing(
                ChangeKind.OS,
                "old-process",
                Direction.STOP,
                "an engine or model that the same process made before is still on the GPU: deleting the "
                "object does not free all of the memory; ending the process does: make each engine in a "
                "separate process",
                command=maker_tool(case).holders,
            ),
        ),
        refute="the checkpoint has more parameters than its name says",
    )


RULE = rule("VD105", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
