"""Room for LoRA adapters: --enable-lora allocates it for --max-loras adapters of --max-lora-rank when the model is
loaded, whatever adapters come later (lora/model_manager.py _create_lora_modules, lora/layers/*)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.knowledge.adapted import HEAD, adapted_words
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.matrices import Matrix, layer_matrices

# What vLLM fuses, and so adapts as one, whichever of its parts is named (lora/utils.py is_in_target_modules).
_FUSED = {"qkv": "qkv_proj", "in": "in_proj_qkvz", "w13": "experts"}


def lora_bytes(a: Architecture, s: Settings, stage: int) -> float:
    """Bytes on one rank: for each matrix as the rank holds it `rank` rows of its inputs and of its outputs. The vision
    tower has none unless it is asked for; experts have some since 0.11.1; embedding and head, which are as long as the
    vocabulary on every rank, where the model's class says so."""
    if not s.loras:
        return 0.0
    par: Parallel = s.parallel
    parts = par.stages(len(a.layers))
    start = sum(parts[:stage])
    values = sum(
        m.count * (m.out + m.inner)
        for index in range(start, start + parts[stage])
        for m in _asked(layer_matrices(a, index, par, "model.layers"), s.lora_targets)
        if not m.vector and (s.does.adapts_experts or not m.expert)
    )
    for name in adapted_words(a.name, s.version) or ():
        here = par.heads(stage) and not s.pooling if name == HEAD else par.embeds(stage, tied=a.tied)
        if here and (s.lora_targets is None or name in s.lora_targets):
            values += a.vocab + a.hidden
    return s.loras * s.lora_rank * values * s.element


def _asked(layer: Iterable[Matrix], targets: frozenset[str] | None) -> Iterator[Matrix]:
    """The matrices that --lora-target-modules names: all of them without it."""
    matrices = list(layer)
    named = {m.tensor for m in matrices if m.tensor and _names(m) & (targets or set())}
    for m in matrices:
        if targets is None or m.tensor in named or _names(m) & targets:
            yield m


def _names(m: Matrix) -> set[str]:
    """What a matrix may be called by."""
    own = m.name.rpartition(".")[2]
    parent = _FUSED.get(m.tensor, f"{m.tensor.rpartition('.')[2]}_proj" if m.tensor else "")
    return {"experts"} if m.expert else {own, parent} - {""}
