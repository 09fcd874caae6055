"""A drafter from its own config.json: a model like others, or one in a drafter's own format."""

from __future__ import annotations

from msgspec.structs import replace

from vllm_doctor.plan.model.architecture import Architecture, Attention, TokenHeads
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe

# Layers of the model whose states a drafter of EAGLE 3 joins, where nothing names others (llama_eagle3.py LlamaModel).
_JOINED = 3
_WORDS = 20_000_000
# What speculators' format names, as vLLM's methods (configs/speculators/base.py build_vllm_speculative_config).
_METHODS = {"eagle3": "eagle3", "peagle": "eagle3", "dflash": "dflash", "dflash2": "dflash", "dspark": "dspark"}


def describe_drafter(top: Section) -> Architecture:
    """The architecture of a drafter. Raises ConfigError, naming key and value, for what cannot be one."""
    kind = top.text("model_type")
    medusa = any("medusa" in key for key in top.values) or kind == "medusa"
    if medusa or kind == "mlp_speculator":
        return _of_heads(top, medusa=medusa)
    text = _unfolded(top)
    told = describe(text)
    words = text.whole("draft_vocab_size", "truncated_vocab_size", low=0, high=_WORDS, default=0)
    count = _joined(text)
    return replace(
        told,
        layers=_windowed(text, told),
        draft_words=words or told.vocab,
        joined=told.joined or count * text.whole("target_hidden_size", high=1_000_000, default=told.hidden),
        joined_layers=count,
        drafts_as=_METHODS.get(top.text("speculators_model_type"), ""),
        beside=_beside(text, told, words or told.vocab),
    )


def _unfolded(top: Section) -> Section:
    """What speculators' format and EAGLEConfig nest lies beside what they say of drafting, as vLLM reads them
    (transformers_utils/configs/speculators/algos.py, eagle.py)."""
    for key in ("transformer_layer_config", "model"):
        nested = top.values.get(key)
        if isinstance(nested, dict):
            inside = {k: v for k, v in top.values.items() if k not in {key, "model_type"}}
            own = {k: v for k, v in nested.items() if k != "architectures" or "architectures" not in inside}
            ids = top.values.get("aux_hidden_state_layer_ids")
            blocks = {"dflash_config": {"target_layer_ids": ids}} if isinstance(ids, list) else {}
            return Section({**inside, **own, **blocks}, top.path)
    return top


def _joined(text: Section) -> int:
    """How many of the model's layers give it their states: those that it names, else three."""
    eagle = text.section("eagle_config")
    if eagle is not None and eagle.values.get("use_aux_hidden_state") is False:
        return 0
    lists = [(eagle, "eagle_aux_hidden_state_layer_ids"), (text, "target_layer_ids")]
    named = [part.ints(key, high=10_000) for part, key in lists if part is not None]
    count = text.whole("num_aux_hidden_states", low=0, high=1000, default=0)
    return count or next((len(ids) for ids in named if ids), _JOINED)


def _windowed(text: Section, told: Architecture) -> tuple[Attention, ...]:
    """Its layers, with the window that DFlash's own part of the config gives all of them (qwen3_dflash.py
    _resolve_layer_attention)."""
    own = text.section("dflash_config")
    sliding = any(layer.kind == "sliding" for layer in told.layers)
    if own is None or not own.flag("use_swa", default=False) or sliding:
        return told.layers
    window = own.whole("swa_window_size", high=100_000_000, default=0) if own.has("swa_window_size") else 0
    window = window or text.whole("sliding_window", high=100_000_000)
    return tuple(replace(layer, kind="sliding", window=window) for layer in told.layers)


def _beside(text: Section, told: Architecture, words: int) -> int:
    """Values beside layers and tables, whole on each rank: convolutions around attention and MLP with a selector of
    candidates (qwen3_dflash2.py), a table of transitions between words (qwen3_dspark.py DSparkMarkovHead)."""
    rank = text.whole("markov_rank", low=0, high=100_000, default=0)
    size = rank * (told.vocab + words)
    own = text.section("dflash_config")
    if own is not None and own.has("conv_kernel_size", "selector_rank"):
        taps = own.whole("conv_kernel_size", low=0, high=1000, default=0)
        groups = told.hidden // own.whole("conv_group_size", high=1_000_000, default=told.hidden)
        chosen = own.whole("selector_rank", low=0, high=100_000, default=0)
        size += len(told.layers) * 2 * 2 * taps * (told.hidden + told.hidden * groups)
        size += chosen * (2 * told.vocab + told.hidden)
    return size


def _of_heads(top: Section, *, medusa: bool) -> Architecture:
    """Heads without attention, one for each drafted token (medusa.py, mlp_speculator.py)."""
    hidden = top.whole("hidden_size", "emb_dim", high=1_000_000, default=4096)
    vocab = top.whole("vocab_size", high=_WORDS, default=32_001 if medusa else 32_000)
    blocks = top.whole("num_hidden_layers", "medusa_num_layers", low=0, high=1000, default=1)
    heads = TokenHeads(
        medusa=medusa,
        blocks=blocks,
        inner=hidden if medusa else top.whole("inner_dim", low=0, high=1_000_000, default=0) or hidden,
        one_table=top.flag("original_lm_head" if medusa else "tie_weights", default=False),
        words=top.whole("truncated_vocab_size", low=0, high=_WORDS, default=0) or vocab,
    )
    kind = "medusa" if medusa else "mlp_speculator"
    return Architecture(
        model_type=kind,
        drafts_as=kind,
        name=next(iter(top.texts("architectures")), ""),
        known=True,
        hidden=hidden,
        width=0,
        vocab=vocab,
        tied=False,
        layers=(),
        gated_mlp=False,
        qkv_bias=False,
        out_bias=False,
        qk_norm=False,
        output_gate=False,
        dtype=None,
        context=1 << 20,
        token_heads=heads,
    )
