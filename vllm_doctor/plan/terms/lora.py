"""Room for LoRA adapters: --enable-lora allocates it for --max-loras adapters of --max-lora-rank when the model is
loaded, whatever adapters come later (lora/model_manager.py _create_lora_modules, lora/layers/*)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

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
        m.count * _each(m, whole, par, shared=s.lora_shared)
        for index in range(start, start + parts[stage])
        for m, whole in _asked(a, index, par, s.lora_targets)
        if not m.vector and (s.does.adapts_experts or not m.expert)
    )
    for name in adapted_words(a.name, s.version) or ():
        here = par.heads(stage) and not s.pooling if name == HEAD else par.embeds(stage, tied=a.tied)
        if here and (s.lora_targets is None or name in s.lora_targets):
            values += a.vocab + a.hidden
    return s.loras * s.lora_rank * values * s.element


def _each(m: Matrix, whole: Matrix, par: Parallel, *, shared: bool) -> float:
    """Values of one rank of an adapter's for this matrix. Fully sharded, what a rank had whole is shared as well: of a
    matrix split by its outputs the part behind the inputs, of one split by its inputs the part before the outputs
    (lora/layers/column_parallel_linear.py, row_parallel_linear.py, fused_moe.py); one that is not split stays."""
    ranks = par.width_split if m.expert else par.tp
    if not shared or ranks == 1:
        return m.out + m.inner
    if m.inner < whole.inner:
        return m.out / ranks + m.inner
    return m.out + m.inner / ranks if m.out < whole.out or m.tensor == "qkv" else m.out + m.inner


def _asked(
    a: Architecture, index: int, par: Parallel, targets: frozenset[str] | None
) -> Iterator[tuple[Matrix, Matrix]]:
    """The matrices that --lora-target-modules names, all of them without it: as a rank holds them, and whole."""
    one = replace(par, tp=1, dp=1, prefill=1, expert=False)
    matrices = [list(layer_matrices(a, index, p, "model.layers")) for p in (par, one)]
    named = {m.tensor for m in matrices[0] if m.tensor and _names(m) & (targets or set())}
    for m, whole in zip(*matrices, strict=True):
        if targets is None or m.tensor in named or _names(m) & targets:
            yield m, whole


def _names(m: Matrix) -> set[str]:
    """What a matrix may be called by."""
    own = m.name.rpartition(".")[2]
    parent = _FUSED.get(m.tensor, f"{m.tensor.rpartition('.')[2]}_proj" if m.tensor else "")
    return {"experts"} if m.expert else {own, parent} - {""}
