"""From config.json to the architecture: the keys of each family, their aliases and their defaults."""

from __future__ import annotations

import re
from math import ceil

from vllm_doctor.plan.model.architecture import Architecture, Attention, LayerKind, Linear, Mla, Moe, Vision
from vllm_doctor.plan.model.families import (
    EXPERT_WIDTH_IS_INTERMEDIATE,
    KNOWN,
    LEARNED_POSITIONS,
    MAMBA_ONLY,
    OUTPUT_GATE,
    PLAIN_MLP,
    QKV_BIAS,
    TIED,
    WEIGHED,
    WIDTH_IS_FOUR_HIDDEN,
    WIDTH_IS_GATE_AND_UP,
)
from vllm_doctor.plan.model.layers import layer_kinds
from vllm_doctor.plan.model.reading import ConfigError, Section

# vLLM takes the smallest of those that a config names, Cohere's alone where it is there, and of none 2048, which it
# says (transformers_utils/model_arch_config_convertor.py derive_max_model_len_and_key, config/model.py).
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_COHERE = "model_max_length"
_NO_LENGTH = 2048
# Experts of each token: the names that vLLM's models read (transformers_utils/config.py CONFIG_FIELD_ALIASES, models/).
_CHOSEN_EXPERTS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "moe_experts_per_token",
    "top_k",
)
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")
_DTYPE = re.compile(r"b?float16|float(32|64|8_\w+)?|half|double|auto|u?int8")


def _moe(text: Section, layers: int, width: int, model_type: str) -> Moe | None:
    experts = text.whole(
        "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", low=0, high=100_000, default=0
    )
    if model_type.startswith("gemma4") and not text.flag("enable_moe_block", default=False):
        return None
    if experts <= 1:
        return None
    top_k = text.whole(*_CHOSEN_EXPERTS, low=1, high=experts, default=1)
    if text.has("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size") and isinstance(
        text.values.get("moe_intermediate_size", 0), int
    ):
        each = text.whole("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", high=1_000_000)
    elif model_type in EXPERT_WIDTH_IS_INTERMEDIATE or not text.has("moe_intermediate_size"):
        each = width
    else:
        raise ConfigError(
            f"{text.path}: moe_intermediate_size is {text.values.get('moe_intermediate_size')!r}; needed: a whole "
            f"number"
        )
    shared = text.whole("shared_expert_intermediate_size", "shared_intermediate_size", low=0, high=1_000_000, default=0)
    if not shared:
        shared = each * text.whole(
            "n_shared_experts",
            "num_shared_experts",
            "num_shared_expert",
            "moe_num_shared_experts",
            low=0,
            high=1000,
            default=0,
        )
    if model_type.startswith("llama4"):
        shared = each
    first = text.whole("first_k_dense_replace", low=0, high=layers, default=0)
    step = text.whole("decoder_sparse_step", "interleave_moe_layer_step", low=1, high=layers, default=1)
    dense = set(text.ints("mlp_only_layers", high=100_000))
    listed = text.ints("moe_layers", high=100_000)
    period = text.whole("expert_layer_period", low=0, high=layers, default=0)  # Jamba
    offset = text.whole("expert_layer_offset", low=0, high=layers, default=0)
    chosen = (
        frozenset(listed)
        if listed
        else frozenset(i for i in range(layers) if i % period == offset)
        if period
        else frozenset(i for i in range(layers) if i >= first and i not in dense and (i + 1) % step == 0)
    )
    return Moe(
        experts,
        top_k,
        each,
        shared,
        chosen,
        router_bias=text.text("topk_method") == "noaux_tc"
        or text.flag("use_routing_bias", default=False)
        or model_type == "gpt_oss",
        shared_gate=model_type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")),
        beside_mlp=model_type.startswith("gemma4"),  # gemma4.py: experts run parallel to the MLP
    )


def _mla(text: Section) -> Mla | None:
    if not text.has("kv_lora_rank") or not text.has("qk_rope_head_dim"):
        return None
    return Mla(
        kv_rank=text.whole("kv_lora_rank", high=65_536),
        q_rank=text.whole("q_lora_rank", high=65_536) if text.has("q_lora_rank") else None,
        rope=text.whole("qk_rope_head_dim", low=0, high=4096),
        nope=text.whole("qk_nope_head_dim", high=4096, default=128),
        value=text.whole("v_head_dim", high=4096, default=128),
        indexer_heads=text.whole("index_n_heads", low=0, high=4096, default=0),
        indexer_dim=text.whole("index_head_dim", low=0, high=4096, default=0),
        indexer_top=text.whole("index_topk", low=0, high=1_000_000, default=0),
    )


def _indexed(text: Section, mla: Mla | None, index: int) -> bool:
    """Has this layer an indexer of its own? Layers may use the choice of one before them (deepseek_v2.py,
    index_topk_pattern or index_topk_freq)."""
    if mla is None or not mla.indexer_top:
        return False
    pattern = text.text("index_topk_pattern")
    if pattern:
        return not (index < len(pattern) and pattern[index] == "S")
    every = text.whole("index_topk_freq", low=1, high=10_000, default=1)
    return max(index - text.whole("index_skip_topk_offset", low=0, high=10_000, default=2) + 1, 0) % every == 0


def _linear(text: Section, hidden: int, kinds: set[LayerKind], model_type: str) -> Linear | None:
    state32 = text.text("mamba_ssm_dtype") == "float32"
    delta = text.section("linear_attn_config")
    if "linear" in kinds and delta is not None:
        heads, size = delta.whole("num_heads", high=4096), delta.whole("head_dim", high=4096)
        conv = delta.whole("short_conv_kernel_size", high=64, default=4)
        return Linear("gdn", heads, size, heads, size, conv, state_float32=True)
    if "linear" in kinds:
        return Linear(
            "gdn",
            key_heads=text.whole("linear_num_key_heads", high=4096),
            key_dim=text.whole("linear_key_head_dim", high=4096),
            value_heads=text.whole("linear_num_value_heads", high=4096),
            value_dim=text.whole("linear_value_head_dim", high=4096),
            conv=text.whole("linear_conv_kernel_dim", high=64, default=4),
            state_float32=state32,
        )
    if "conv" in kinds:
        return Linear("conv", 0, 0, 1, hidden, text.whole("conv_L_cache", high=64, default=3), state_float32=False)
    if "mamba" not in kinds:
        return None
    second = model_type == "mamba2"  # whose keys have no mark of the mixer
    counts = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", *(("num_heads",) if second else ()))
    heads = text.whole(*counts, low=0, high=65_536, default=0)
    conv = text.whole("mamba_d_conv", "conv_kernel", high=64, default=4)
    state = text.whole("mamba_d_state", "ssm_state_size", "state_size", high=4096, default=128)
    if heads:
        inner = text.whole(
            "mamba_d_head",
            "mamba_head_dim",
            *(("head_dim",) if model_type == "mamba2" else ()),
            high=65_536,
            default=64,
        )
        groups = text.whole("mamba_n_groups", "n_groups", "mamba_ngroups", high=4096, default=1)
        named = text.text("mamba_ssm_cache_dtype")
        return Linear("mamba2", groups, state, heads, inner, conv, state32, state_type=named)
    # Where the mixer is the whole layer, the model takes intermediate_size and not expand (mamba.py MambaDecoderLayer).
    expanded = text.whole("mamba_expand", "expand", high=64, default=2) * hidden
    inner = text.whole("intermediate_size", high=10_000_000, default=expanded) if model_type in MAMBA_ONLY else expanded
    state = text.whole("mamba_d_state", "state_size", high=4096, default=16)
    rank = text.values.get("mamba_dt_rank", text.values.get("time_step_rank"))
    step = rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 < rank <= hidden else ceil(hidden / 16)
    return Linear("mamba1", 1, state, 1, inner, conv, state32, step)


# Phi-3-vision's tower stands in the code alone (phi3v.py CLIP_VIT_LARGE_PATCH14_336_CONFIG); four patches make a token.
PHI3_TOWER = Vision(24, 1024, 4096, 16, 14, False, 0, 2, 0, 336, "clip_vision_model")


def _vision(top: Section) -> Vision | None:
    seen = top.section("vision_config") or top.section("vit_config") or top.section("vision_tower_config")
    if seen is None:
        return PHI3_TOWER if top.text("model_type") == "phi3_v" else None
    hidden = seen.whole("embed_dim", "hidden_size", "width", high=100_000, default=1024)
    if seen.text("model_type").startswith("qwen2_vl") and seen.has("embed_dim"):
        hidden = seen.whole("embed_dim", high=100_000)
    kind = seen.text("model_type")
    size = seen.values.get("image_size")
    image = max(seen.ints("image_size", high=100_000), default=448) if isinstance(size, list) else None
    image = image or seen.whole("image_size", high=100_000, default=448)
    layers = seen.whole("depth", "num_hidden_layers", "layers", high=1000, default=24)
    if kind == "mllama_vision_model":
        layers += seen.whole("num_global_layers", low=0, high=1000, default=8)
    return Vision(
        layers=layers,
        hidden=hidden,
        width=seen.whole("intermediate_size", "mlp_hidden_dim", high=1_000_000, default=4 * hidden),
        heads=seen.whole("num_heads", "num_attention_heads", "heads", high=4096, default=16),
        patch=seen.whole("patch_size", "spatial_patch_size", high=1024, default=14)
        if not isinstance(seen.values.get("patch_size"), list)
        else 14,
        gated=kind in {"qwen2_5_vl", "pixtral", "gemma4_vision"},
        positions=_tile_rows(seen, image)
        if kind == "mllama_vision_model"
        else seen.whole("num_position_embeddings", "position_embedding_size", low=0, high=10_000_000, default=0),
        merge=seen.whole("spatial_merge_size", high=64, default=top.whole("spatial_merge_size", high=64, default=1)),
        out=seen.whole("out_hidden_size", "vision_output_dim", low=0, high=100_000, default=0),
        image_size=image,
        kind=kind,
        deepstack=len(seen.items("deepstack_visual_indexes") or []),
    )


def _tile_rows(seen: Section, image: int) -> int:
    """Rows of Llama 3.2 Vision's position tables: one of a tile, one of each tile of each shape that an image may have,
    and what is added before and after the local layers (mllama.py MllamaPrecomputedPositionEmbedding)."""
    tiles = seen.whole("max_num_tiles", high=64, default=4)
    shapes = len(seen.items("supported_aspect_ratios") or [()] * 8) + 1
    patches = (image // seen.whole("patch_size", high=1024, default=14)) ** 2 + 1
    return patches + shapes * tiles * (patches + 2)


def _audio(top: Section, hidden: int) -> int:
    """Weights of the conformer of Gemma 3n and Gemma 4: a layer has two halved feed-forwards of four times the width
    (16 H²), attention with relative positions (5 H²) and a convolution (3 H²) (gemma3n.py of transformers)."""
    heard = top.section("audio_config")
    if heard is None or not heard.text("model_type").startswith(("gemma3n", "gemma4")):
        return 0
    width = heard.whole("hidden_size", high=100_000, default=1536)
    depth = heard.whole("num_hidden_layers", "conf_num_hidden_layers", high=1000, default=12)
    return depth * 24 * width * width + width * hidden


def _text_section(top: Section) -> Section:
    for key in ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config"):
        nested = top.section(key)
        if nested is not None:
            return nested.section("text_config") or nested
    return top


def _per_layer_input(text: Section) -> int:
    return text.whole("hidden_size_per_layer_input", low=0, high=65_536, default=0)


def _per_layer(text: Section, count: int, hidden: int) -> int:
    """Values of the per-layer embedding tables over all layers (Gemma 3n and small Gemma 4), and of the projections to
    them and from them (gemma3n.py per_layer_model_projection, per_layer_input_gate, per_layer_projection)."""
    each = _per_layer_input(text)
    rows = text.whole("vocab_size_per_layer_input", low=0, high=20_000_000, default=0)
    return each * count * (rows + 3 * hidden)


def _width(text: Section, hidden: int, model_type: str) -> int:
    """Channels of the MLP; a list names one width a layer (Gemma 3n), of which the mean is taken."""
    keys = (
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "d_ff",
        "decoder_ffn_dim",
        "hidden_dim",
        "ff_intermediate_size",
    )
    key, value = text.find(keys)
    if isinstance(value, list) and value:
        widths = text.ints(key, high=10_000_000)
        return round(sum(widths) / len(widths))
    if not text.has("moe_intermediate_size") and model_type not in WIDTH_IS_FOUR_HIDDEN:
        return text.whole(*keys, low=0, high=10_000_000)
    other = text.whole("moe_intermediate_size", low=0, high=1_000_000, default=4 * hidden)
    return text.whole(*keys, low=0, high=10_000_000, default=other)


def describe(top: Section) -> Architecture:
    """The architecture of a config.json. Raises ConfigError, naming key and value, for what cannot be a model."""
    if top.has("_diffusers_version", "_class_name"):
        raise ConfigError(
            f"{top.path}: _class_name is {top.values.get('_class_name')!r}, a diffusion model; needed: a language model"
        )
    text = _text_section(top)
    names = top.texts("architectures") or text.texts("architectures")
    model_type = text.text("model_type", default=top.text("model_type"))
    hidden = text.whole("hidden_size", "n_embd", "d_model", "dim", high=1_000_000)
    # num_hidden_layers of a model with an encoder and a decoder counts the encoder's.
    counts = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
    paired = top.values.get("is_encoder_decoder") is True or model_type == "whisper"
    count = text.whole(*(reversed(counts) if paired else counts), high=2000)
    alone = model_type in MAMBA_ONLY  # without attention
    heads = (
        1
        if alone
        else text.whole("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", "num_heads", high=16_384)
    )
    kv_heads = text.whole(
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "n_kv_heads",
        "multi_query_group_num",
        "num_attention_groups",
        high=16_384,
        default=1 if text.values.get("multi_query") is True else heads,
    )
    vocab = text.whole(
        "vocab_size",
        "padded_vocab_size",
        high=20_000_000,
        default=top.whole("vocab_size", low=0, high=20_000_000, default=0) or None,
    )
    width = 0 if alone else _width(text, hidden, model_type) // (2 if model_type in WIDTH_IS_GATE_AND_UP else 1)
    if hidden % heads and not text.has("head_dim"):
        raise ConfigError(
            f"{text.path}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and head_dim is "
            f"missing"
        )
    if kv_heads and heads % kv_heads:
        raise ConfigError(
            f"{text.path}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    head_dim = text.whole("head_dim", "attention_head_dim", "kv_channels", high=8192, default=hidden // heads)
    mla, kinds = _mla(text), layer_kinds(text, count, model_type)
    layers = tuple(
        _attention(text, kind, window, heads, kv_heads, head_dim, mla, i, count)
        for i, (kind, window) in enumerate(kinds)
    )
    used = {kind for kind, _ in kinds}
    known = model_type in KNOWN
    tie = text.values.get("tie_word_embeddings", top.values.get("tie_word_embeddings"))
    if tie is not None and not isinstance(tie, bool):
        raise ConfigError(f"{text.path}: tie_word_embeddings is {tie!r}; needed: true or false")
    vision = _vision(top) if text is not top or top.has("vision_config") or top.has("img_processor") else None
    experts = _moe(text, count, width, model_type)
    return Architecture(
        model_type=model_type,
        name=names[0] if names else "",
        known=known,
        hidden=hidden,
        # Llama 4's layers without experts are wider than an expert (llama4.py Llama4DecoderLayer).
        width=text.whole("intermediate_size_mlp", low=0, high=10_000_000, default=width),
        vocab=vocab,
        tied=tie if tie is not None else model_type in TIED,
        layers=layers,
        gated_mlp=model_type not in PLAIN_MLP,
        qkv_bias=text.flag("attention_bias", default=False)
        or text.values.get("qkv_bias") is True
        or model_type in QKV_BIAS,
        out_bias=text.values.get("attention_bias") is True and model_type in {"gpt_oss", "llama"},
        qk_norm=model_type.startswith(("qwen3", "gemma3", "gemma4", "minimax_m2")),
        output_gate=text.flag("attn_output_gate", default=model_type in OUTPUT_GATE),
        dtype=_dtype(text) or _dtype(top),
        context=_context(text, model_type),
        moe=experts,
        mla=mla,
        linear=_linear(text, hidden, used, model_type),
        vision=vision,
        audio=top.has("audio_config"),
        audio_weights=_audio(top, hidden),
        encoder_decoder=paired,
        encoder_layers=text.whole("encoder_layers", low=0, high=2000, default=0) if paired else 0,
        encoder_context=text.whole("max_source_positions", low=0, high=10_000_000, default=0),
        encoder_input=text.whole("num_mel_bins", low=0, high=100_000, default=0),
        norms_per_layer=1 if alone else 4 if model_type.startswith(("gemma2", "gemma3", "gemma4", "glm4")) else 2,
        mtp_layers=text.whole("num_nextn_predict_layers", "mtp_num_hidden_layers", low=0, high=64, default=0),
        per_layer_embedding=_per_layer(text, count, hidden),
        per_layer_input=_per_layer_input(text),
        double_wide=text.flag("use_double_wide_mlp", default=False),
        positions=text.whole(*_POSITIONS, low=0, high=100_000_000, default=0) if model_type in LEARNED_POSITIONS else 0,
        ropes=_ropes(text, mla.rope if mla is not None else head_dim, layers, model_type),
        caps_attention=bool(text.values.get("attn_logit_softcapping")),
        multimodal=vision is not None or top.has("audio_config"),
        text_prefix="model.language_model" if text is not top else "model",
        quantization=top.section("quantization_config") or text.section("quantization_config"),
        doubts=_doubts(text, top, model_type, known=known, experts=experts is not None),
    )


def _doubts(text: Section, top: Section, model_type: str, *, known: bool, experts: bool) -> tuple[str, ...]:
    """What the config leaves open, each with what is taken instead."""
    told: list[str] = []
    if not known and model_type not in WEIGHED:
        told.append(
            f"model_type {model_type or '(none)'} is not known: weights and activations are a general transformer's"
        )
    if not text.has(*_LENGTHS, _COHERE):
        told.append(f"{text.path} names no length (such as {_LENGTHS[0]}): vLLM takes {_NO_LENGTH}")
    if experts and not text.has(*_CHOSEN_EXPERTS):
        told.append(f"{text.path} does not say how many experts a token takes (such as {_CHOSEN_EXPERTS[0]}): one")
    if not text.has("torch_dtype", "dtype") and not top.has("torch_dtype", "dtype"):
        told.append(f"{text.path} names no torch_dtype: vLLM takes one of 2 bytes")
    return tuple(told)


def _dtype(section: Section) -> str | None:
    named = section.text("torch_dtype", "dtype").removeprefix("torch.")
    if named and not _DTYPE.fullmatch(named):
        key, value = section.find(("torch_dtype", "dtype"))
        raise ConfigError(f"{section.path}: {key} is {value!r:.60}; needed: a type of torch, such as bfloat16")
    return named or None


def _length(text: Section) -> int:
    """Tokens of one request, before rope scaling."""
    if text.has(_COHERE):
        return text.whole(_COHERE, high=100_000_000)
    return min((text.whole(key, high=100_000_000) for key in _LENGTHS if text.has(key)), default=_NO_LENGTH)


def _context(text: Section, model_type: str) -> int:
    base = _length(text)
    scaling = text.section("rope_scaling") or text.section("rope_parameters")
    if scaling is not None and scaling.text("rope_type", "type") not in {
        "",
        "su",
        "longrope",
        "llama3",
        "mrope",
        "default",
        "yarn",
    }:
        # vLLM multiplies the length by the factor for linear and dynamic scaling, not for gemma3 (config/model.py).
        factor = scaling.number("factor", 1.0, low=0.001, high=10_000)
        if not model_type.startswith("gemma3"):
            return int(base * factor)
    if scaling is not None and scaling.text("rope_type", "type") == "yarn":
        original = scaling.whole("original_max_position_embeddings", high=100_000_000, default=base)
        return max(base, int(original * scaling.number("factor", 1.0, low=0.001, high=10_000)))
    return base


def _ropes(text: Section, rotary: int, layers: tuple[Attention, ...], model_type: str) -> tuple[tuple[int, int], ...]:
    if model_type in {"bloom", "mpt", "jamba", *LEARNED_POSITIONS, *MAMBA_ONLY}:
        return ()
    rows = text.whole(_COHERE, *_LENGTHS, high=100_000_000, default=_NO_LENGTH)
    scaling = text.section("rope_scaling") or text.section("rope_parameters")
    width = max(1, int(rotary * text.number("partial_rotary_factor", 1.0, low=0.001, high=1.0)))
    sliding = any(a.kind == "sliding" for a in layers)
    if text.has("global_head_dim"):
        # Gemma 4: a table for each kind of layer, as wide as its heads (gemma4_rope.py: rotary_dim = head_size).
        wide = text.whole("global_head_dim", high=8192)
        return ((rows, wide), *(((rows, rotary),) if sliding else ()))
    # Gemma 3 turns its sliding layers with a base of their own: without scaling too there are two tables (gemma3.py).
    tables = 2 if sliding and text.has("rope_local_base_freq") else 1
    if scaling is None:
        return ((rows, width),) * tables
    kind = scaling.text("rope_type", "type")
    factor = scaling.number("factor", 1.0, low=0.001, high=10_000)
    if scaling.has("mrope_section") and kind == "yarn":
        # MRotaryEmbedding stretches its four lengths by the factor (rotary_embedding/mrope.py).
        rows = int(scaling.whole("original_max_position_embeddings", high=100_000_000, default=rows) * factor)
    if scaling.has("mrope_section"):
        return ((4 * rows, width),)
    if kind == "yarn":
        rows = int(scaling.whole("original_max_position_embeddings", high=100_000_000, default=rows) * factor)
        return ((rows, width),)
    if kind == "linear":
        return ((int(rows * factor), width), *(((rows, width),) if sliding else ()))
    return ((rows, width),) * tables


def _attention(  # noqa: PLR0917
    text: Section,
    kind: LayerKind,
    window: int | None,
    heads: int,
    kv_heads: int,
    head_dim: int,
    mla: Mla | None,
    index: int,
    count: int,
) -> Attention:
    if kind in {"linear", "mamba", "conv", "none"}:
        return Attention(kind, 0, 0, 0, 0)
    if mla is not None and kind == "full":
        return Attention("mla", heads, 1, mla.kv_rank + mla.rope, 0, indexed=_indexed(text, mla, index))
    shared = text.whole("num_kv_shared_layers", low=0, high=count, default=0)
    if kind == "full" and text.has("global_head_dim"):
        same = text.values.get("attention_k_eq_v") is True
        return Attention(
            kind,
            heads,
            text.whole("num_global_key_value_heads", high=16_384, default=kv_heads) if same else kv_heads,
            (wide := text.whole("global_head_dim", high=8192)),
            wide,
            window,
            index >= count - shared,
            same,
        )
    value_dim = text.whole("v_head_dim", high=8192, default=head_dim) if mla is None else head_dim
    return Attention(kind, heads, kv_heads, head_dim, value_dim, window, index >= count - shared)
