"""The check that one request of the configured length fits the KV cache."""

import msgspec

from vllm_doctor.knowledge.version import Version
from vllm_doctor.log.match import read, says
from vllm_doctor.rules.case import Case

BLOCK = 16
# The first release whose CPU worker reads the fraction; before it half of what is free, and before 0.13 4 GiB.
_CPU_SHARE, CPU_FIXED = Version((0, 20)), Version((0, 13))
# Where releases log the GiB of the KV cache: V1, V0 from 0.6.5 on, V0 0.6.4.
POOL = (("kv-available", "size"), ("profile-breakdown", "kv"), ("profile-results", "kv"))

# What is left of the check's message where people cut it.
_CUT = frozenset({"kv-below-max-len-cut", "kv-longest-told"})
# Sizes of one pool in two lines differ by so many GiB at most.
_ROUNDED = 0.02
# Limits of a prompt's length below this serve nobody, nor below this part of the length that was asked for, where it
# is short of what a chat takes.
_LEAST_TOKENS, _LEAST_PART, _SHORT = 512, 1 / 64, 2048


class TooSmall(msgspec.Struct, frozen=True):
    """What the check said: lengths in tokens, sizes in GiB (None where V0 counts in tokens). `retold`: a person says it
    in words of their own (log/read/retold.py puts the message behind them)."""

    index: int
    length: int
    fits: int
    need: float | None
    have: float | None
    printed: bool
    retold: bool = False


def too_small(case: Case) -> TooSmall | None:
    """The failed check of the first fault, in V0's or V1's wording."""
    root = case.root
    if root is None:
        return None
    for hit in root.hits:
        if hit.id == "kv-below-max-len-v0":
            length, tokens = int(hit.fields["length"]), int(hit.fields["tokens"])
            return TooSmall(hit.index, length, tokens, None, None, True, _retold(case, hit.index, hit.id))
        if hit.id == "kv-below-max-len":
            length = int(hit.fields["length"])
            need, have = float(hit.fields["need"]), float(hit.fields["have"])
            said = hit.fields.get("estimate")
            fits = _whole(said) if said else int(have / need * length) // BLOCK * BLOCK if need > 0 else 0
            return TooSmall(hit.index, length, fits, need, have, said is not None, _retold(case, hit.index, hit.id))
    return None


def _retold(case: Case, index: int, message: str) -> bool:
    text = case.run.lines[index].text if case.run is not None else ""
    own, put, _ = text.rpartition(" [")
    return bool(put) and text.endswith("]") and read(message, own) is None


def smaller_elsewhere(case: Case, small: TooSmall) -> float | None:
    """The least pool that a rank logged, GiB, where it is below the one that was checked: vLLM checks one rank after
    another and ends at the first that is too small (get_kv_cache_configs, v1/core/kv_cache_utils.py)."""
    if case.run is None or small.have is None:
        return None
    pools = [float(hit.fields["size"]) for hit in case.run.all("kv-available")]
    least = min(pools, default=small.have)
    # the message rounds what the line prints
    return least if least < small.have - _ROUNDED and max(pools) > small.have - _ROUNDED else None


def cut_short(case: Case) -> tuple[int, float | None, int | None] | None:
    """The same check where only the end of its message was pasted: its line, the GiB that were left, and the longest
    request that fits, each where that figure stands whole."""
    root = case.root
    hit = next((h for h in root.hits if h.id in _CUT), None) if root is not None else None
    if hit is None:
        return None
    said, have = hit.fields.get("estimate"), hit.fields.get("have")
    return hit.index, float(have) if have else None, _whole(said) if said else None


def _whole(tokens: str) -> int:
    """A count, whether or not somebody set its thousands apart."""
    return int(tokens.replace(",", ""))


def left_over(case: Case) -> float | None:
    """GiB that the weights and the measured peak left for the KV cache, below zero where they exceed the budget."""
    run = case.run
    if run is None:
        return None
    told = (run.number(message, field) for message, field in POOL)
    return next((left for left in told if left is not None), None)


def on_cpu(case: Case) -> bool:
    """Does the CPU build run? A variable of its own alone does not tell where something names a GPU: units and charts
    set it for every host."""
    run = case.run
    if run is None:
        return False
    if run.first("cpu-kv-too-large", "cpu-kv-none", "cpu-blocks") is not None:
        return True  # the CPU build's own words, whatever card the host has
    told = run.first("platform-name")
    if told is not None:
        return told.fields["platform"].lower() == "cpu"
    built = run.first("target-device")
    version = case.version_text or ""
    return (
        "+cpu" in version
        or (built is not None and built.fields["device"] == "cpu" and run.oom is None)
        or (case.effective("device-config") == "cpu" and case.effective("device") in {None, "auto", "cpu"})
        or (run.first("cpu-kv-space") is not None and not case.gpu_name and run.oom is None)
    )


def cpu_by_share(case: Case) -> bool:
    """Does this release's CPU build size its KV cache by `gpu_memory_utilization`, a share of one NUMA node's memory?
    From 0.20 on (v1/worker/cpu_worker.py); the refusal of no block says so in some of these."""
    if case.version is not None:
        return case.version >= _CPU_SHARE
    run, root = case.run, case.root
    return (
        run is not None
        and root is not None
        and any(says(run.lines[hit.index].text, "share-of-the-cpu") for hit in root.hits)
    )


def serves_nobody(tokens: float, asked: float | None) -> bool:
    """Is it so short a prompt that nobody is served by it, alone or beside the length that was asked for?"""
    return tokens < _LEAST_TOKENS or (asked is not None and tokens < _SHORT and tokens < _LEAST_PART * asked)


def charges_others(case: Case) -> bool:
    """Does this release take what others hold for its own, so that the budget has it in it already?

    V0 before 0.3.1 subtracted all that is used on the card, V0 0.6.4 and V1 to 0.9.0 all of it that is not torch's
    (worker.py, gpu_worker.py)."""
    version = case.version
    if version is None:
        return False
    if version < Version((0, 3, 1)):
        return True
    engine = case.run.engine if case.run is not None else None
    if engine == "V0" or (engine != "V1" and version < Version((0, 8))):
        return Version((0, 6, 4)) <= version < Version((0, 6, 5))
    return Version((0, 6, 4)) <= version <= Version((0, 9, 0))
