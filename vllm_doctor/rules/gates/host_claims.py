"""What a start takes of the host's own memory: each pool, of every rank together, and what makes it smaller."""

import itertools
import json
import math
from collections.abc import Iterator

import msgspec

from vllm_doctor.knowledge.pinned_memory import ROUNDED
from vllm_doctor.knowledge.version import Version
from vllm_doctor.plan.launch.host_memory import SWAPPED_GIB
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.kv_cache import on_cpu
from vllm_doctor.rules.gates.ranks import ranks
from vllm_doctor.rules.say import environment, gib, mapping, set_flag

# GiB of every rank for the KV cache where nothing is set (vllm/envs.py, to 0.10); a first start needs no more.
_CPU_CACHE = 4
# V0 has a pool for swapped-out requests unless it is set to none: of a host with GPUs, this much is worth a word.
_LARGE = 32.0
# What the connectors of offloaded KV cache call the size of their pool (v1/kv_offload, v1/simple_kv_offload).
_POOL_BYTES = ("cpu_bytes_to_use", "cpu_bytes_to_use_per_rank")
# The last release with the option.
SWAPPED = Version((0, 17, 1))


class HostClaim(msgspec.Struct, frozen=True):
    """One pool in memory of the host. `large`: could it be what ran a host out of memory?"""

    sum_: Arithmetic | None
    change: Change | None
    large: bool


def host_claims(case: Case) -> tuple[HostClaim, ...]:
    """The pools that the launch or the log tells of, the host's own first."""
    every = ranks(case)
    pools = (_cpu_cache(case), _local_cache(case, every), _offload(case, every), _kv_offload(case), _swap(case, every))
    return tuple(itertools.chain.from_iterable(pools))


def _cpu_cache(case: Case) -> Iterator[HostClaim]:
    if not on_cpu(case):
        return
    run = case.run
    told = case.env("VLLM_CPU_KVCACHE_SPACE")
    said = run.first("cpu-kv-space") if run is not None else None
    now = float(told) if told is not None and told.replace(".", "", 1).isdigit() else None
    if now is None and said is not None:
        now = float(said.fields.get("size") or _CPU_CACHE)
    if now is None and run is not None and run.first("cpu-blocks") is not None:
        now = float(_CPU_CACHE)
    to = max(1, int(now / 2)) if now else _CPU_CACHE
    why = "each rank takes this many GiB of the host for its KV cache, beside its part of the weights"
    size = (
        gib("KV cache in memory of the host", now, "VLLM_CPU_KVCACHE_SPACE, each rank", "the launch") if now else None
    )
    yield HostClaim(size, environment("VLLM_CPU_KVCACHE_SPACE", Direction.LOWER, why, to=to, before=now), large=True)


def _local_cache(case: Case, every: int) -> Iterator[HostClaim]:
    """LMCache pins its local cache when an engine starts, in every rank."""
    hit = case.run.first("lmcache-local") if case.run is not None else None
    told = hit.fields["size"] if hit is not None else case.env("LMCACHE_MAX_LOCAL_CPU_SIZE") or ""
    if not told.replace(".", "", 1).isdigit():
        return
    each = float(told)
    source = "the log" if hit is not None else "the launch"
    size = gib("LMCache's local cache", each * every, f"{each:g} × {every} ranks", source)
    why = f"every rank pins this many GiB of the host: {each:g} × {every} is {each * every:g}; or max_local_cpu_size"
    to = max(1, int(each / every)) if every > 1 else max(1, int(each / 2))
    yield HostClaim(
        size, environment("LMCACHE_MAX_LOCAL_CPU_SIZE", Direction.LOWER, why, to=to, before=each), large=True
    )


def _offload(case: Case, ranks: int) -> Iterator[HostClaim]:
    run = case.run
    asked = case.number("cpu-offload-gb")
    hits = run.all("weights-offloaded") if run is not None else ()
    if run is not None and hits:
        by_rank = {run.lines[h.index].process: float(h.fields["size"]) for h in hits}
        whole = sum(by_rank.values())
        size = gib("weights offloaded to the host", whole, f"of {len(by_rank)} ranks", "the log")
    elif asked:
        whole = asked * ranks
        size = gib("weights offloaded to the host", whole, f"--cpu-offload-gb {asked:g} × {ranks} ranks", "the launch")
    else:
        return
    why = (
        f"offloaded weights take {whole:g} GiB of the host, and {ROUNDED}; the GPUs must hold what is not offloaded: "
        "more GPUs, or a smaller model"
    )
    to = math.floor(asked / 2) if asked else None
    yield HostClaim(size, set_flag(case, "cpu-offload-gb", to, Direction.LOWER, why), large=True)


def _kv_offload(case: Case) -> Iterator[HostClaim]:
    """The pool of the host to which KV cache is moved, one size for all ranks together (config/cache.py)."""
    asked = case.number("kv-offloading-size")
    if not asked:
        yield from _connectors_pool(case)
        return
    size = gib("KV cache offloaded to the host", asked, f"--kv-offloading-size {asked:g}, of all ranks", "the launch")
    why = f"this many GiB of the host are taken at start, and {ROUNDED}"
    to = math.floor(asked / 2)
    yield HostClaim(size, set_flag(case, "kv-offloading-size", to, Direction.LOWER, why), large=True)


def _connectors_pool(case: Case) -> Iterator[HostClaim]:
    """The same pool where the launch gives the connector itself: in bytes, of all ranks or of each."""
    config = mapping(case.effective("kv-transfer-config"))
    options = config.get("kv_connector_extra_config") if config is not None else None
    if config is None or not isinstance(options, dict):
        return
    named = next((name for name in _POOL_BYTES if isinstance(options.get(name), int) and options[name] > 0), None)
    if named is None:
        return
    half = {**config, "kv_connector_extra_config": {**options, named: options[named] // 2}}
    size = gib("KV cache offloaded to the host", options[named] / GIB, f"{named} of the connector", "the launch")
    why = f"{named} takes {options[named] / GIB:.0f} GiB of the host when the server starts: half of it"
    change = set_flag(case, "kv-transfer-config", json.dumps(half, separators=(",", ":")), Direction.CHANGE, why)
    yield HostClaim(size, change, large=True)


def _swaps(case: Case) -> bool:
    """Does the log count blocks on the host? V0 makes that pool right after this line, in pinned memory."""
    counted = case.run.all("gpu-blocks") if case.run is not None else ()
    return any(int(hit.fields.get("cpu", "0")) > 0 for hit in counted)


def _swap(case: Case, ranks: int) -> Iterator[HostClaim]:
    if on_cpu(case):
        return  # the CPU build makes no second pool (executor/cpu_executor.py)
    asked = case.number("swap-space")
    warned = case.run.first("swap-too-large") if case.run is not None else None
    if warned is not None:
        whole = float(warned.fields["swap"])
    elif asked:
        whole = asked * ranks
    elif asked is None and _swaps(case):
        whole = float(SWAPPED_GIB) * ranks
    else:
        return
    why = "V0 takes this many GiB of every rank at start, for requests that are swapped out; V1 never uses it"
    told = "the log" if warned is not None else "the launch" if asked else "the default of V0"
    size = gib("swap space", whole, "--swap-space × ranks", told)
    large = warned is not None or whole >= _LARGE
    yield HostClaim(size, set_flag(case, "swap-space", 0, Direction.LOWER, why, until=SWAPPED), large=large)
