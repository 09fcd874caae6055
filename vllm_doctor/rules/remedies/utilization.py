"""Another `gpu_memory_utilization`: lower, higher, or what passes the check of free memory."""

import math

from vllm_doctor.knowledge import versions
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.free_memory import Shortage
from vllm_doctor.rules.gates.kv_cache import charges_others, left_over
from vllm_doctor.rules.gates.out_of_memory import refused_though_free
from vllm_doctor.rules.gates.profile_run import least_weights
from vllm_doctor.rules.remedies.own_pool import sizes_by_share
from vllm_doctor.rules.say import set_flag

# What is left free on purpose beyond what was missing, GiB: cuBLAS workspaces, allocator rounding, NCCL buffers.
SPARE_GIB = 0.5
# What other start-up steps may take before the check on the next start (a driver context is 0.3 to 0.6 GiB).
MARGIN_GIB = 0.3
# The least KV cache that is worth starting with, GiB.
_USEFUL = 1.0
# What the profile run takes beside the weights, as a part of them, where nothing measured it.
_WITH_PASS = 1.2
# GiB of a small card of those that serve, where the size of the one in use is not known.
_SMALL_CARD = 24
# The same of a large one of those that most have.
_LARGE_CARD = 80
# GiB of the smallest that serve (T4, as torch counts it).
_SMALLEST_CARD = 14.5
# A share of a card that is no half of what one engine usually takes.
_LITTLE, _HALF = 0.25, 0.5
# Where nobody knows how much is missing.
_STEP = 0.05
# A smaller budget than this, GiB, holds a model only where the launch asked for little in the first place.
SMALLEST_GIB = 8.0


def lower_utilization(case: Case, torch: TorchOom | None, why: str, *, more: float | None = None) -> Change | None:
    """A fraction that leaves what was missing, and a little more, outside vLLM's pool; None where no share sizes it.

    `more` is what had still to be allocated, the refused piece among it, in GiB: infinite where nobody knows.
    """
    if not sizes_by_share(case):
        return None
    if (pinned := case.number("kv-cache-memory-bytes")) is not None:
        return _smaller_pool(case, pinned, torch, why)
    fraction, _ = case.utilization
    total = case.total_gib
    if torch is not None and refused_though_free(torch):
        # What is free cannot be had: the pool itself must be smaller by what was asked for.
        whole = torch.asked / GIB + SPARE_GIB
        return by_share(case, whole, Direction.LOWER, why) if not case.budgeted else _lower_by(case, whole, why)
    if not case.budgeted:
        short = max((torch.asked - (torch.free or 0)) / GIB, 0) + SPARE_GIB if torch is not None else None
        return by_share(case, short, Direction.LOWER, why, more=more)
    if torch is not None and total is not None and torch.free is not None:
        known = more if more is not None and math.isfinite(more) else None
        missing = max(torch.asked / GIB, known or 0.0) - torch.free / GIB
        to = math.floor((fraction * total - missing - SPARE_GIB) / total * 100) / 100
        formula = f"({fraction:g} × {total:.2f} − {missing:.2f} − {SPARE_GIB}) / {total:.2f}"
        if more is not None and known is None and to > fraction - _STEP:
            to = round(fraction - _STEP, 2)
            formula = f"{fraction:g} − {_STEP}: the piece that was refused lacks {missing:.2f} GiB, more of them follow"
    else:
        to = round(fraction - _STEP, 2)
        untold = "size of the GPU" if torch is not None and torch.free is not None else "missing amount"
        formula = f"{fraction:g} − {_STEP}, because the log does not print the {untold}"
    if to >= fraction or to <= 0.05 or (total is not None and to * total <= (case.weights_gib or 0.0)):
        return None
    predicted = {"budget_gib": round(to * total, 2)} if total is not None else None
    return set_flag(case, "gpu-memory-utilization", to, Direction.LOWER, f"{why}: {formula}", predicted=predicted)


def _smaller_pool(case: Case, now: float, torch: TorchOom | None, why: str) -> Change | None:
    """Where the KV cache was given in bytes, the fraction sizes nothing."""
    missing = max((torch.asked - (torch.free or 0)) / GIB, 0) if torch is not None else 0.0
    to = math.floor((now / GIB - missing - SPARE_GIB) * 1024) * 2**20
    if to <= 0:
        return None
    formula = f"{now / GIB:.2f} − {missing:.2f} − {SPARE_GIB} GiB; gpu_memory_utilization does not count beside it"
    return set_flag(case, "kv-cache-memory-bytes", to, Direction.LOWER, f"{why}: {formula}")


def _larger_pool(case: Case, now: float, missing: float) -> Change | None:
    """Where the KV cache was given in bytes, the fraction adds nothing to it."""
    to = math.ceil((now / GIB + missing) * 1024) * 2**20
    if (
        case.total_gib is not None
        and to / GIB + (case.weights_gib or 0.0) > versions.HIGHEST_UTILIZATION * case.total_gib
    ):
        return None
    why = f"{now / GIB:.2f} + {missing:.2f} GiB: gpu_memory_utilization does not count beside it"
    return set_flag(case, "kv-cache-memory-bytes", to, Direction.RAISE, why)


def _lower_by(case: Case, short: float, why: str) -> Change | None:
    """A fraction lower by so many GiB of the card; None where its size is not known or nothing would be left."""
    fraction, total = case.utilization[0], case.total_gib
    to = math.floor((fraction * total - short) / total * 100) / 100 if total else 0.0
    if total is None or to <= 0.05 or to * total <= (case.weights_gib or 0.0):
        return None
    formula = f"({fraction:g} × {total:.2f} − {short - SPARE_GIB:.2f} − {SPARE_GIB}) / {total:.2f}"
    predicted = {"budget_gib": round(to * total, 2)}
    return set_flag(case, "gpu-memory-utilization", to, Direction.LOWER, f"{why}: {formula}", predicted=predicted)


def by_share(
    case: Case, size: float | None, direction: Direction, why: str, *, more: float | None = None
) -> Change | None:
    """Where the fraction in use is not known: how far to move it for `size` GiB, and what the default would become.

    `more` as in `lower_utilization`: where nobody knows how many pieces follow, one piece is no measure of them."""
    total, (default, _) = case.total_gib, case.utilization
    if case.version is None and direction is Direction.LOWER:
        default = min(default, versions.default_utilization(versions.sampled()[0]))  # which release it is, is not known
    by = max(math.ceil(size / total * 100) / 100, 0.01) if size is not None and total is not None else 0.05
    follow = more is not None and math.isinf(more) and by < _STEP
    by = _STEP if follow else by
    down = direction is Direction.LOWER
    if total is None and size is not None and size > _STEP * _LARGE_CARD:
        # That much is a different share of every card, and more than the usual step of most.
        step = f"{'lower' if down else 'higher'} by {size:.2f} GiB / the size of the GPU, which is not known here"
        return set_flag(case, "gpu-memory-utilization", None, direction, f"{why}: {step}")
    to = round(default - by if down else min(default + by, versions.HIGHEST_UTILIZATION), 2)
    if to <= 0.05:
        return None
    whole = f"of {total:.2f} GiB" if total is not None else "GiB, of a GPU whose size is not known"
    sum_ = f"{size:.2f} {whole}" if size is not None else "the log does not print the amount"
    sum_ += ", for the piece that was refused; more of them follow" if follow else ""
    # Which release it is may not be known; a value above the newest default is above every one.
    older = versions.default_utilization(versions.sampled()[0])
    named = f"{default:g}" if down or case.version is not None or older == default else f"{older:g} or {default:g}"
    step = f"{by:g} {'below' if down else 'above'} the default {named} ({sum_})"
    return set_flag(case, "gpu-memory-utilization", None, direction, f"{why}: {step}", by=by, unset=to)


def raise_utilization(case: Case, missing: float) -> Change | None:
    """A fraction that adds `missing` GiB to the budget, where the card has them; None where it has not."""
    if (pinned := case.number("kv-cache-memory-bytes")) is not None:
        return _larger_pool(case, pinned, missing)
    fraction, source = case.utilization
    total = case.total_gib
    if not case.budgeted:
        return by_share(case, missing, Direction.RAISE, f"if {maker_tool(case).name} shows that much free")
    if total is None:
        if fraction >= 0.9:
            return (
                None
                if fraction >= versions.HIGHEST_UTILIZATION
                else set_flag(
                    case,
                    "gpu-memory-utilization",
                    versions.HIGHEST_UTILIZATION,
                    Direction.RAISE,
                    (
                        f"{fraction:g} ({source}) leaves {1 - fraction:.0%} of the GPU unused; the size of the GPU is "
                        "not known here"
                    ),
                )
            )
        if (surely := _surely_enough(case, fraction, source, missing)) is not None:
            return surely
        # That nothing is left says how little the share is; while the cache is only short, the weights lie in it.
        none_left = case.root is not None and "no-kv-blocks" in case.root.ids
        weights = case.weights_gib or (least_weights(case) if none_left else None)
        if weights is not None and weights * _WITH_PASS > fraction * _SMALL_CARD:
            least = weights * _WITH_PASS + _USEFUL
            why = (
                f"{fraction:g} ({source}) of this GPU is less than the weights, {weights:.2f} GiB, and a pass "
                f"take: it must be at least {least:.1f} GiB / the GPU's size, where that much is free"
            )
            # A small model may stand on the smallest card; a larger one does not tell which card it is.
            enough = math.ceil(least / _SMALLEST_CARD * 100) / 100
            enough = enough if enough <= _HALF else 0.0
            wanted = min(versions.USUAL_UTILIZATION, max(round(3 * fraction, 2), enough))
            return set_flag(case, "gpu-memory-utilization", wanted, Direction.RAISE, why)
        if none_left and weights is not None and charges_others(case):
            why = (
                f"{fraction:g} ({source}) of {_SMALL_CARD} GiB would hold the weights, {weights:.2f} GiB, and a "
                "pass: this release counts what other processes hold, so the share is that of all together"
            )
            return set_flag(case, "gpu-memory-utilization", versions.USUAL_UTILIZATION, Direction.RAISE, why)
        # What did not hold the weights alone is doubled at the least, where it is that little.
        more = max(0.1, missing / _SMALL_CARD, fraction if none_left and fraction <= _LITTLE else 0.0)
        wanted = min(versions.USUAL_UTILIZATION, round(fraction + more, 2))
        return set_flag(
            case,
            "gpu-memory-utilization",
            wanted,
            Direction.RAISE,
            (
                f"{fraction:g} ({source}) leaves {1 - fraction:.0%} of the GPU outside the budget; use the "
                "share of the GPU that is really free"
            ),
        )
    wanted = min(versions.HIGHEST_UTILIZATION, math.ceil((fraction * total + missing) / total * 100) / 100)
    if wanted <= fraction:
        return None
    why = f"({fraction * total:.2f} + {missing:.2f}) / {total:.2f}: the budget grows by what is missing"
    return set_flag(
        case, "gpu-memory-utilization", wanted, Direction.RAISE, why, predicted={"budget_gib": round(wanted * total, 2)}
    )


def _surely_enough(case: Case, fraction: float, source: str, missing: float) -> Change | None:
    """A fraction by what the log left of the budget, on a card whose size nobody printed: it gave the weights and what
    is left at the least, so the card is at least that large, and a part of it at least so many GiB. None where that
    is more than usual, or more than a heuristic asks for."""
    left, weights = left_over(case), case.weights_gib
    if left is None or weights is None or left >= 0 or weights + left <= 0:
        return None
    budget = weights + left
    to = math.ceil((fraction + missing * fraction / budget) * 100) / 100
    if to > min(versions.USUAL_UTILIZATION, fraction + max(0.1, missing / _SMALL_CARD)):
        return None
    why = (
        f"{fraction:g} ({source}) of this GPU is at least {budget:.2f} GiB, the weights ({weights:.2f}) and what was "
        f"left ({left:.2f}): {to - fraction:.2g} more of it is at least the {missing:.2f} GiB that are missing"
    )
    return set_flag(case, "gpu-memory-utilization", to, Direction.RAISE, why)


def pass_free_memory_check(case: Case, short: Shortage) -> Change | None:
    """The largest value that passes the check as things are; None where no model and KV cache would fit the budget, or
    not this one, by the weights that it took or that its name counts."""
    fraction = math.floor((short.free + short.shared - MARGIN_GIB) / short.total * 100) / 100
    weights = case.weights_gib or least_weights(case)
    budget = fraction * short.total
    if budget < min(SMALLEST_GIB, short.want / 2) or (weights is not None and budget <= weights):
        return None
    shared = f" + {short.shared:.2f}" if short.shared else ""
    why = (
        f"({short.free:.2f}{shared} − {MARGIN_GIB}) / {short.total:.2f}, rounded down: passes the check while "
        "the other processes stay"
    )
    return set_flag(
        case,
        "gpu-memory-utilization",
        fraction,
        Direction.LOWER,
        why,
        predicted={"budget_gib": round(budget, 2)},
    )
