"""Memory of the host that a launch takes: offloaded weights, cache blocks, and what connectors keep."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.pinned_memory import pinned
from vllm_doctor.plan.launch.host_memory import OF_ALL, Connector
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import Scheme, unquantized_format
from vllm_doctor.plan.terms.kv import Pool
from vllm_doctor.plan.terms.matrices import layer_matrices
from vllm_doctor.plan.terms.weights import Tensors, WeightTarget, tensors

GIB = 1 << 30
# One call of cudaHostRegister takes less than this, whatever memory is free (vLLM issue 51080).
REGISTERED_GIB = 512
# What the connectors take where the launch does not say (their own files in kv_connector/v1).
_SIMPLE_GIB, _LMCACHE_GIB, _P2P_GIB = 8, 5, 32


class KeptOnHost(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is kept in memory of the host, in GiB of one rank; `asked` is what the launch gives it. Each rank
    pins its own, or all have one file in /dev/shm (`shared`)."""

    name: str
    asked: float
    taken: float
    ranks: int
    shared: bool = False
    looked_at: bool = False  # does vLLM look whether /dev/shm has room, before it is written to?
    stays_pageable: bool = False  # too large to be pinned by one call, and this release makes but one
    used_whole: float | None = None  # the largest size below that takes no more than was asked for
    formula: str = ""
    source: str = ""

    @property
    def total(self) -> float:
        """GiB of all ranks together."""
        return self.taken * self.ranks


class HostUse(msgspec.Struct, frozen=True):
    """What the launch keeps in memory of this host. `unsure`: what takes some that is not known here."""

    pools: tuple[KeptOnHost, ...] = ()
    unsure: tuple[str, ...] = ()

    @property
    def total_gib(self) -> float:
        """GiB of all ranks together."""
        return sum(pool.total for pool in self.pools)

    @property
    def shared_gib(self) -> float:
        """GiB of /dev/shm."""
        return sum(pool.total for pool in self.pools if pool.shared)


class Offloaded(msgspec.Struct, frozen=True):
    """Weights of one rank that stay on the host, in bytes: of the parameters, of the memory that is pinned for them,
    and of the buffers on the GPU that they are copied to."""

    moved: float = 0.0
    taken: float = 0.0
    buffers: float = 0.0


def offloaded(a: Architecture, s: Settings, scheme: Scheme, target: WeightTarget, stage: int) -> Offloaded:
    """The weights of one rank that --cpu-offload-gb or --offload-group-size keeps on the host: parameters of the
    stage's layers, in order (model_executor/offloader/uva.py and prefetch.py; before 0.17 models/utils.py)."""
    asked = s.host
    if not asked.weights_gib and not asked.every:
        return Offloaded()
    parts = s.parallel.stages(len(a.layers))
    start = sum(parts[:stage])
    base, prefix = unquantized_format(target.element), f"{a.text_prefix}.layers"
    layers = (
        tensors(layer_matrices(a, i, s.parallel, prefix), scheme, base, target)
        for i in range(start, start + parts[stage])
    )
    return _by_groups(layers, s) if asked.every else _by_bytes(layers, s)


def _eligible(layer: Tensors, s: Settings) -> list[float]:
    """Bytes of the parameters that may be offloaded; scales go with them, each too small to be rounded far."""
    names = s.host.weights_named
    chosen = [
        (name, size)
        for name, size in layer.sizes.items()
        if not name.startswith("absorbed") and (not names or any(f".{x}." in f".{name}." for x in names))
    ]
    return [size for _, size in chosen] + ([layer.scales] if layer.scales and not names else [])


def _by_bytes(layers: Iterator[Tensors], s: Settings) -> Offloaded:
    """Whole parameters until they are as large as was asked for, the last one beyond it."""
    budget, moved, taken = s.host.weights_gib * GIB, 0.0, 0.0
    for layer in layers:
        for size in _eligible(layer, s):
            if moved >= budget:
                return Offloaded(moved, taken)
            moved += size
            taken += _taken(size, s)
    return Offloaded(moved, taken)


def _by_groups(layers: Iterator[Tensors], s: Settings) -> Offloaded:
    """The last layers of each group; on the GPU stands a buffer for each layer that is fetched ahead."""
    asked, moved, taken, largest = s.host, 0.0, 0.0, 0.0
    for index, layer in enumerate(layers):
        if index % asked.every < asked.every - asked.kept:
            continue
        sizes = _eligible(layer, s)
        moved += sum(sizes)
        taken += sum(_taken(size, s) for size in sizes)
        largest = max(largest, sum(sizes))
    return Offloaded(moved, taken, largest * asked.ahead)


def _taken(size: float, s: Settings) -> float:
    return pinned(size, s.host.rounded_to) if s.host.pinned else size


def host_use(s: Settings, gpu: Card | None, pool: Pool | None, weights: Offloaded, pool_gib: float | None) -> HostUse:
    """All that the launch keeps on this host, the largest first. `pool_gib` is the GPU's own cache."""
    ranks = s.parallel.cards
    found: list[KeptOnHost] = []
    unsure: list[str] = []
    if weights.moved:
        option = "--offload-group-size" if s.host.every else "--cpu-offload-gb"
        found.append(
            KeptOnHost(
                name="offloaded weights",
                asked=weights.moved / GIB,
                taken=weights.taken / GIB,
                ranks=ranks,
                formula=f"{option}: each parameter pinned, rounded up to a power of two",
                source="model_executor/offloader",
            )
        )
    if s.host.swap_gib and pool is not None and s.engine == "V0":
        found.append(
            _tensors_of("swapped requests", s.host.swap_gib, pool, s, "--swap-space", "worker/cache_engine.py")
        )
    for each in s.host.connectors:
        one = _connector(each, s, gpu, pool, pool_gib)
        if isinstance(one, str):
            unsure.append(one)
        elif one is not None:
            found.append(one)
    return HostUse(tuple(sorted(found, key=lambda x: -x.total)), tuple(unsure))


def _tensors_of(name: str, each_gib: float, pool: Pool, s: Settings, option: str, source: str) -> KeptOnHost:  # noqa: PLR0917
    """Blocks in pinned tensors, one for each tensor of the GPU's cache, each rounded by itself."""
    count = max(g.layers for g in pool.groups)
    page = pool.block_bytes / count
    blocks = floor(each_gib * GIB / pool.block_bytes)
    return KeptOnHost(
        name=name,
        asked=each_gib,
        taken=count * pinned(blocks * page, s.host.rounded_to) / GIB,
        ranks=s.parallel.cards,
        used_whole=None if s.engine == "V0" else count * pinned(blocks * page, s.host.rounded_to) / 2 / GIB,
        formula=f"{option}: {count} pinned tensors of {blocks * page / GIB:.2f} GiB, each rounded up to a power of two",
        source=source,
    )


def _of_lmcache(c: Connector, s: Settings, inner: int) -> KeptOnHost:
    whole = c.number(OF_ALL)
    told = c.number("lmcache.max_local_cpu_size") or _LMCACHE_GIB
    each = told if whole is None else whole / inner
    return KeptOnHost(
        name="LMCache's local cache", asked=each, taken=each, ranks=s.parallel.cards,
        formula="max_local_cpu_size of each rank; LMCACHE_MAX_LOCAL_CPU_SIZE and LMCache's file are not read",
        source="LMCache",
    )  # fmt: skip


def _connector(
    c: Connector, s: Settings, gpu: Card | None, pool: Pool | None, pool_gib: float | None
) -> KeptOnHost | str | None:
    """What one connector keeps; a sentence where that is not known here, None where it keeps nothing."""
    inner = s.parallel.tp * s.parallel.pp  # ranks of one engine
    if c.name == "OffloadingConnector":
        return _offloading(c, s, gpu, pool, inner)
    if c.name == "SimpleCPUOffloadConnector":
        told = c.number("cpu_bytes_to_use_per_rank")
        whole = c.number("cpu_bytes_to_use") or _SIMPLE_GIB * GIB
        each = (whole / inner if told is None else told) / GIB
        return KeptOnHost(
            name="offloaded cache blocks", asked=each, taken=each, ranks=s.parallel.cards,
            formula="cpu_bytes_to_use over the ranks, registered as it is", source="v1/simple_kv_offload/worker.py",
        )  # fmt: skip
    if c.name in {"LMCacheConnectorV1", "LMCacheConnector"}:
        return _of_lmcache(c, s, inner)
    if c.name == "P2pNcclConnector":
        each = c.number("mem_pool_size_gb") or _P2P_GIB
        return KeptOnHost(
            name="pool of received blocks", asked=each, taken=each, ranks=s.parallel.cards,
            formula="mem_pool_size_gb, unasked 32", source="kv_connector/v1/p2p/p2p_nccl_engine.py",
        )  # fmt: skip
    if c.name == "NixlConnector":
        if c.buffer != "cpu" or pool_gib is None:
            return None
        return KeptOnHost(
            name="transfer buffers", asked=pool_gib, taken=max(pool_gib, 0.0), ranks=s.parallel.cards,
            formula="kv_buffer_device cpu: as large as the GPU's KV cache", source="kv_connector/v1/nixl",
        )  # fmt: skip
    if c.name in _ELSEWHERE:
        return f"{c.name}: {_ELSEWHERE[c.name]}"
    return f"{c.name}: the memory that it keeps on the host is not known here"


_ELSEWHERE = {
    "LMCacheMPConnector": "LMCache's own server keeps the blocks, beside vLLM; its memory is not in this sum",
}


def _offloading(c: Connector, s: Settings, gpu: Card | None, pool: Pool | None, inner: int) -> KeptOnHost | str | None:
    name, source = "offloaded cache blocks", "v1/kv_offload/cpu/spec.py"
    if pool is None:
        return None
    if not s.does.offloads_by_bytes:
        blocks = c.number("num_cpu_blocks") or 0.0
        each = blocks * pool.block_bytes / GIB
        return _tensors_of(name, each, pool, s, "num_cpu_blocks", "v1/kv_offload/cpu.py")
    told = c.number("cpu_bytes_to_use")
    if not told:
        return "OffloadingConnector: cpu_bytes_to_use is not in kv_connector_extra_config, and a start ends without it"
    each = told / inner / GIB
    if s.does.offloads_to_shared_file and (gpu is None or gpu.backend == "CUDA"):
        return KeptOnHost(
            name=name, asked=each, taken=each, ranks=s.parallel.cards, shared=True, looked_at=s.does.checks_shared_room,
            stays_pageable=told / GIB >= REGISTERED_GIB and not s.does.registers_in_chunks,
            formula="cpu_bytes_to_use in one file in /dev/shm for all ranks of an engine", source=source,
        )  # fmt: skip
    return _tensors_of(name, each, pool, s, "cpu_bytes_to_use", source)
