"""Weight bytes of one rank: the matrices of its layers, fused and rounded as they are allocated, and the rest
(distributed/utils.py: layers of a pipeline stage)."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.generations import ADA, BLACKWELL, HOPPER
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture, Attention
from vllm_doctor.plan.model.quantization import (
    BNB4,
    BNB4_TWICE,
    FP8_LOADED,
    MXFP4,
    Format,
    Scheme,
    unquantized_format,
)
from vllm_doctor.plan.terms.matrices import Matrix, layer_matrices, padded_vocab
from vllm_doctor.plan.terms.vision_weights import vision_bytes

GIB = 1 << 30
MIB = 1 << 20
# Words that the published EAGLE-3 drafters choose from; one may have the model's whole vocabulary.
EAGLE3_VOCAB = 32_000


class WeightTarget(msgspec.Struct, frozen=True):
    """Where the weights go: bytes per value of the model dtype, the allocator's habit, padding of MXFP4 experts."""

    element: int = 2
    splits_large: bool = True  # False from 0.21: no block above 20 MiB is split while loading (gpu_worker.py)
    capability: float | None = None
    rope_element: int = 2
    rope_rows: int | None = None
    undoes_double: bool = True  # False to 0.9.1: what bitsandbytes quantizes twice stays so


def allocated(size: float, *, splits_large: bool = True) -> float:
    """Bytes torch's caching allocator charges for one tensor (c10/cuda/CUDACachingAllocator.cpp).

    A request of 10 MiB and more gets a segment rounded up to 2 MiB; what is left over is split off when it is above
    1 MiB, unless max_split_size forbids it (blocks of 20 MiB and more while vLLM 0.21+ loads). Smaller requests share
    segments, so only their 512-byte rounding counts.
    """
    if size < 10 * MIB:
        return ceil(size / 512) * 512
    rounded = ceil(size / (2 * MIB)) * 2 * MIB
    spare = rounded - size
    split = spare > MIB and (splits_large or rounded < 20 * MIB)
    return size if split else rounded


def rope_bytes(a: Architecture, target: WeightTarget) -> float:
    """The cos/sin tables, kept like weights: rows x rotary size for every distinct rope (rotary_embedding/*).

    Linear scaling stretches the table by its factor, multimodal rope keeps four lengths (mrope.py).
    """
    if target.rope_rows is not None:
        return target.rope_rows * a.head_dim * target.rope_element
    return sum(rows * width for rows, width in a.ropes) * target.rope_element


def step_buffers(a: Architecture, tokens: int, element: int) -> float:
    """Bytes that a model allocates with its weights for the widest step of `tokens`, and that "Model loading took"
    counts: the inner features of Qwen3-VL's encoder, one hidden state a level (qwen3_vl.py deepstack_input_embeds),
    the per-layer embeddings of multimodal Gemma 3n and 4 (gemma4_mm.py, gemma3n_mm.py per_layer_embeddings), and the
    tokens that an indexer chooses, 4 bytes each (deepseek_v2.py topk_indices_buffer)."""
    if a.mla is not None and a.mla.indexer_top:
        return 4.0 * tokens * a.mla.indexer_top
    if a.compressed is not None:
        # Beside the chosen tokens the streams of the widest step, kept for a drafter (nvidia/model.py DeepseekV4Model).
        return float(tokens * (4 * a.compressed.indexer_top + a.compressed.streams * a.hidden * element))
    if a.vision is None:
        return 0.0
    levels = a.vision.deepstack * a.hidden if a.vision.kind.startswith("qwen3_vl") else 0
    return float(tokens * (levels + len(a.layers) * a.per_layer_input) * element)


def padded(m: Matrix, fmt: Format, target: WeightTarget) -> Matrix:
    """MXFP4 experts are padded to the kernel's tile: Marlin (below compute capability 9) hidden 256 and width 128,
    Triton on Hopper the inner side 256 (its value layout), Blackwell both 256 (fused_moe/oracle/mxfp4.py). Experts that
    are quantized in blocks as they load are padded to whole blocks (online/fp8.py maybe_roundup_sizes)."""
    if fmt is FP8_LOADED and m.expert:
        rows, columns = (ceil(side / fmt.block) * fmt.block for side in (m.out, m.inner))
        return Matrix(m.name, rows, columns, m.count, expert=True, tensor=m.tensor)
    if fmt is not MXFP4 or target.capability is None or not m.expert:
        return m
    down = m.name.endswith("down_proj")

    def up(value: float, step: int) -> float:
        return ceil(value / step) * step

    if HOPPER <= target.capability < BLACKWELL:
        out, inner = (m.out, m.inner) if down else (up(m.out, 64), m.inner)
        return Matrix(m.name, out, up(up(inner, 64), 256), m.count, expert=True, tensor=m.tensor)
    hidden, width = (256, 128) if target.capability < HOPPER else (256, 256)
    out, inner = (hidden, width) if down else (width, hidden)
    return Matrix(m.name, up(m.out, out), up(m.inner, inner), m.count, expert=True, tensor=m.tensor)


def as_kernel_keeps(fmt: Format, target: WeightTarget) -> Format:
    """Marlin knows no blocks: each scale of a block is repeated for its rows, in the model dtype, a group of the input
    side apart (marlin_utils_fp8.py prepare_fp8_layer_for_marlin, prepare_fp8_moe_layer_for_marlin). What bitsandbytes
    quantizes twice later releases keep once."""
    if fmt is BNB4_TWICE and target.undoes_double:
        return BNB4
    # Marlin multiplies 8-bit floats, weights alone in 8 bits (utils/marlin_utils_fp8.py).
    marlin = target.capability is not None and target.capability < ADA
    if not (marlin and fmt.block and fmt.bits == 8):
        return fmt
    return Format(fmt.name, fmt.bits, fmt.block, target.element)


class Tensors(msgspec.Struct, frozen=True):
    """The parameters of one layer: bytes of each that vLLM allocates, by its name there, and what its scales take
    beside."""

    sizes: dict[str, float]
    scales: float


# Matrices that vLLM fuses, by the name that the fused parameter has in its modules.
_FUSED = {"qkv": "self_attn.qkv_proj.weight", "in": "linear_attn.in_proj_qkvz.weight", "w13": "mlp.experts.w13_weight"}


def tensors(matrices: Iterable[Matrix], scheme: Scheme, base: Format, target: WeightTarget) -> Tensors:
    """What one layer allocates on a rank, in the order of its matrices."""
    fused: dict[str, float] = {}
    scales = 0.0
    for n, plain_matrix in enumerate(matrices):
        chosen = base if plain_matrix.vector else scheme.choose(plain_matrix.name, plain_matrix.expert)
        m, fmt = padded(plain_matrix, chosen, target), as_kernel_keeps(chosen, target)
        out, inner = ceil(m.out), ceil(m.inner)
        values = out * inner * fmt.bits / 8 * m.count
        scales += fmt.bytes(out, inner) * m.count - values
        key = _parameter(m, n)
        fused[key] = fused.get(key, 0.0) + values
    return Tensors(fused, scales)


def _parameter(m: Matrix, n: int) -> str:
    """The name that vLLM's module gives the parameter; a number beside it where several have one name."""
    if m.expert and not m.tensor:
        return "mlp.experts.w2_weight"
    if m.tensor:
        return _FUSED.get(m.tensor, f"{m.tensor}_proj.weight")
    return f"{m.name}.weight" if "." in m.name else f"{m.name}#{n}"


def _sum(matrices: Iterable[Matrix], scheme: Scheme, base: Format, target: WeightTarget) -> float:
    """Bytes of the tensors of one layer, fused and rounded as they are allocated."""
    found = tensors(matrices, scheme, base, target)
    return found.scales + sum(allocated(size, splits_large=target.splits_large) for size in found.sizes.values())


def _layers(  # noqa: PLR0917
    a: Architecture, layers: range, par: Parallel, scheme: Scheme, base: Format, target: WeightTarget
) -> float:
    """Bytes of these layers; those that are alike, formats and all, are summed once."""
    prefix = f"{a.text_prefix}.layers"
    named: dict[tuple[Attention, bool], list[tuple[str, bool]]] = {}
    sums: dict[tuple[object, ...], float] = {}
    total = 0.0
    for i in layers:
        kind = a.layers[i], a.moe is not None and i in a.moe.layers
        if kind not in named:
            # Layers of one kind have the same matrices, each under its own number.
            found, own = layer_matrices(a, i, par, prefix), f"{prefix}.{i}"
            named[kind] = [(m.name.removeprefix(own), m.expert) for m in found if not m.vector]
        like = (kind, *(scheme.choose(f"{prefix}.{i}{name}", expert) for name, expert in named[kind]))
        if like not in sums:
            sums[like] = _sum(layer_matrices(a, i, par, prefix), scheme, base, target)
        total += sums[like]
    return total


def _per_layer(a: Architecture, par: Parallel, stage: int, layers: int) -> float:
    """Values of what each layer hears of the tokens beside the hidden states: the table and the projection beside it
    are split among ranks, and stand where the embedding does; each layer's two projections are whole on each rank
    (gemma4.py, gemma3n.py embed_tokens_per_layer, per_layer_model_projection, per_layer_input_gate)."""
    each = a.per_layer_input
    if not each:
        return 0.0
    words = (padded_vocab(a.per_layer_words, par.tp) + a.hidden) * each * len(a.layers) / par.tp
    return words * par.embeds(stage, tied=a.tied) + 2.0 * layers * each * a.hidden


def mtp_bytes(a: Architecture, scheme: Scheme, par: Parallel, target: WeightTarget) -> float:
    """Layers of multi-token prediction, each like the model's last one, with the projection of two hidden states to
    one (models/*_mtp.py)."""
    base = unquantized_format(target.element)
    sparse = a.mla is not None and a.mla.indexer_top > 0  # each of them has an indexer
    made = replace(a, layers=(*a.layers[:-1], replace(a.layers[-1], indexed=True))) if sparse else a
    each = _sum(layer_matrices(made, len(a.layers) - 1, par, "mtp.layers"), scheme, base, target)
    return a.mtp_layers * (each + 2 * a.hidden * a.hidden * target.element)


def rank_weights(
    a: Architecture,
    scheme: Scheme,
    par: Parallel,
    stage: int,
    target: WeightTarget,
    *,
    draft_mtp: bool = False,
    draft_eagle: bool = False,
    draft_eagle3: bool = False,
) -> float:
    """Bytes that "Model loading took" reports for one rank of pipeline stage `stage`."""
    base = unquantized_format(target.element)
    parts = par.stages(len(a.layers))
    start = sum(parts[:stage])
    total = _layers(a, range(start, start + parts[stage]), par, scheme, base, target)
    rows = padded_vocab(a.vocab, par.tp) // par.tp
    last = stage == par.pp - 1
    if par.embeds(stage, tied=a.tied):
        total += allocated((scheme.embeds or base).bytes(rows, a.hidden), splits_large=target.splits_large)
    if par.heads(stage) and not a.tied:
        head = scheme.embeds or scheme.choose("lm_head", False)
        total += allocated(head.bytes(rows, a.hidden), splits_large=target.splits_large)
    if last and par.pp > 1 and (draft_eagle or (draft_mtp and a.mtp_layers)):
        # Of several stages none shares its embedding with the drafter (v1/spec_decode _maybe_share_embeddings,
        # v1/worker/gpu/spec_decode/eagle/utils.py: read in 0.9.2 to 0.33.0).
        total += allocated(base.bytes(rows, a.hidden), splits_large=target.splits_large)
    if last:
        total += a.hidden * target.element
        if draft_mtp and a.mtp_layers:
            total += mtp_bytes(a, scheme, par, target)
        if draft_eagle:
            # One layer in the model dtype and the projection of two hidden states to one (llama_eagle.py). No class of
            # EAGLE 3 has experts (llama_eagle3.py, qwen3_eagle3.py, deepseek_eagle3.py).
            like = replace(a, moe=None) if draft_eagle3 and a.width else a
            first = next((i for i, x in enumerate(a.layers) if x.heads), 0)
            index = first if draft_eagle3 and a.mla is None else len(a.layers) - 1
            drafter = layer_matrices(like, index, par, "draft.layers")
            total += _sum(drafter, Scheme("none", lambda _n, _e: base), base, target)
            total += 2 * a.hidden**2 * target.element
        if draft_eagle3:
            # Three hidden states are joined, attention sees embeddings beside them, and it has a head of its own
            # (llama_eagle3.py).
            seen = a.layers[first]
            wide = (seen.heads + 2 * seen.kv_heads) * seen.head_dim / par.tp
            own = min(EAGLE3_VOCAB, a.vocab) / par.tp
            total += (wide + a.hidden + own) * a.hidden * target.element
    total += _per_layer(a, par, stage, parts[stage]) * target.element
    if stage == 0:
        # An encoder beside the decoder, its two convolutions and positions, and the decoder's attention to it
        # (whisper.py).
        encoder = a.encoder_layers * (4 * a.hidden + 2 * a.width)
        encoder += (4 * len(a.layers) * a.hidden + 3 * (a.encoder_input + a.hidden)) * bool(a.encoder_layers)
        total += (encoder / par.tp + a.encoder_context * bool(a.encoder_layers)) * a.hidden * target.element
    if a.positions and stage == 0:
        total += a.positions * a.hidden * target.element
    if a.vision is not None:
        total += vision_bytes(a.vision, a.hidden, base, par.tower_split, scheme) + a.audio_weights * target.element
    return total + rope_bytes(a, target)
