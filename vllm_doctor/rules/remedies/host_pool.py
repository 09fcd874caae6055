"""A smaller pool in memory of the host: which one it is, the calls that asked for the memory tell."""

from collections.abc import Callable

from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.host_claims import SWAPPED
from vllm_doctor.rules.remedies.step import fewer_tokens
from vllm_doctor.rules.say import environment, set_flag, thing

# Calls that copy weights to the host when --cpu-offload-gb asks for it.
_OFFLOADS = frozenset({"maybe_offload_to_cpu", "_maybe_offload_to_cpu", "wrap_modules"})
# GiB of each rank for the KV cache of the CPU engine; an allocation of so much of it is the cache itself.
_CPU_SPACE, _WHOLE = "VLLM_CPU_KVCACHE_SPACE", 0.9
# GB that LMCache pins where nothing is set (lmcache/v1/config.py).
_LOCAL_CACHE = 5
# GB of P2pNcclConnector's pool where nothing is set (p2p_nccl_engine.py).
_P2P_POOL = 32


def pools_by_calls(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The changes of the pool that the innermost of the known calls makes; empty where no call names one."""
    frames = [f for link in fault.crash.links for f in link.frames] if fault.crash is not None else []
    for frame in reversed(frames):
        if frame.function == "sleep":
            return (_sleep(case),)
        if frame.function in _OFFLOADS:
            return _made(_offloaded(case))
        for row, change in _POOLS:
            if says(frame.file, row):
                return _made(change(case))
    return _of_cpu_engine(case, fault)


def _made(change: Change | None) -> tuple[Change, ...]:
    return (change,) if change is not None else ()


def _of_cpu_engine(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The CPU engine has all in memory of the host: its KV cache, which asks for its size at once, and the buffers of
    a step beside it."""
    asked = int(fault.fields("cpu-allocator").get("asked") or 0)
    told = case.env(_CPU_SPACE)
    space = float(told) if told is not None and told.replace(".", "", 1).isdigit() else None
    smaller = int(space / 2) if space is not None and space > 1 else None
    if space and asked >= _WHOLE * space * GIB:
        why = (
            f"the KV cache of the CPU engine takes {space:g} GiB of the host at once; set less than is free beside the "
            "weights"
        )
        return (environment(_CPU_SPACE, Direction.LOWER, why, to=smaller, before=told),)
    frames = [f for link in fault.crash.links for f in link.frames] if fault.crash is not None else []
    sampled = any(says(f.file, "call-sampler") for f in frames)
    if not sampled and not any(f.function.startswith("forward") and says(f.file, "call-of-module") for f in frames):
        return ()
    requested = case.run is not None and case.run.first("asks-prompt-logprobs") is not None
    asks = any(says(f.code, "code-of-logprobs") for f in frames) or (sampled and requested)
    alone = "any client can end the engine with such a request: let the gateway refuse prompt_logprobs"
    beside = "the KV cache of the CPU engine lies in the same memory; a smaller one leaves more for a step"
    changes = (
        thing(ChangeKind.OS, "prompt_logprobs", Direction.REMOVE, alone) if asks else None,
        fewer_tokens(case, None, measuring=False),
        environment(_CPU_SPACE, Direction.LOWER, beside, to=smaller, before=told),
    )
    return tuple(change for change in changes if change is not None)


def _sleep(case: Case) -> Change:
    why = "level 2 keeps no copy of the weights in host memory; load the weights again after the wake-up"
    command = f"curl -X POST 'http://127.0.0.1:{case.count('port') or default_port()}/sleep?level=2'"
    return thing(ChangeKind.OS, "sleep-level", Direction.SET, why, to=2, before=1, command=command)


def _offloaded(case: Case) -> Change | None:
    why = "offloaded weights are pinned in memory of the host, this many GiB of every rank"
    now = case.number("cpu-offload-gb")
    return set_flag(case, "cpu-offload-gb", int(now / 2) if now else None, Direction.LOWER, why)


def _prefetched(case: Case) -> Change | None:
    now = case.count("offload-num-in-group")
    why = "this many layers of each group of --offload-group-size stay in pinned host memory"
    to = max(1, now // 2) if now is not None and now > 1 else None
    return set_flag(case, "offload-num-in-group", to, Direction.LOWER, why) or _offloaded(case)


def kv_offloaded(case: Case) -> Change | None:
    """A smaller pool of the native connector, by whichever option the launch made it."""
    now = case.number("kv-offloading-size")
    why = (
        "vLLM allocates this host pool for offloaded KV cache at the start, in GiB over all ranks; "
        "--kv-transfer-config calls it cpu_bytes_to_use"
    )
    connector = set_flag(case, "kv-transfer-config", None, Direction.CHANGE, why)
    if now is None and case.effective("kv-transfer-config") is not None:
        return connector
    return set_flag(case, "kv-offloading-size", int(now / 2) if now else None, Direction.LOWER, why) or connector


def _p2p(case: Case) -> Change | None:
    why = (
        f"set mem_pool_size_gb in kv_connector_extra_config: each rank pins this many GiB of the host for KV "
        f"cache that waits for its request ({_P2P_POOL} where nothing is set)"
    )
    return set_flag(case, "kv-transfer-config", None, Direction.CHANGE, why)


def full_pool(case: Case, fault: Fault) -> Change | None:
    """A larger pool of P2pNcclConnector, where it has no block left for KV cache that waits for its request
    (tensor_memory_pool.py); None where something else failed."""
    last = fault.crash.root.frames[-1:] if fault.crash is not None else ()
    if not any(f.function == "allocate" and says(f.file, "call-p2p-pool") for f in last):
        return None
    told = read("p2p-pool-size", str(case.effective("kv-transfer-config") or ""))
    size = f"{told['size']} now" if told is not None else f"{_P2P_POOL} where nothing is set"
    to = str(2 * int(told["size"])) if told is not None else "more"
    why = (
        f"set mem_pool_size_gb to {to} in kv_connector_extra_config ({size}, of each rank): KV cache that no request "
        "has fetched yet lies there, and the host must have that much free"
    )
    return set_flag(case, "kv-transfer-config", None, Direction.CHANGE, why)


def _nixl(case: Case) -> Change | None:
    why = (
        "kv_buffer_device cpu keeps a copy of the whole KV cache in host memory: set cuda to keep it on the GPU; "
        "on other platforms make the KV cache smaller"
    )
    return set_flag(case, "kv-transfer-config", None, Direction.CHANGE, why)


def _lmcache(case: Case) -> Change:
    why = "every rank pins this many GiB of the host for LMCache; max_local_cpu_size in its file"
    name, told = "LMCACHE_MAX_LOCAL_CPU_SIZE", case.env("LMCACHE_MAX_LOCAL_CPU_SIZE")
    said = case.run.first("lmcache-local") if case.run is not None else None
    told = said.fields["size"] if said is not None else told
    now = float(told) if told is not None and told.replace(".", "", 1).isdigit() else None
    return environment(name, Direction.LOWER, why, to=max(1, int((now or _LOCAL_CACHE) / 2)), before=now)


def _adapters(case: Case) -> Change | None:
    now = case.count("max-cpu-loras")
    why = "this many adapters stay in pinned host memory"
    return set_flag(case, "max-cpu-loras", max(1, now // 2) if now else None, Direction.LOWER, why)


def _swap(case: Case) -> Change | None:
    why = "vLLM pins CPU blocks at start, this many GiB per GPU (4 by default)"
    return set_flag(case, "swap-space", 0, Direction.LOWER, why, until=SWAPPED)


_POOLS: tuple[tuple[str, Callable[[Case], Change | None]], ...] = (
    ("call-of-p2p-pool", _p2p),
    ("call-of-kv-offload", kv_offloaded),
    ("call-of-nixl", _nixl),
    ("call-of-lmcache", _lmcache),
    ("call-of-prefetch", _prefetched),
    ("call-of-cache", _swap),
    ("call-adapters", _adapters),
)
