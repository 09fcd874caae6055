"""What a launch asks of the host's memory: weights and cache blocks that are kept there, and the connectors that do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour, behaviour
from vllm_doctor.plan.launch.flags import Flags

GIB = 1 << 30
_MOST_GIB = 1e6
# GiB of all ranks of an engine, where no option of the connector says it.
OF_ALL = "of_all"
# What V0 keeps for swapped requests on each rank, unasked (config/cache.py swap_space).
SWAPPED_GIB = 4
# MultiConnector holds others; no launch nests them deeper than this.
_DEPTH = 4
_ROUNDED_TO = re.compile(r"(?:^|,)\s*pinned_max_round_threshold_mb\s*:\s*([0-9]{1,9})\s*(?=,|$)")


class Connector(msgspec.Struct, frozen=True):
    """A KV connector by its class, and the numbers among the options that the launch gives it."""

    name: str
    numbers: tuple[tuple[str, float], ...] = ()
    buffer: str = ""  # kv_buffer_device

    def number(self, key: str) -> float | None:
        """The number of an option; None where it is absent or none."""
        return dict(self.numbers).get(key)


def _numbers(options: Mapping[str, object]) -> tuple[tuple[str, float], ...]:
    """The options that are numbers, or text that is one."""
    found: dict[str, float] = {}
    for key, value in options.items():
        try:
            number = float(str(value))
        except ValueError:
            continue
        if not isinstance(value, bool) and 0 <= number < 1 << 60:
            found[key] = number
    return tuple(found.items())


class HostAsked(msgspec.Struct, frozen=True):
    """What the launch keeps in memory of the host, as it is asked for."""

    weights_gib: float = 0.0
    weights_named: tuple[str, ...] = ()  # --cpu-offload-params or --offload-params: only parameters of these names
    every: int = 0  # --offload-group-size: of so many layers …
    kept: int = 1  # … the last so many are kept on the host
    ahead: int = 1  # layers that have a buffer on the GPU
    pinned: bool = True  # VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY
    swap_gib: float = 0.0
    connectors: tuple[Connector, ...] = ()
    rounded_to: float | None = None  # bytes above which torch does not round pinned memory; None: it always does


def host_asked(
    flags: Flags, env: Mapping[str, str], does: Behaviour, refusals: list[Refusal], pages_kept: int | None
) -> HostAsked:
    """What the launch asks for. `pages_kept` is the room that V0 gives swapped requests unasked. Raises SettingError
    for a value that is none."""
    group = flags.int("offload-group-size", 0, 0, 10_000)
    backend = flags.text("offload-backend") or "auto"
    if backend == "uva":
        group = 0
    names = flags.text("offload-params" if group else "cpu-offload-params") or ""
    return HostAsked(
        weights_gib=0.0 if group or backend == "prefetch" else flags.number("cpu-offload-gb", 0, 0, _MOST_GIB, "GiB"),
        weights_named=tuple(x for x in re.split(r"[\s,\[\]\"']+", names) if x),
        every=group,
        kept=flags.int("offload-num-in-group", 1, 1, 10_000),
        ahead=flags.int("offload-prefetch-step", 1, 0, 10_000),
        pinned=env.get("VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY") not in {"1", "true", "True"},
        swap_gib=0.0 if pages_kept is None else flags.number("swap-space", pages_kept, 0, _MOST_GIB, "GiB"),
        connectors=_connectors(flags, env, does, refusals),
        rounded_to=_rounded_to(env),
    )


def weights_kept(host: HostAsked, version: Version, *, v1: bool, v2: bool) -> tuple[HostAsked, list[str]]:
    """What is left of weights in memory of the host where what runs the model does not read the option, and a note."""
    does, option = behaviour(version), "--offload-group-size" if host.every else "--cpu-offload-gb"
    if v2 and does.v2_keeps_weights and (host.weights_gib or host.every):
        note = (
            f"{option}: the second model runner of vLLM {version} does not read it, no weights leave the GPU; "
            "the first one does (VLLM_USE_V2_MODEL_RUNNER=0)"
        )
        return msgspec.structs.replace(host, weights_gib=0.0, every=0), [note]
    if v1 and does.v1_keeps_weights and host.weights_gib:
        note = f"{option}: the V1 engine of vLLM {version} does not read it; no weights leave the GPU"
        return msgspec.structs.replace(host, weights_gib=0.0), [note]
    return host, []


def allocator_settings(env: Mapping[str, str]) -> str:
    """What torch's allocator is told: the name that its variable has from 2.9 on goes before the older one
    (c10/core/AllocatorConfig)."""
    return env.get("PYTORCH_ALLOC_CONF", env.get("PYTORCH_CUDA_ALLOC_CONF", ""))


def _rounded_to(env: Mapping[str, str]) -> float | None:
    found = _ROUNDED_TO.search(allocator_settings(env))
    return None if found is None else float(found[1]) * (1 << 20)


def _connectors(
    flags: Flags, env: Mapping[str, str], does: Behaviour, refusals: list[Refusal]
) -> tuple[Connector, ...]:
    """The connectors that take part, --kv-offloading-size's in the place of the named one (config/vllm.py
    _post_init_kv_transfer_config)."""
    config = flags.object("kv-transfer-config")
    size = flags.number("kv-offloading-size", 0, 0, _MOST_GIB, "GiB")
    backend = flags.text("kv-offloading-backend") or ("native" if does.offloads_unasked else "")
    if not size or not backend:
        return tuple(_named(config, 0))
    if backend == "lmcache":
        return (Connector("LMCacheMPConnector" if does.lmcache_outside else "LMCacheConnectorV1", ((OF_ALL, size),)),)
    if not does.offloads_by_bytes:
        refusals.append(
            Refusal(
                "--kv-offloading-size",
                f"{size:g}",
                "0.14 or later: this release never tells its own connector the number of blocks that it needs",
            )
        )
        return ()
    simple = env.get("VLLM_USE_SIMPLE_KV_OFFLOAD") not in {None, "", "0"}
    given = config.get("kv_connector_extra_config")
    options = {**(given if isinstance(given, dict) else {}), "cpu_bytes_to_use": size * GIB}
    return (Connector("SimpleCPUOffloadConnector" if simple else "OffloadingConnector", _numbers(options)),)


def _named(config: Mapping[str, object], depth: int) -> Iterator[Connector]:
    name, extra, device = (config.get(k) for k in ("kv_connector", "kv_connector_extra_config", "kv_buffer_device"))
    if not isinstance(name, str) or depth > _DEPTH:
        return
    options = extra if isinstance(extra, dict) else {}
    if name != "MultiConnector":
        yield Connector(name, _numbers(options), device if isinstance(device, str) else "")
        return
    inner = options.get("connectors")
    for each in inner if isinstance(inner, list) else ():
        if isinstance(each, dict):
            yield from _named(each, depth + 1)
