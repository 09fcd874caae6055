"""What a vision tower and its projector weigh."""

from __future__ import annotations

from math import ceil

from vllm_doctor.plan.model.architecture import Vision
from vllm_doctor.plan.model.quantization import Format, Scheme

# A linear layer of a tower, and one of what joins it to the text model, by the names that towers go under.
_TOWERS = {"qwen": ("model.visual.blocks.0.attn.qkv", "model.visual.merger.linear_fc1")}
_OTHER_TOWER = ("model.vision_tower.encoder.layers.0.self_attn.q_proj", "model.multi_modal_projector.linear_1")
# Towers whose linear layers are given no quantization (their modules in model_executor/models).
_NEVER_QUANTIZED = frozenset({"moonvit", "llama4_vision_model", "mllama_vision_model"})
_ANY_WIDTH = frozenset({"bitsandbytes", "compressed-tensors"})


def _tower_formats(v: Vision, scheme: Scheme, base: Format) -> tuple[Format, Format]:
    """How a tower's blocks and its projector are stored. vLLM quantizes them as any other linear layer where nothing
    leaves them out; Gemma 4's only where a kernel takes their widths (gemma4_mm.py _get_tower_quant_config)."""
    narrow = v.kind.startswith("gemma4") and (v.hidden % 64 or v.width % 64) and scheme.name not in _ANY_WIDTH
    if not scheme.towers or v.kind in _NEVER_QUANTIZED or narrow:
        return base, base
    block, join = next((names for kind, names in _TOWERS.items() if kind in v.kind), _OTHER_TOWER)
    return scheme.choose(block, False), scheme.choose(join, False)


def vision_bytes(v: Vision, hidden: int, base: Format, tp: int, scheme: Scheme) -> float:
    """Bytes of a vision tower and its projector. Blocks are split by TP, embeddings and projectors mostly are not."""
    depth = v.layers - 1 if v.kind == "clip_vision_model" else v.layers
    # InternViT's attention is whole on each rank where its heads do not divide (intern_vit.py InternSdpaAttention).
    whole = v.kind.startswith("intern_vit") and v.heads % tp
    block = 4 * v.hidden * v.hidden / (1 if whole else tp) + (3 if v.gated else 2) * v.hidden * v.width / tp
    embed = v.patch * v.patch * 3 * v.hidden * (2 if "qwen" in v.kind else 1) + v.positions * v.hidden
    listed = v.kind in {"siglip_vision_model", "clip_vision_model"} or v.queries
    embed += (v.image_size // v.patch) ** 2 * v.hidden if listed else 0
    merged = v.hidden * v.merge * v.merge
    if v.queries:
        # Attention of the queries to the image, what brings it to the text's width, and a last matrix (resampler.py).
        project: float = 5 * hidden * hidden + (v.hidden + v.queries) * hidden
    elif "qwen" in v.kind or v.kind in {"moonvit", "dots_vit"}:
        inner = v.hidden * 4 if v.kind == "moonvit" else merged
        project = (inner * inner + inner * (v.out or hidden)) * (1 + v.deepstack) / (1 if v.kind == "moonvit" else tp)
    elif v.kind == "pixtral":
        project = merged * v.hidden + v.hidden * hidden + hidden * hidden
    elif v.kind == "clip_vision_model" or v.kind.startswith("intern"):
        project = merged * hidden + hidden * hidden  # internvl.py mlp1
    elif v.kind == "mllama_vision_model":
        project = v.out * hidden  # what several layers say, side by side
    else:
        project = v.hidden * hidden
    blocks, joined = _tower_formats(v, scheme, base)
    plain_bytes = base.bytes(1, 1)
    total = (depth * 9 * v.hidden + embed) * plain_bytes
    return total + depth * blocks.bytes(ceil(block / v.hidden), v.hidden) + joined.bytes(ceil(project / hidden), hidden)
