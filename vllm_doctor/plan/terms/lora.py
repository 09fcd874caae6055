"""Room for LoRA adapters: --enable-lora allocates it for --max-loras adapters of --max-lora-rank when the model is
loaded, whatever adapters come later (lora/model_manager.py _create_lora_modules, lora/layers/*)."""

from __future__ import annotations

from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.matrices import layer_matrices

# Models that also adapt their embedding and their head, which are as long as the vocabulary on every rank
# (models/*.py embedding_modules).
_EMBEDDINGS = frozenset(
    {
        "llama", "mistral", "mixtral", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared", "jamba",
        "nemotron", "nemotron_h", "exaone", "exaone4", "falcon_h1", "lfm2", "lfm2_moe", "phimoe", "minicpm", "apertus",
    }
)  # fmt: skip


def lora_bytes(a: Architecture, s: Settings, stage: int) -> float:
    """Bytes on one rank: for each matrix as the rank holds it `rank` rows of its inputs and of its outputs. The vision
    tower has none unless it is asked for; experts have some since 0.11.1."""
    if not s.loras:
        return 0.0
    par: Parallel = s.parallel
    parts = par.stages(len(a.layers))
    start = sum(parts[:stage])
    values = sum(
        m.count * (m.out + m.inner)
        for index in range(start, start + parts[stage])
        for m in layer_matrices(a, index, par, "model.layers")
        if not m.vector and (s.does.adapts_experts or not m.expert)
    )
    if a.model_type in _EMBEDDINGS:
        values += (a.vocab + a.hidden) * ((stage == 0) + (stage == par.pp - 1))
    return s.loras * s.lora_rank * values * s.element
