"""Weights that stay on the host: where a layer holds one of them under two names, and beside several kinds of cache."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.model import windowed


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal at most."""
    yield from _of_two_names(a, s)
    several = a.hybrid or (s.hybrid_manager and s.does.groups_kinds and windowed(a))
    if s.engine == "V1" and s.does.offload_keeps_one_block and s.host.weights_gib > 0 and several:
        needed = f"0, or vLLM 0.20: {s.version} keeps no weights on the host beside several kinds of cache"
        yield Refusal("--cpu-offload-gb", f"{s.host.weights_gib:g}", needed)


def _of_two_names(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """V0 runs an offloaded layer by torch.func.functional_call with all names of its state (models/utils.py
    maybe_offload_to_cpu), which raises for a value of two names: so has the bias of a router that its experts hold too
    (models/deepseek_v2.py, FusedMoE e_score_correction_bias; read in 0.6.6, 0.7.2, 0.8.5 and 0.9.2). The first layers,
    which have no experts, are less than 1 GiB of a rank."""
    if s.engine == "V0" and a.moe is not None and a.moe.router_bias and s.host.weights_gib >= 1:
        yield Refusal(
            "--cpu-offload-gb",
            f"{s.host.weights_gib:g}",
            f"0: V0 of {s.version} runs no offloaded layer of {a.name or a.model_type}, whose router's bias has two "
            f"names",
        )
