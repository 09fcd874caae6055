"""Where a server's GPU memory went: each term as the log, /metrics and NVML tell it, beside the plan."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from vllm_doctor.knowledge import serving
from vllm_doctor.records.finding import GpuHolders, MemoryTerm, MemoryUse
from vllm_doctor.records.host import Gpu, GpuProcess
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.foresight import planned, why_unplanned
from vllm_doctor.rules.gates.kv_cache import POOL, on_cpu

if TYPE_CHECKING:
    from vllm_doctor.plan.prediction.record import Prediction
    from vllm_doctor.plan.question.ask import Foresight

_DEBUG = "not seen: this release logs it at VLLM_LOGGING_LEVEL=DEBUG alone"
_NO_LOG = "not seen: no log of this start was read"
_NO_START = "not seen: the log that was read does not have it"
# Two figures of two decimals each, and what the driver rounds.
_SLACK = 0.1
_Said = tuple[float, str] | None
_Rank = Literal["largest", "smallest"]  # of several ranks


def memory_use(case: Case, unit: str | None, place: str | None) -> MemoryUse | None:
    """None where no GPU is in use, or nothing of it was measured."""
    if on_cpu(case):
        return None
    foresight = planned(case)
    plan = foresight.now if foresight is not None else None
    kept = _kept(foresight)
    held = _holders(case, unit, place)
    weights = _logged(case, (("weights-took", "size"), ("profile-breakdown", "weights")))
    outside = _outside(case, weights)
    active = _logged(case, (("memory-breakdown", "activation"), ("profile-breakdown", "activation")))
    graphs = _graphs(case)
    logged_pool, pool = _logged(case, POOL, "smallest"), _pool(case, plan)
    terms = [
        _term(case, "weights", weights, plan.weights_gib if plan else None),
        _term(case, "memory outside torch", outside, plan.non_torch_gib if plan else None, _DEBUG),
        _term(case, "activation peak", active, plan.activation_gib if plan else None, _DEBUG),
        *_both(case, plan, weights, logged_pool, seen=outside is not None and active is not None),
        _term(case, "CUDA graphs", graphs, plan.cudagraph_gib if plan else None),
        _term(case, "KV cache", pool, plan.available_kv_gib if plan else None),
        *_in_use(case, pool),
        _rest(kept if outside is None else _less(kept, plan), held, outside, weights, graphs, pool),
    ]
    if all(term.measured is None for term in terms) and not held:
        return None
    return MemoryUse(tuple(terms), held, "" if plan is not None else why_unplanned(case))


def _term(case: Case, name: str, said: _Said, wanted: float | None, unseen: str = _NO_START) -> MemoryTerm:
    measured, source = said if said is not None else (None, unseen if case.run is not None else _NO_LOG)
    return MemoryTerm(name, _round(measured), _round(wanted), source)


def _logged(case: Case, wordings: Iterable[tuple[str, str]], which: _Rank = "largest") -> _Said:
    """The figure of the first message that has it: of several ranks' last ones the largest, or the smallest."""
    run = case.run
    if run is None:
        return None
    for message, field in wordings:
        by_rank = {run.lines[h.index].process: float(h.fields[field]) for h in run.all(message) if h.fields.get(field)}
        if by_rank:
            of = f", the {which} of {len(by_rank)} ranks" if len(by_rank) > 1 else ""
            return (max if which == "largest" else min)(by_rank.values()), f"the log{of}"
    return None


def _outside(case: Case, weights: _Said) -> _Said:
    """As it is logged, or what a newer release logs together with the weights, less these."""
    said = _logged(case, (("memory-breakdown", "non_torch"), ("profile-breakdown", "non_torch")))
    together = _logged(case, (("memory-breakdown", "weights"),))
    if said is not None or together is None or weights is None:
        return said
    return max(0.0, together[0] - weights[0]), "the log: weights and memory outside torch, less the weights"


def _graphs(case: Case) -> _Said:
    said = _logged(case, (("graphs-took", "size"), ("graphs-pool", "actual")))
    if said is None and case.effective("enforce-eager") in {True, "True"}:
        return 0.0, "--enforce-eager"
    return said


def _pool(case: Case, plan: "Prediction | None") -> _Said:
    """As it is logged; else the blocks that /metrics tells, each of the planned size."""
    said, metrics = _logged(case, POOL, "smallest"), case.metrics
    if said is not None or metrics is None or plan is None or plan.pool is None:
        return said
    blocks = serving.count_of_label(serving.cache_config(metrics.scrapes[-1]).get("num_gpu_blocks"))
    if not blocks:
        return None
    size = blocks * plan.pool.block_bytes / GIB
    return size, f"/metrics: {blocks} blocks, of {plan.pool.block_bytes / (1 << 20):.2f} MiB as planned"


def _both(case: Case, plan: "Prediction | None", weights: _Said, pool: _Said, *, seen: bool) -> Iterable[MemoryTerm]:
    """What the budget leaves for both terms that are not logged each by itself."""
    total = plan.total_gib if plan is not None else case.total_gib
    own_size = case.effective("kv-cache-memory-bytes") or case.effective("kv-cache-memory")
    if seen or total is None or weights is None or pool is None or own_size or not case.budgeted:
        return
    estimate = _logged(case, (("graphs-estimate", "size"),))
    charged = estimate[0] if estimate is not None and plan is not None and plan.settings.estimate_graphs else 0.0
    left = case.utilization[0] * total - weights[0] - pool[0] - charged
    less = "weights, graphs and KV cache" if charged else "weights and KV cache"
    wanted = plan.non_torch_gib + plan.activation_gib if plan is not None and plan.non_torch_gib is not None else None
    yield MemoryTerm("both of these together", _round(left), _round(wanted), f"the budget less {less}")


def _in_use(case: Case, pool: _Said) -> Iterable[MemoryTerm]:
    metrics = case.metrics
    used = serving.highest(metrics.scrapes[-1], serving.KV_USE) if metrics is not None else None
    if used is None:
        yield MemoryTerm("KV cache in use now", None, None, "not seen: no /metrics were read")
    elif pool is not None:
        yield MemoryTerm("KV cache in use now", _round(used * pool[0]), None, f"/metrics: {used:.1%} of it")


def _rest(most: float | None, held: tuple[GpuHolders, ...], outside: _Said, *stays: _Said) -> MemoryTerm:
    """What the server's processes hold beyond the terms that stay: contexts, and what torch keeps for its steps."""
    name = "contexts, and what torch keeps"
    own = max((gpu.own for gpu in held if gpu.own is not None), default=None)
    if own is None:
        return MemoryTerm(name, None, most, "not seen: NVML tells no memory of this server's processes")
    if any(said is None for said in stays):
        return MemoryTerm(name, None, most, "not seen: a term above is not")
    rest = own - sum(said[0] for said in (*stays, outside) if said is not None)
    if rest < -_SLACK:
        why = "not seen: NVML tells less than the terms above; the server sleeps, or not all its processes are listed"
        return MemoryTerm(name, None, most, why)
    return MemoryTerm(name, _round(max(0.0, rest)), most, "NVML by process, less the terms above; planned is the most")


def _kept(foresight: "Foresight | None") -> float | None:
    """The most that is planned beside weights, graphs and KV cache: contexts, what lies outside torch, and the whole
    peak of activations, which torch keeps after a widest step."""
    plan = foresight.now if foresight is not None else None
    if foresight is None or plan is None or plan.non_torch_gib is None:
        return None
    from vllm_doctor.plan.prediction.before_start import held_before_start

    context = held_before_start(plan.settings, foresight.planner.gpu)
    return round(context + plan.non_torch_gib + plan.activation_gib, 2)


def _less(kept: float | None, plan: "Prediction | None") -> float | None:
    """The same where what lies outside torch is a term of its own."""
    return kept if kept is None or plan is None or plan.non_torch_gib is None else round(kept - plan.non_torch_gib, 2)


def _holders(case: Case, unit: str | None, place: str | None) -> tuple[GpuHolders, ...]:
    """The GPUs that the server's processes are on; all of them where none is known to be."""
    gpus = case.gpus or ()
    machine = case.machine
    of_place = {p.pid for p in machine.processes} if machine is not None and place is not None else set()

    def ours(process: GpuProcess) -> bool:
        return process.pid in of_place or (unit is not None and process.unit == unit)

    told = [(gpu, [p for p in gpu.processes if ours(p)]) for gpu in gpus]
    mine = [(gpu, own) for gpu, own in told if own] or told
    return tuple(_holder(gpu, own) for gpu, own in mine if gpu.total_bytes is not None and gpu.free_bytes is not None)


def _holder(gpu: Gpu, own: list[GpuProcess]) -> GpuHolders:
    others = [p for p in gpu.processes if p not in own]
    return GpuHolders(
        str(gpu.index), _gib(gpu.cuda_bytes), _sum(own) if own else None, _sum(others), _gib(gpu.free_bytes)
    )


def _sum(processes: list[GpuProcess]) -> float | None:
    """None if one of them is not told: an unknown is not 0."""
    sizes = [p.used_bytes for p in processes if p.used_bytes is not None]
    return _gib(sum(sizes)) if len(sizes) == len(processes) else None


def _gib(size: int | None) -> float | None:
    return None if size is None else round(size / GIB, 2)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
