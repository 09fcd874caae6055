"""Whether a launch compiles its model, and whether Inductor times the kernels that it combines: what the launch, the
release and the model decide of it (config/vllm.py, config/compilation.py; read in 0.11.2 to 0.33.0)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from vllm_doctor.knowledge.traits import breaks_by_itself
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.flags import Flags


class Timed(Enum):
    """At which starts kernels are timed."""

    NEVER = "never"
    FIRST = "where no earlier start has left its code"
    EVERY = "always"


_COMPILES = {"3", "VLLM_COMPILE"}
# Graphs of pieces, which only a compiled model has.
_OF_PIECES = {"PIECEWISE", "FULL_AND_PIECEWISE"}


def _config(flags: Flags) -> dict[str, object]:
    return {} if (flags.text("compilation-config") or "").isdigit() else flags.object("compilation-config")


def _compiles(flags: Flags, env: Mapping[str, str], config: Mapping[str, object]) -> bool:
    """Does the launch alone let vLLM compile? The older `level` is today's `mode`."""
    mode = config.get("mode", config.get("level"))
    if mode is None:
        level = flags.text("compilation-config") or ""
        mode = level if level.isdigit() else "0" if flags.text("optimization-level") == "0" else "3"
    told = str(mode).upper() in _COMPILES and config.get("backend") in {None, "", "inductor"}
    return told and env.get("TORCH_COMPILE_DISABLE") != "1" and not flags.on("enforce-eager", default=False)


def captures_nothing(flags: Flags, env: Mapping[str, str], version: Version) -> bool:
    """Are no graphs captured? Asked for, or since the graphs are of pieces and nothing is compiled: until 0.30, which
    keeps those of whole decoding batches."""
    config = _config(flags)
    if flags.on("enforce-eager", default=False) or flags.text("optimization-level") == "0":
        return True
    graphs = str(config.get("cudagraph_mode") or "FULL_AND_PIECEWISE").upper()
    of_pieces = graphs in _OF_PIECES and not behaviour(version).keeps_decode_graphs
    return graphs == "NONE" or (of_pieces and not _compiles(flags, env, {**config, "backend": None}))


def times_kernels(
    flags: Flags, env: Mapping[str, str], architecture: str, version: Version, *, forgets: bool = False
) -> Timed:
    """At which starts kernels are timed, on copies of what they read; `forgets` where each start has a container of its
    own, which keeps no code."""
    config = _config(flags)
    asked = env.get("VLLM_USE_BREAKABLE_CUDAGRAPH")
    breaks = asked == "1" or (asked is None and breaks_by_itself(architecture, version))
    inductor = config.get("inductor_compile_config")
    own = inductor if isinstance(inductor, dict) else {}
    names = ("combo_kernels", "benchmark_combo_kernel")
    timed = all(own.get(name) is True for name in names) or not any(name in own for name in names)
    if breaks or not timed or not _compiles(flags, env, config) or not behaviour(version).benchmarks_kernels:
        return Timed.NEVER
    return Timed.EVERY if forgets or env.get("VLLM_DISABLE_COMPILE_CACHE") == "1" else Timed.FIRST
