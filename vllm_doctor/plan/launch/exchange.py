"""How data-parallel ranks that share experts hand each other tokens, where that keeps buffers of its own: DeepEP's two
kernels (distributed/device_communicators/all2all.py)."""

from __future__ import annotations

import msgspec

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.shared_experts import all2all_backends
from vllm_doctor.plan.model.architecture import Architecture

LOW_LATENCY, HIGH_THROUGHPUT = "deepep_low_latency", "deepep_high_throughput"
_BUFFER, _CHUNK = "VLLM_DEEPEP_BUFFER_SIZE_MB", "VLLM_MOE_DP_CHUNK_SIZE"
# The step of a launch that names none, and whose kernels take a batch of one size (config/scheduler.py
# DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP).
BATCHED_STEP = 256


class Exchange(msgspec.Struct, frozen=True):
    """DeepEP's buffers on one rank: MiB over NVLink, whether ranks of other hosts have as much, and for how many tokens
    of each rank every expert has room; 0 without such kernels."""

    mib: int
    across: bool
    tokens: int = 0


def _number(env: dict[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else default  # another text ends the start where it is read


def batches_of_one_size(flags: Flags, env: dict[str, str], par: Parallel, version: Version) -> bool:
    """Do the kernels take them (config/parallel.py use_batched_dp_moe)?"""
    return par.expert and par.dp > 1 and all2all_backends(flags, env, version) <= {LOW_LATENCY, "nixl_ep"}


def exchange(  # noqa: PLR0917
    flags: Flags, env: dict[str, str], a: Architecture, par: Parallel, version: Version, batched: int
) -> Exchange | None:
    """What is kept; None where DeepEP does not run, or nobody can tell that it does."""
    backends = all2all_backends(flags, env, version)
    if a.moe is None or not par.expert or par.dp == 1 or not backends <= {LOW_LATENCY, HIGH_THROUGHPUT}:
        return None
    if len(backends) > 1:
        return None
    mib = _number(env, _BUFFER, 1024)
    if HIGH_THROUGHPUT in backends:
        here = env.get("VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE") == "1"
        return Exchange(mib, par.local < par.dp and not here)
    chunked = history("environment", "environment").exists(_CHUNK, version)
    return Exchange(mib, across=False, tokens=_number(env, _CHUNK, 256) if chunked else batched)
