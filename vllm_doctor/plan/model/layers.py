"""Which kind of token mixer each layer has: the rules by which model code reads its config."""

from __future__ import annotations

from vllm_doctor.plan.model.architecture import LayerKind
from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.families import BOTH_AT_ONCE, MAMBA_ONLY
from vllm_doctor.records import excerpt

_NAMES: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "conv",
    "moe": "none",
    "mlp": "none",
    "hybrid": "mamba",
    "compressed_sparse_attention": "full",
}


def layer_kinds(text: Section, count: int, model_type: str) -> list[tuple[LayerKind, int | None]]:
    """(kind, window in tokens) of each layer. Raises ConfigError for a layer type that is not known."""
    if model_type in MAMBA_ONLY:
        return [("mamba", None)] * count
    if model_type in BOTH_AT_ONCE:
        return [("full", None), ("mamba", None)] * count
    window = text.whole("sliding_window", high=100_000_000) if text.has("sliding_window") else None
    if text.values.get("use_sliding_window") is False:
        window = None
    chunk = text.whole("attention_chunk_size", high=100_000_000) if text.has("attention_chunk_size") else None
    listed = text.texts("layer_types") or text.texts("layers_block_type")
    if listed:
        return _listed(text, listed, count, window, chunk)
    pattern = text.text("hybrid_override_pattern")
    if pattern:
        marks: dict[str, LayerKind] = {"M": "mamba", "*": "full", "-": "none", "E": "none"}
        unknown = sorted(set(pattern) - set(marks))
        if unknown or len(pattern) != count:
            raise ConfigError(
                f"{text.path}: hybrid_override_pattern is {excerpt.value(pattern)}; needed: {count} of the marks "
                f"{' '.join(marks)}"
            )
        return [(marks[c], None) for c in pattern]
    if text.has("full_attention_interval") and text.has("linear_num_key_heads"):
        every = text.whole("full_attention_interval", high=count)
        return [("full" if (i + 1) % every == 0 else "linear", None) for i in range(count)]
    delta = text.section("linear_attn_config")
    if delta is not None:
        whole = set(delta.ints("full_attn_layers", high=count))  # counted from 1
        return [("full" if i + 1 in whole else "linear", None) for i in range(count)]
    if text.has("attn_layer_period"):
        period, offset = (
            text.whole("attn_layer_period", high=count),
            text.whole("attn_layer_offset", low=0, high=count, default=0),
        )
        return [("full" if i % period == offset else "mamba", None) for i in range(count)]
    if model_type.startswith("gemma2") and window:
        return [("sliding" if i % 2 == 0 else "full", window if i % 2 == 0 else None) for i in range(count)]
    every = (
        text.whole(
            "sliding_window_pattern",
            "_sliding_window_pattern",
            low=1,
            high=10_000,
            default=6 if model_type.startswith("gemma3") else 4 if model_type == "cohere2" else 0,
        )
        if window
        else 0
    )
    if every:
        return [("full", None) if (i + 1) % every == 0 else ("sliding", window) for i in range(count)]
    if model_type.startswith("llama4") and chunk:
        rope = text.ints("no_rope_layers", high=1)
        return [
            ("full", None) if (rope[i] == 0 if i < len(rope) else (i + 1) % 4 == 0) else ("chunked", chunk)
            for i in range(count)
        ]
    return [("sliding", window) if window else ("full", None)] * count


def _listed(
    text: Section, listed: tuple[str, ...], count: int, window: int | None, chunk: int | None
) -> list[tuple[LayerKind, int | None]]:
    if len(listed) < count:
        raise ConfigError(f"{text.path}: layer_types names {len(listed)} layers; needed: num_hidden_layers, {count}")
    kinds: list[tuple[LayerKind, int | None]] = []
    for name in listed[:count]:
        kind = _NAMES.get(name)
        if kind is None:
            raise ConfigError(f"{text.path}: layer_types holds {name!r}; needed: one of {', '.join(sorted(_NAMES))}")
        if kind == "sliding" and window is None:
            raise ConfigError(
                f"{text.path}: layer_types has sliding_attention, but sliding_window is "
                f"{text.values.get('sliding_window')!r}"
            )
        kinds.append((kind, window if kind == "sliding" else chunk if kind == "chunked" else None))
    return kinds
