"""Every change is tried on the ledger before it is shown, whichever rule offers it.

A change falls away where this platform has no such thing, where it does not go the way that it says, or where what it
frees is next to nothing. Where it frees less than is missing it says so and stands last. Of two changes of one option
the one of the root cause stays.
"""

from collections.abc import Sequence

import msgspec

from vllm_doctor.records.finding import Change, Finding, Scalar
from vllm_doctor.records.verdict import ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import compiles_programs, platform
from vllm_doctor.rules.gates.kv_cache import cpu_by_share, on_cpu, serves_nobody, too_small
from vllm_doctor.rules.gates.unified import shares_memory
from vllm_doctor.rules.ledger import Ledger, ledger
from vllm_doctor.rules.remedies.step import sequences

# What frees less than this of what is missing, or of the card, or so few GiB, is no answer to it.
_WORTH, _TRIVIAL, _LITTLE = 0.1, 0.01, 0.25
# Weights of fewer GiB are not what fills a card.
_SMALL_WEIGHTS = 1.0
# Elements of one byte instead of two, with the layers that stay as they are.
_HALVED = 0.45
# The smallest value that a release has where nothing is set: going down to it, or to more, may go up.
_SMALLEST_DEFAULT = {"max-num-batched-tokens": 512}
# Options of memory that only a GPU has, and those that need memory of the host mapped into a GPU.
_EAGER = "enforce-eager"
_OF_A_GPU = frozenset({"gpu-memory-utilization", _EAGER, "cpu-offload-gb", "swap-space"})
# The variable that sizes the KV cache of the CPU build alone.
_OF_THE_CPU = "VLLM_CPU_KVCACHE_SPACE"
# Options of CUDA graphs, and of what is compiled beside them.
_OF_GRAPHS = frozenset({"max-cudagraph-capture-size", "cudagraph-capture-sizes", "cuda-graph-sizes", _EAGER})
_MAPPED = frozenset({"cpu-offload-gb"})
_MAPS = frozenset({"cuda", "rocm"})
# Platforms whose code quantizes nothing to FP8 while it loads.
_NO_FP8 = frozenset({"npu", "tpu", "neuron", "hpu", "mps"})


def tried(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with the changes that stand the tests, those that suffice first."""
    kept: dict[tuple[ChangeKind, str], Change] = {}
    return [_finding(case, one, kept) if one.changes else one for one in findings]


def _finding(case: Case, one: Finding, kept: dict[tuple[ChangeKind, str], Change]) -> Finding:
    sheet = ledger(case, one.cause)
    enough: list[Change] = []
    short: list[Change] = []
    then = one.next
    for change in one.changes:
        if not _possible(case, change, one.phase) or not _agrees(change, kept) or _leaves_nothing(case, sheet, change):
            continue
        if _too_few(case, change):
            then = then or _where_it_went(sheet)
            continue
        freed = _freed(case, sheet, change) if change.kind is ChangeKind.FLAG else None
        if freed is not None and freed < max(_TRIVIAL * (sheet.total or 0), _LITTLE) and freed < (sheet.missing or 1):
            continue
        if freed is None or sheet.missing is None or freed >= sheet.missing:
            enough.append(change)
        elif freed > _WORTH * sheet.missing:
            told = f"; alone it is not enough: it frees {freed:.2f} of the {sheet.missing:.2f} GiB that are missing"
            short.append(msgspec.structs.replace(change, why=change.why + told))
    found = (*enough, *short)
    for change in found:
        kept.setdefault((change.kind, change.name), change)
    return one if found == one.changes and then == one.next else msgspec.structs.replace(one, changes=found, next=then)


def _possible(case: Case, change: Change, phase: Phase) -> bool:
    """Has this platform what is to be changed, and does the value go the way that it says?"""
    device = platform(case)
    if change.name == _OF_THE_CPU:
        return on_cpu(case) or not (case.gpu_name or device not in {None, "cpu"})
    if change.kind is not ChangeKind.FLAG or change.direction is Direction.REMOVE:
        return True
    run = case.run
    if change.name in _OF_A_GPU and (device == "cpu" or on_cpu(case)):
        if change.name == _EAGER and phase is Phase.NOT_MEMORY:
            return True  # without it the CPU's platform compiles the model, too (platforms/cpu.py)
        return change.name == "gpu-memory-utilization" and cpu_by_share(case)
    if change.name in _OF_GRAPHS and compiles_programs(case):
        return False
    if change.name in _MAPPED and device is not None and device not in _MAPS:
        return False
    if change.name == "quantization" and change.direction is Direction.ADD and device in _NO_FP8:
        return False
    if change.name in _MAPPED and change.direction is not Direction.LOWER and shares_memory(case):
        return False  # the host's memory is the card's
    if change.name in _MAPPED and run is not None and run.first("not-pinned") is not None:
        return False
    if change.before is None and case.version is None and change.direction is Direction.LOWER:
        least, to = _least(case, change.name), _number(change.after)
        if to == 0:
            return True  # nothing is less
        return least is None or to is None or to < least or (to == least and change.name in _SMALLEST_DEFAULT)
    return True


def _least(case: Case, name: str) -> int | None:
    """The least that the option may be set to now."""
    return sequences(case)[0] if name == "max-num-seqs" else _SMALLEST_DEFAULT.get(name)


def _agrees(change: Change, kept: dict[tuple[ChangeKind, str], Change]) -> bool:
    """Is it what a finding above says of the same option, or the first word on it?"""
    before = kept.get((change.kind, change.name))
    if before is None or change.kind is not ChangeKind.FLAG:
        return True
    return (before.after, before.by) == (change.after, change.by) or before.after is None


def _leaves_nothing(case: Case, sheet: Ledger, change: Change) -> bool:
    """Would nothing be left for the KV cache, or is a smaller checkpoint asked for than the one that fits?"""
    to = _number(change.after)
    if change.direction is Direction.SMALLER:
        most = change.predicted.get("weights_gib_at_most")
        small = sheet.weights is not None and sheet.weights < _SMALL_WEIGHTS
        return small or (sheet.weights is not None and isinstance(most, float) and sheet.weights <= most)
    if change.name != "gpu-memory-utilization" or change.direction is not Direction.LOWER or to is None:
        return False
    if sheet.pool is None or sheet.pool <= 0 or sheet.total is None:
        return False
    return sheet.pool <= (case.utilization[0] - to) * sheet.total


def _too_few(case: Case, change: Change) -> bool:
    to, small = _number(change.after), too_small(case)
    now = _number(change.before) or case.number("max-model-len") or (small.length if small is not None else None)
    return change.name == "max-model-len" and to is not None and serves_nobody(to, now)


def _where_it_went(sheet: Ledger) -> str:
    parts = (("weights", sheet.weights), ("the profile run", sheet.peak), ("graphs", sheet.graphs))
    told = ", ".join(f"{name} {size:.2f}" for name, size in parts if size is not None)
    whole = f" of the {sheet.budget:.2f} GiB of the budget" if sheet.budget is not None else ""
    return f"So few tokens serve nobody: see first where the memory{whole} went" + (f" (GiB: {told})" if told else "")


def _freed(case: Case, sheet: Ledger, change: Change) -> float | None:
    """GiB that it frees at most, of what is short; None where nothing tells."""
    now, to = _number(change.before), _number(change.after)
    match change.name:
        case "quantization" if change.direction is Direction.ADD:
            return sheet.weights * _HALVED if sheet.weights is not None else None
        case "max-num-seqs" | "max-num-batched-tokens" if sheet.pool is not None and sheet.pool <= 0:
            return _part(sheet.peak, now, to)
        case "enforce-eager" if sheet.pool is not None and sheet.pool <= 0:
            return sheet.graphs
        case "tensor-parallel-size":
            split = _number(change.before) or case.count("tensor-parallel-size") or 1
            return sheet.weights * (1 - split / to) if sheet.weights is not None and to else None
        case "gpu-memory-utilization" if to is not None and sheet.total is not None:
            return abs(to - case.utilization[0]) * sheet.total
        case "cpu-offload-gb" if change.direction is Direction.RAISE:
            return to
        case _:
            return None


def _part(peak: float | None, now: float | None, to: float | None) -> float | None:
    return peak * (1 - to / now) if peak is not None and now and to is not None else None


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
