"""From config.json to the architecture: the keys of each family, their aliases and their defaults."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.attention import attention_of, compressed_attention, latent_attention
from vllm_doctor.plan.model.class_defaults import with_class_values
from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.experts import CHOSEN_EXPERTS, experts_of
from vllm_doctor.plan.model.families import (
    KNOWN,
    LEARNED_POSITIONS,
    LOADED,
    MAMBA_ONLY,
    MINICPMV,
    OUTPUT_GATE,
    PLAIN_MLP,
    QKV_BIAS,
    TIED,
    WEIGHED,
    WIDTH_IS_FOUR_HIDDEN,
    WIDTH_IS_GATE_AND_UP,
)
from vllm_doctor.plan.model.layers import layer_kinds
from vllm_doctor.plan.model.length import (
    COHERE_LENGTH,
    LENGTHS,
    NO_LENGTH,
    compressed_tables,
    context_length,
    rope_tables,
)
from vllm_doctor.plan.model.mixer import linear_mixer
from vllm_doctor.plan.model.towers import audio_weights, vision_tower

_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")
_DTYPE = re.compile(r"b?float16|float(32|64|8_\w+)?|half|double|auto|u?int8")


def text_section(top: Section) -> Section:
    """The language model's own section of a config, which is the whole one where there is no other."""
    for key in ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config"):
        nested = top.section(key)
        if nested is not None:
            return with_class_values(nested.section("text_config") or nested)
    return top


def _per_layer_input(text: Section) -> int:
    return text.whole("hidden_size_per_layer_input", low=0, high=65_536, default=0)


def _per_layer_words(text: Section) -> int:
    """Rows of the per-layer embedding table (Gemma 3n and small Gemma 4), 0 where there is none."""
    return text.whole("vocab_size_per_layer_input", low=0, high=20_000_000, default=0)


# 32 frames of at most 70 tokens, with two marks and six of a timestamp each (gemma4_mm.py get_mm_max_tokens_per_item).
_GEMMA4_VIDEO = 32 * 78


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


class _Heads(NamedTuple):
    """The heads of attention: of queries, of keys and values, and the channels of each."""

    queries: int
    keys: int
    width: int


def _heads(text: Section, hidden: int, *, alone: bool, latent: bool) -> _Heads:
    """Raises ConfigError where they do not divide. `latent` attention has widths that are no part of hidden_size."""
    names = ("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", "num_heads")
    heads = 1 if alone else text.whole(*names, high=16_384)
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
    if hidden % heads and not text.has("head_dim") and not latent:
        raise ConfigError(
            f"{text.path}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and head_dim is "
            f"missing"
        )
    if kv_heads and heads % kv_heads:
        raise ConfigError(
            f"{text.path}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    width = text.whole("head_dim", "attention_head_dim", "kv_channels", high=8192, default=hidden // heads)
    return _Heads(heads, kv_heads, width)


def _layer_count(text: Section, *, paired: bool) -> int:
    """The decoder's: num_hidden_layers of a model with an encoder and a decoder counts the encoder's."""
    names = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
    return text.whole(*(reversed(names) if paired else names), high=2000)


def _words(text: Section, top: Section) -> int:
    of_top = top.whole("vocab_size", low=0, high=20_000_000, default=0) or None
    return text.whole("vocab_size", "padded_vocab_size", high=20_000_000, default=of_top)


def _tied(text: Section, top: Section, model_type: str) -> bool:
    """Is the head the embedding? What the config says, else what the family's class has."""
    tie = text.values.get("tie_word_embeddings", top.values.get("tie_word_embeddings"))
    if tie is not None and not isinstance(tie, bool):
        raise ConfigError(f"{text.path}: tie_word_embeddings is {tie!r}; needed: true or false")
    return tie if tie is not None else model_type in TIED


@lru_cache(maxsize=16)
def describe(top: Section) -> Architecture:
    """The architecture of a config.json. Raises ConfigError, naming key and value, for what cannot be a model. Kept: a
    search asks for one model with each launch that it tries."""
    if top.has("_diffusers_version", "_class_name"):
        raise ConfigError(
            f"{top.path}: _class_name is {top.values.get('_class_name')!r}, a diffusion model; needed: a language model"
        )
    text = text_section(top)
    names = top.texts("architectures") or text.texts("architectures")
    model_type = text.text("model_type", default=top.text("model_type"))
    hidden = text.whole("hidden_size", "n_embd", "d_model", "dim", high=1_000_000)
    paired = top.values.get("is_encoder_decoder") is True or model_type == "whisper"
    count = _layer_count(text, paired=paired)
    alone = model_type in MAMBA_ONLY  # without attention
    mla = latent_attention(text)
    heads = _heads(text, hidden, alone=alone, latent=mla is not None)
    width = 0 if alone else _width(text, hidden, model_type) // (2 if model_type in WIDTH_IS_GATE_AND_UP else 1)
    kinds = layer_kinds(text, count, model_type)
    layers = tuple(
        attention_of(text, kind, window, heads.queries, heads.keys, heads.width, mla, i, len(kinds))
        for i, (kind, window) in enumerate(kinds)
    )
    used = {kind for kind, _ in kinds}
    known = model_type in KNOWN
    compressed = compressed_attention(text, model_type)
    speaks = MINICPMV.get(_version(top), "") if model_type == "minicpmv" else model_type
    towers = top.section("thinker_config") or top  # Qwen's Omni models
    seen = text is not top or top.has("vision_config") or top.has("img_processor")
    vision = vision_tower(towers) if seen else None
    experts = experts_of(text, count, width, model_type)
    return Architecture(
        model_type=model_type,
        name=names[0] if names else "",
        known=known,
        hidden=hidden,
        # Llama 4's layers without experts are wider than an expert (llama4.py Llama4DecoderLayer).
        width=text.whole("intermediate_size_mlp", low=0, high=10_000_000, default=width),
        vocab=_words(text, top),
        tied=_tied(text, top, model_type),
        layers=layers,
        gated_mlp=model_type not in PLAIN_MLP,
        qkv_bias=text.flag("attention_bias", default=False)
        or text.values.get("qkv_bias") is True
        or speaks in QKV_BIAS,
        out_bias=text.values.get("attention_bias") is True and model_type in {"gpt_oss", "llama"},
        qk_norm=speaks.startswith(("qwen3", "gemma3", "gemma4", "minimax_m2")),
        output_gate=text.flag("attn_output_gate", default=model_type in OUTPUT_GATE),
        dtype=_dtype(text) or _dtype(top),
        context=context_length(text, model_type),
        moe=experts,
        mla=mla,
        compressed=compressed,
        linear=linear_mixer(text, hidden, used, model_type),
        vision=vision,
        audio=towers.has("audio_config"),
        audio_weights=audio_weights(towers, hidden),
        encoder_decoder=paired,
        encoder_layers=text.whole("encoder_layers", low=0, high=2000, default=0) if paired else 0,
        encoder_context=text.whole("max_source_positions", low=0, high=10_000_000, default=0),
        encoder_input=text.whole("num_mel_bins", low=0, high=100_000, default=0),
        norms_per_layer=1 if alone else 4 if model_type.startswith(("gemma2", "gemma3", "gemma4", "glm4")) else 2,
        mtp_layers=_mtp_layers(text, model_type),
        whole_type=top.text("model_type", default=model_type),
        joined=_joined(text, hidden, count),
        per_layer_words=_per_layer_words(text),
        per_layer_input=_per_layer_input(text),
        double_wide=text.flag("use_double_wide_mlp", default=False),
        positions=text.whole(*_POSITIONS, low=0, high=100_000_000, default=0) if model_type in LEARNED_POSITIONS else 0,
        ropes=(
            rope_tables(text, mla.rope if mla is not None else heads.width, layers, model_type)
            if compressed is None
            else compressed_tables(text, compressed)
        ),
        caps_attention=bool(text.values.get("attn_logit_softcapping")),
        multimodal=vision is not None or towers.has("audio_config"),
        whole_item=_GEMMA4_VIDEO if vision is not None and text.text("use_bidirectional_attention") == "vision" else 0,
        text_prefix="model.language_model" if text is not top else "model",
        config=top,
        quantization=_quantization(top, text, model_type),
        rope=_rope(text),
        own_code=(own := top.section("auto_map")) is not None and own.has("AutoConfig"),
        doubts=_doubts(text, top, model_type, known=known, experts=experts is not None),
    )


def _quantization(top: Section, text: Section, model_type: str) -> Section | None:
    """The checkpoint's; DeepSeek V4 names the format of its experts beside it, 4-bit floats where it names none
    (models/deepseek_v4/quant_config.py)."""
    own = top.section("quantization_config") or text.section("quantization_config")
    if own is None or model_type != "deepseek_v4":
        return own
    return Section({**own.values, "expert_dtype": text.text("expert_dtype", default="fp4")}, own.path)


def _rope(text: Section) -> Section | None:
    """The object that says how positions are scaled; None of one for each kind of layers, and where nothing is."""
    found = text.section("rope_scaling") or text.section("rope_parameters")
    plain = found is not None and not any(isinstance(one, dict) for one in found.values.values())
    return found if plain and found is not None and found.values else None


def _version(top: Section) -> str:
    """Of MiniCPM-V; the one whose config names none is 2.5 (minicpmv.py MiniCPMV)."""
    told = top.values.get("version")
    return (
        "2.5"
        if told is None
        else str(told)
        if isinstance(told, str)
        else f"{told:.1f}"
        if isinstance(told, int | float)
        else ""
    )


# Of these one is made, however many the checkpoint has (longcat_flash_mtp.py, mimo_v2_mtp.py).
_ONE_MTP_LAYER = ("longcat_flash", "mimo_v2")


def _mtp_layers(text: Section, model_type: str) -> int:
    """Layers of multi-token prediction that drafting makes: all that the config names (models/*_mtp.py)."""
    named = text.whole("num_nextn_predict_layers", "mtp_num_hidden_layers", low=0, high=64, default=0)
    return min(named, 1) if model_type.startswith(_ONE_MTP_LAYER) else named


def _joined(text: Section, hidden: int, count: int) -> int:
    """Channels that a drafter of DFlash joins: of the layers that it names, else of as many as it has itself
    (qwen3_dflash.py DFlashQwen3Model)."""
    own = text.section("dflash_config")
    if own is None:
        return 0
    named = next((v for k in ("target_layer_ids", "layer_ids") if isinstance(v := own.values.get(k), list)), None)
    width = text.whole("target_hidden_size", high=1_000_000, default=hidden)
    return width * (count if named is None else len(named))


def _doubts(text: Section, top: Section, model_type: str, *, known: bool, experts: bool) -> tuple[str, ...]:
    """What the config leaves open, each with what is taken instead."""
    told: list[str] = []
    unlike = model_type == "minicpmv" and (_version(top) not in MINICPMV or not top.has("vision_config"))
    if model_type in LOADED:
        told.append(f"model_type {model_type}: the memory of a pass is a general transformer's, not this model's")
    elif not known and (model_type not in WEIGHED or unlike):
        told.append(
            f"model_type {model_type or '(none)'} is not known: weights and activations are a general transformer's"
        )
    if not text.has(*LENGTHS, COHERE_LENGTH):
        told.append(f"{text.path} names no length (such as {LENGTHS[0]}): vLLM takes {NO_LENGTH}")
    if experts and not text.has(*CHOSEN_EXPERTS):
        told.append(f"{text.path} does not say how many experts a token takes (such as {CHOSEN_EXPERTS[0]}): one")
    if not text.has("torch_dtype", "dtype") and not top.has("torch_dtype", "dtype"):
        told.append(f"{text.path} names no torch_dtype: vLLM takes one of 2 bytes")
    return tuple(told)


def _dtype(section: Section) -> str | None:
    named = section.text("torch_dtype", "dtype").removeprefix("torch.")
    if named and not _DTYPE.fullmatch(named):
        key, value = section.find(("torch_dtype", "dtype"))
        raise ConfigError(f"{section.path}: {key} is {value!r:.60}; needed: a type of torch, such as bfloat16")
    return named or None
