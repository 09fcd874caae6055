"""How data-parallel ranks that share experts hand each other tokens, where that keeps buffers of its own: DeepEP's
kernels, those of NIXL and FlashInfer's (distributed/device_communicators/all2all.py)."""

from __future__ import annotations

import msgspec

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.shared_experts import all2all_backends
from vllm_doctor.plan.model.architecture import Architecture

LOW_LATENCY, HIGH_THROUGHPUT, NIXL, ELASTIC = "deepep_low_latency", "deepep_high_throughput", "nixl_ep", "deepep_v2"
ONE_SIDED, TWO_SIDED = "flashinfer_nvlink_one_sided", "flashinfer_nvlink_two_sided"
_ALIASES = {"flashinfer_all2allv": TWO_SIDED}
_KNOWN = {LOW_LATENCY, HIGH_THROUGHPUT, NIXL, ELASTIC, ONE_SIDED, TWO_SIDED}
# Kernels whose experts have room for the tokens of each rank.
_ROOMS = {LOW_LATENCY, NIXL}
_BUFFER, _CHUNK = "VLLM_DEEPEP_BUFFER_SIZE_MB", "VLLM_MOE_DP_CHUNK_SIZE"
# The step of a launch that names none, and whose kernels take a batch of one size (config/scheduler.py
# DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP).
BATCHED_STEP = 256


class Exchange(msgspec.Struct, frozen=True):
    """The buffers on one rank: MiB over NVLink, whether ranks of other hosts have as much, for how many tokens of each
    rank there is room (every expert's in kernels of low latency), 0 where the launch does not count; and whose."""

    mib: int
    across: bool
    tokens: int = 0
    kind: str = ""


def _number(env: dict[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else default  # another text ends the start where it is read


def batches_of_one_size(flags: Flags, env: dict[str, str], par: Parallel, version: Version) -> bool:
    """Do the kernels take them (config/parallel.py use_batched_dp_moe)?"""
    return par.expert and par.dp > 1 and all2all_backends(flags, env, version) <= _ROOMS


def exchange(  # noqa: PLR0917
    flags: Flags, env: dict[str, str], a: Architecture, par: Parallel, version: Version, batched: int
) -> Exchange | None:
    """What is kept; None where none of them runs, or nobody can tell that one does."""
    backends = {_ALIASES.get(name, name) for name in all2all_backends(flags, env, version)}
    if a.moe is None or not par.expert or par.dp == 1 or len(backends) > 1 or not backends <= _KNOWN:
        return None
    (kind,) = backends
    if kind == TWO_SIDED:
        return Exchange(0, across=False, kind=kind)
    if kind in {ONE_SIDED, ELASTIC}:
        # The sizes of ranks on several hosts depend on how these are joined.
        several = kind == ELASTIC and par.local < par.dp
        return None if several else Exchange(0, across=False, tokens=batched, kind=kind)
    mib = _number(env, _BUFFER, 1024)
    if kind == HIGH_THROUGHPUT:
        here = env.get("VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE") == "1"
        return Exchange(mib, par.local < par.dp and not here, kind=kind)
    chunked = history("environment", "environment").exists(_CHUNK, version)
    tokens = _number(env, _CHUNK, 256) if chunked else batched
    return Exchange(0 if kind == NIXL else mib, across=False, tokens=tokens, kind=kind)
