"""One card's memory as far as the log shows it: what each answer about memory is held against."""

import msgspec

from vllm_doctor.records.verdict import Cause
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.kv_cache import left_over, too_small


class Ledger(msgspec.Struct, frozen=True):
    """GiB of one GPU, each None where the log does not tell it.

    `budget` is what vLLM may use, `peak` what the profile run took beside the `weights`, `graphs` what their capture is
    estimated at, `pool` what was left for the KV cache (below zero: nothing), and `missing` by how much the failure
    fell short.
    """

    total: float | None = None
    budget: float | None = None
    weights: float | None = None
    peak: float | None = None
    graphs: float | None = None
    pool: float | None = None
    missing: float | None = None


def ledger(case: Case, cause: Cause) -> Ledger:
    """The sheet for an answer that names this cause."""
    run, total = case.run, case.total_gib
    if run is None:
        return Ledger()
    pool = left_over(case)
    peak = run.number("profile-breakdown", "activation")
    peak = peak if peak is not None else run.number("memory-breakdown", "activation")
    budget = case.utilization[0] * total if total is not None and case.budgeted else None
    graphs = run.number("graphs-estimate", "size")
    return Ledger(total, budget, case.weights_gib, peak, graphs, pool, _missing(case, cause, pool))


def _missing(case: Case, cause: Cause, pool: float | None) -> float | None:
    small = too_small(case)
    if small is not None and small.need is not None and small.have is not None:
        return round(small.need - small.have, 2)
    if cause in {Cause.NO_KV_BLOCKS, Cause.UTILIZATION_TOO_LOW}:
        return -pool if pool is not None and pool <= 0 else None
    torch = case.run.oom if case.run is not None else None
    if torch is not None and torch.free is not None and torch.asked > torch.free:
        return (torch.asked - torch.free) / GIB
    return None
