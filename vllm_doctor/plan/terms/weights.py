"""Weight bytes of one rank: every matrix of the model, split as vLLM's parallel layers split it.

Sources: model_executor/layers/linear.py (column, row, QKV with replicated KV heads), vocab_parallel_embedding.py
(vocabulary padded to 64), fused_moe/layer.py (experts), mla_attention.py (absorbed up-projections kept beside
kv_b_proj), distributed/utils.py (layers of a pipeline stage).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

import msgspec

from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import RECURRENT, Architecture, Attention, Vision
from vllm_doctor.plan.model.families import ATTENTION_NAMES, MLP_NAMES
from vllm_doctor.plan.model.quantization import MXFP4, Format, Scheme, unquantized_format

GIB = 1 << 30
# Words that the published EAGLE-3 drafters choose from; one may have the model's whole vocabulary.
EAGLE3_VOCAB = 32_000


class Matrix(msgspec.Struct, frozen=True):
    """One weight of a layer: name in the checkpoint, shape on this rank, how many times. Matrices of one `tensor` are
    fused by vLLM into one allocation (qkv_proj, gate_up_proj); a `vector` keeps the model dtype."""

    name: str
    out: float
    inner: float
    count: float = 1
    expert: bool = False
    vector: bool = False
    tensor: str = ""


class WeightTarget(msgspec.Struct, frozen=True):
    """Where the weights go: bytes per value of the model dtype, the allocator's habit, padding of MXFP4 experts."""

    element: int = 2
    splits_large: bool = True  # False from 0.21: no block above 20 MiB is split while loading (gpu_worker.py)
    capability: float | None = None
    rope_element: int = 2
    rope_rows: int | None = None


MIB = 1 << 20


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


def _kv(heads: int, tp: int) -> int:
    return max(1, heads // tp)


def _attention(a: Architecture, layer: Attention, p: str, tp: int) -> Iterator[Matrix]:
    if layer.kind == "mla" and a.mla is not None:
        yield from _mla(a, p, tp, indexed=layer.indexed)
        return
    p = f"{p}.{ATTENTION_NAMES.get(a.model_type, 'self_attn')}"
    q = layer.heads * layer.head_dim // tp
    k = _kv(layer.kv_heads, tp) * layer.head_dim
    v = _kv(layer.kv_heads, tp) * layer.value_dim
    yield Matrix(f"{p}.q_proj", q * (2 if a.output_gate else 1), a.hidden, tensor="qkv")
    if not (layer.shares_kv and a.shares_weights):
        yield Matrix(f"{p}.k_proj", k, a.hidden, tensor="qkv")
        yield Matrix(f"{p}.v_proj", v, a.hidden, tensor="qkv")
    yield Matrix(f"{p}.o_proj", a.hidden, layer.heads * layer.value_dim // tp)
    if a.qkv_bias:
        yield Matrix("bias", q + k + v, 1, vector=True)
    if a.out_bias:
        yield Matrix("bias", a.hidden, 1, vector=True)
    if a.qk_norm:
        yield Matrix("norm", 2 * layer.head_dim, 1, vector=True)


def _mla(a: Architecture, p: str, tp: int, *, indexed: bool) -> Iterator[Matrix]:
    m = a.mla
    if m is None:
        return
    heads = a.heads // tp
    if m.q_rank:
        yield Matrix(f"{p}.self_attn.q_a_proj", m.q_rank, a.hidden)
        yield Matrix(f"{p}.self_attn.q_b_proj", heads * (m.nope + m.rope), m.q_rank)
    else:
        yield Matrix(f"{p}.self_attn.q_proj", heads * (m.nope + m.rope), a.hidden)
    yield Matrix(f"{p}.self_attn.kv_a_proj_with_mqa", m.kv_rank + m.rope, a.hidden)
    yield Matrix(f"{p}.self_attn.kv_b_proj", heads * (m.nope + m.value), m.kv_rank)
    # process_weights_after_loading keeps W_UK_T and W_UV in the model dtype beside kv_b_proj.
    yield Matrix("absorbed", heads * (m.nope + m.value), m.kv_rank, vector=True)
    yield Matrix(f"{p}.self_attn.o_proj", a.hidden, heads * m.value)
    if indexed:
        # On every rank whole; keys and weights are one matrix in the model dtype (deepseek_v2.py Indexer).
        yield Matrix(f"{p}.self_attn.indexer.wq_b", m.indexer_heads * m.indexer_dim, m.q_rank or a.hidden)
        yield Matrix("indexer", m.indexer_dim + m.indexer_heads, a.hidden, vector=True)


def _recurrent(a: Architecture, p: str, tp: int) -> Iterator[Matrix]:
    r = a.linear
    if r is None:
        return
    keys, values = r.key_heads * r.key_dim // tp, r.value_heads * r.value_dim // tp
    if r.kind == "gdn":
        yield Matrix(f"{p}.linear_attn.in_proj_qkv", 2 * keys + values, a.hidden, tensor="in")
        yield Matrix(f"{p}.linear_attn.in_proj_z", values, a.hidden, tensor="in")
        yield Matrix(f"{p}.linear_attn.in_proj_a", r.value_heads // tp, a.hidden)
        yield Matrix(f"{p}.linear_attn.in_proj_b", r.value_heads // tp, a.hidden)
        yield Matrix(f"{p}.linear_attn.out_proj", a.hidden, values)
        yield Matrix("conv", (2 * keys + values) * r.conv, 1, vector=True)
        return
    if r.kind == "conv":
        yield Matrix(f"{p}.conv.in_proj", 3 * a.hidden / tp, a.hidden)
        yield Matrix(f"{p}.conv.out_proj", a.hidden, a.hidden / tp)
        return
    if r.kind == "mamba1":
        yield Matrix(f"{p}.mixer.in_proj", 2 * values, a.hidden)
        yield Matrix(f"{p}.mixer.x_proj", r.step_rank + 2 * r.key_dim, values)
        yield Matrix(f"{p}.mixer.dt_proj", values, r.step_rank)
        yield Matrix(f"{p}.mixer.out_proj", a.hidden, values)
        yield Matrix("conv", values * r.conv, 1, vector=True)
        yield Matrix("A, D", values * (r.key_dim + 1), 2, vector=True)  # in 4 bytes
        return
    projected = 2 * values + 2 * keys + r.value_heads // tp
    yield Matrix(f"{p}.mixer.in_proj", projected, a.hidden)
    yield Matrix(f"{p}.mixer.out_proj", a.hidden, values)
    yield Matrix("conv", (values + 2 * keys) * r.conv, 1, vector=True)


def feed_forward(a: Architecture, index: int, p: str, par: Parallel) -> Iterator[Matrix]:
    """The matrices of one layer's MLP or experts, as one rank holds them (fused_moe/layer.py)."""
    moe = a.moe if a.moe is not None and index in a.moe.layers else None
    dense, sparse = (f"{p}.{name}" for name in MLP_NAMES.get(a.model_type, ("mlp", "mlp")))
    if moe is None:
        if a.width:
            times = 2 if a.double_wide and a.layers[index].shares_kv else 1
            yield from _mlp(a, dense, times * a.width / par.tp)
        return
    held = ceil(moe.experts / par.expert_split) if par.expert else moe.experts
    wide = moe.width if par.expert else moe.width / par.tp
    # Where the MLP has no gate, the experts have none either (fused_moe/layer.py is_act_and_mul).
    for part in ("gate_proj", "up_proj") if a.gated_mlp else ("up_proj",):
        yield Matrix(f"{sparse}.experts.0.{part}", wide, a.hidden, held, expert=True, tensor="w13")
    yield Matrix(f"{sparse}.experts.0.down_proj", a.hidden, wide, held, expert=True)
    yield Matrix(f"{sparse}.gate", moe.experts, a.hidden, vector=True)
    if moe.router_bias:
        yield Matrix("bias", moe.experts, 1, vector=True)
    if moe.beside_mlp:
        yield from _mlp(a, dense, a.width / par.tp)
    if moe.shared_width:
        one = moe.shared_gate or a.model_type.startswith("llama4")
        yield from _mlp(a, f"{sparse}.shared_expert" + ("" if one else "s"), moe.shared_width / par.tp)
    if moe.shared_gate:
        yield Matrix("gate", a.hidden, 1, vector=True)
    if a.model_type == "gpt_oss":
        yield Matrix("bias", moe.experts * (2 * moe.width / par.tp + a.hidden), 1, vector=True)


def _mlp(a: Architecture, p: str, width: float) -> Iterator[Matrix]:
    if a.gated_mlp:
        yield Matrix(f"{p}.gate_proj", width, a.hidden, tensor=f"{p}.gate_up")
    yield Matrix(f"{p}.up_proj", width, a.hidden, tensor=f"{p}.gate_up")
    yield Matrix(f"{p}.down_proj", a.hidden, width)


def layer_matrices(a: Architecture, index: int, par: Parallel, prefix: str) -> Iterator[Matrix]:
    """The matrices of one layer as one rank holds them, under the names of the checkpoint."""
    p, layer = f"{prefix}.{index}", a.layers[index]
    if layer.kind in RECURRENT:
        yield from _recurrent(a, p, par.tp)
    elif layer.kind != "none":
        yield from _attention(a, layer, p, par.tp)
    if a.model_type != "nemotron_h" or layer.kind == "none":
        yield from feed_forward(a, index, p, par)
    yield Matrix("norm", a.norms_per_layer * a.hidden, 1, vector=True)


def padded_vocab(vocab: int, tp: int) -> int:
    """Rows of the embedding over all ranks: padded to 64, then to a multiple of TP (vocab_parallel_embedding.py)."""
    rows = ceil(vocab / 64) * 64
    return ceil(rows / tp) * tp


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
    block = (4 * v.hidden * v.hidden + (3 if v.gated else 2) * v.hidden * v.width) / tp
    embed = v.patch * v.patch * 3 * v.hidden * (2 if "qwen" in v.kind else 1) + v.positions * v.hidden
    embed += (v.image_size // v.patch) ** 2 * v.hidden if v.kind in {"siglip_vision_model", "clip_vision_model"} else 0
    merged = v.hidden * v.merge * v.merge
    if "qwen" in v.kind or v.kind == "moonvit":
        inner = merged if "qwen" in v.kind else v.hidden * 4
        project = (inner * inner + inner * (v.out or hidden)) * (1 + v.deepstack) / (tp if "qwen" in v.kind else 1)
    elif v.kind == "pixtral":
        project = merged * v.hidden + v.hidden * hidden + hidden * hidden
    elif v.kind == "clip_vision_model":
        project = merged * hidden + hidden * hidden
    elif v.kind == "mllama_vision_model":
        project = v.out * hidden  # what several layers say, side by side
    else:
        project = v.hidden * hidden
    blocks, joined = _tower_formats(v, scheme, base)
    plain_bytes = base.bytes(1, 1)
    total = (depth * 9 * v.hidden + embed) * plain_bytes
    return total + depth * blocks.bytes(ceil(block / v.hidden), v.hidden) + joined.bytes(ceil(project / hidden), hidden)


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
    if a.vision is None:
        return 0.0
    levels = a.vision.deepstack * a.hidden if a.vision.kind.startswith("qwen3_vl") else 0
    return float(tokens * (levels + len(a.layers) * a.per_layer_input) * element)


def padded(m: Matrix, fmt: Format, target: WeightTarget) -> Matrix:
    """MXFP4 experts are padded to the kernel's tile: Marlin (below compute capability 9) hidden 256 and width 128,
    Triton on Hopper the inner side 256 (its value layout), Blackwell both 256 (fused_moe/oracle/mxfp4.py)."""
    if fmt is not MXFP4 or target.capability is None or not m.expert:
        return m
    down = m.name.endswith("down_proj")

    def up(value: float, step: int) -> float:
        return ceil(value / step) * step

    if 9.0 <= target.capability < 10.0:
        out, inner = (m.out, m.inner) if down else (up(m.out, 64), m.inner)
        return Matrix(m.name, out, up(up(inner, 64), 256), m.count, expert=True, tensor=m.tensor)
    hidden, width = (256, 128) if target.capability < 9 else (256, 256)
    out, inner = (hidden, width) if down else (width, hidden)
    return Matrix(m.name, up(m.out, out), up(m.inner, inner), m.count, expert=True, tensor=m.tensor)


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
        fmt = base if plain_matrix.vector else scheme.choose(plain_matrix.name, plain_matrix.expert)
        m = padded(plain_matrix, fmt, target)
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
    sums: dict[tuple[object, ...], float] = {}
    total = 0.0
    for i in layers:
        matrices = list(layer_matrices(a, i, par, prefix))
        kinds = (base if m.vector else scheme.choose(m.name, m.expert) for m in matrices)
        like = (a.layers[i], a.moe is not None and i in a.moe.layers, *kinds)
        if like not in sums:
            sums[like] = _sum(matrices, scheme, base, target)
        total += sums[like]
    return total


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
    if stage == 0 or (last and a.tied):
        total += allocated((scheme.embeds or base).bytes(rows, a.hidden), splits_large=target.splits_large)
    if last and not a.tied:
        head = scheme.embeds or scheme.choose("lm_head", False)
        total += allocated(head.bytes(rows, a.hidden), splits_large=target.splits_large)
    if last:
        total += a.hidden * target.element
        if draft_mtp and a.mtp_layers:
            total += (
                _sum(layer_matrices(a, len(a.layers) - 1, par, "mtp.layers"), scheme, base, target)
                + 2 * a.hidden * a.hidden * target.element
            )
        if draft_eagle:
            # One layer in the model dtype and the projection of two hidden states to one (llama_eagle.py).
            drafter = layer_matrices(a, len(a.layers) - 1, par, "draft.layers")
            total += _sum(drafter, Scheme("none", lambda _n, _e: base), base, target)
            total += 2 * a.hidden**2 * target.element
        if draft_eagle3:
            # Three hidden states are joined, attention sees embeddings beside them, and it has a head of its own
            # (llama_eagle3.py).
            first = next(x for x in a.layers if x.heads)
            wide = (first.heads * first.head_dim + 2 * first.kv_heads * first.head_dim) / par.tp
            own = min(EAGLE3_VOCAB, a.vocab) / par.tp
            total += (wide + a.hidden + own) * a.hidden * target.element
    if stage == 0:
        total += a.per_layer_embedding * target.element
        # An encoder beside the decoder, its two convolutions and positions, and the decoder's attention to it
        # (whisper.py).
        encoder = a.encoder_layers * (4 * a.hidden + 2 * a.width)
        encoder += (4 * len(a.layers) * a.hidden + 3 * (a.encoder_input + a.hidden)) * bool(a.encoder_layers)
        total += (encoder / par.tp + a.encoder_context * bool(a.encoder_layers)) * a.hidden * target.element
    if a.positions and stage == 0:
        total += a.positions * a.hidden * target.element
    if a.vision is not None and stage == 0:
        total += vision_bytes(a.vision, a.hidden, base, par.tp, scheme) + a.audio_weights * target.element
    return total + rope_bytes(a, target)
