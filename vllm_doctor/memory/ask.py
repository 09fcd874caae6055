"""Small questions that rules ask of the memory model: each takes plain facts and answers with a figure, or None for
not known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.knowledge.versions import parse_version
from vllm_doctor.memory.activation import tensor
from vllm_doctor.memory.architecture import Architecture
from vllm_doctor.memory.describe import describe
from vllm_doctor.memory.flags import SettingError
from vllm_doctor.memory.kv import Pool
from vllm_doctor.memory.launch import LaunchError, parse_launch
from vllm_doctor.memory.pages import pool_of
from vllm_doctor.memory.plan import GIB
from vllm_doctor.memory.question import Planner, PlanProblem, Question, planner
from vllm_doctor.memory.reading import ConfigError, read_config
from vllm_doctor.memory.resolve import resolve

__all__ = [
    "activation_gib",
    "bytes_per_token",
    "longest_request",
    "needed_gib",
    "pool_for",
    "tensor",
    "utilization_gib",
    "what_if",
]

_PROBLEMS = (PlanProblem, ConfigError, LaunchError, SettingError)


def activation_gib(tokens: int, width: int, element: int = 2) -> float:
    """GiB of one (tokens x width) activation: 200000 x 14336 x 2 B = 5.34 GiB."""
    return tensor(tokens, width, element) / GIB


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, *, tp: int = 1, element: int = 2) -> int:
    """Bytes of KV per token and rank of a full-attention model: layers x heads x 2 x head size x element. KV heads
    are copied when TP exceeds them (v1/kv_cache_interface.py FullAttentionSpec)."""
    return layers * max(1, kv_heads // tp) * 2 * head_dim * element


def architecture(config: Path) -> Architecture | None:
    """The architecture of a config.json, or None when it cannot be read."""
    try:
        return describe(read_config(config))
    except ConfigError:
        return None


def pool_for(config: Path, argv: list[str], version: str) -> Pool | None:
    """The KV pool's arithmetic for a model and its launch line; None when either cannot be read."""
    parsed = parse_version(version)
    arch = architecture(config)
    if parsed is None or arch is None:
        return None
    try:
        settings = resolve(parse_launch(argv, parsed), parsed, arch, None, None, 4096)
    except _PROBLEMS:
        return None
    return pool_of(arch, settings, None)


def needed_gib(pool: Pool, length: int) -> float:
    """GiB that vLLM wants before it serves one request of `length` tokens."""
    return pool.needed(length) / GIB


def longest_request(pool: Pool, available_gib: float, limit: int) -> int:
    """The largest max_model_len up to `limit` that a pool of this size allows; 0 if none."""
    return pool.longest(available_gib * GIB, limit)


def utilization_gib(total_gib: float, before: float, after: float) -> float:
    """GiB by which the pool grows when gpu_memory_utilization goes from `before` to `after` and nothing else
    changes."""
    return total_gib * (after - before)


@dataclass(frozen=True)
class Known:
    """What a host told: enough for a prediction of changed flags."""

    config: Path
    argv: tuple[str, ...]
    version: str
    gpu: str | None = None
    total_gib: float | None = None
    gpus: int = 1


def what_if(known: Known, changes: dict[str, str | bool | None]) -> float | None:
    """GiB of KV pool predicted for the launch with changed flags; None when the facts do not allow a prediction."""
    try:
        plan: Planner = planner(
            Question(
                known.argv,
                known.gpu,
                known.gpus,
                None if known.total_gib is None else f"{known.total_gib:.3f}",
                known.version,
                str(known.config),
            )
        )
        return plan.predict(changes).available_kv_gib
    except _PROBLEMS:
        return None
