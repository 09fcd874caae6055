"""What a model is made of, as far as memory is concerned: frozen records. describe.py makes them from config.json."""

from __future__ import annotations

from typing import Literal

import msgspec

from vllm_doctor.plan.model.config_json import Section

LayerKind = Literal["full", "sliding", "chunked", "mla", "linear", "mamba", "conv", "none"]
# What keeps a state of one size, whatever the number of tokens.
RECURRENT: frozenset[str] = frozenset({"linear", "mamba", "conv"})


class Mla(msgspec.Struct, frozen=True):
    """Multi-head latent attention: ranks and head parts (DeepSeek)."""

    kv_rank: int
    q_rank: int | None
    rope: int
    nope: int
    value: int
    indexer_heads: int = 0
    indexer_dim: int = 0
    indexer_top: int = 0  # tokens that an indexer chooses (DeepSeek V3.2's sparse attention); 0 where there is none


class Compressed(msgspec.Struct, frozen=True):
    """Attention to compressed latents, and what else DeepSeek V4 has beside experts: the ranks of its queries and of
    its output, how many tokens each layer makes one of (0: a window of them alone), an indexer where that is 4, and
    how many streams of hidden states there are."""

    q_rank: int
    out_rank: int
    out_groups: int
    ratios: tuple[int, ...]
    indexer_heads: int
    indexer_dim: int
    indexer_top: int
    streams: int
    hashed: int  # of the layers, the first ones, whose experts a table of words chooses
    rope: int
    window: int


class Linear(msgspec.Struct, frozen=True):
    """A recurrent layer: gated delta net ("gdn") or Mamba, with the shape of its state."""

    kind: Literal["gdn", "mamba2", "mamba1", "conv"]
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv: int
    state_float32: bool
    step_rank: int = 0  # channels between the inner width and its time step (Mamba 1)
    state_type: str = ""  # of Nemotron-H's states, where its config names one


class Moe(msgspec.Struct, frozen=True):
    """Experts of the layers that have them; widths in channels. `beside_mlp`: such a layer has its own MLP too;
    `latent`: what they take and give is as wide as this, between two projections (nemotron_h.py, kimi_k3), else as the
    hidden states."""

    experts: int
    top_k: int
    width: int
    shared_width: int
    layers: frozenset[int]
    router_bias: bool = False
    shared_gate: bool = False
    beside_mlp: bool = False
    latent: int = 0

    def inputs(self, hidden: int) -> int:
        """Channels of what an expert takes and gives."""
        return self.latent or hidden


class Vision(msgspec.Struct, frozen=True):
    """A vision tower, reduced to what its weights and its activations follow from."""

    layers: int
    hidden: int
    width: int
    heads: int
    patch: int
    gated: bool
    positions: int
    merge: int
    out: int
    image_size: int
    kind: str
    deepstack: int = 0
    heads_told: bool = False  # does the checkpoint say how many it has? The classes have numbers of their own
    queries: int = 0  # into which a resampler turns an image (MiniCPM-V)
    pixels: int | None = None  # of the largest image, where the checkpoint's preprocessor is known
    tiles: int = 0  # of the largest image, where a tower sees it as tiles of image_size (InternVL)


class TokenHeads(msgspec.Struct, frozen=True):
    """A drafter without attention: Medusa's heads, or the stages of an MLP speculator, one for each drafted token.
    `one_table`: all choose from one table of words."""

    medusa: bool
    blocks: int
    inner: int
    one_table: bool
    words: int


class Attention(msgspec.Struct, frozen=True):
    """One attention layer: heads and head sizes over all ranks. `window` is tokens (sliding, chunked)."""

    kind: LayerKind
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None = None
    shares_kv: bool = False
    k_is_v: bool = False
    indexed: bool = False  # has an indexer, and a cache for it, of its own


class Architecture(msgspec.Struct, frozen=True):
    """A model as the planner sees it. Sizes are over all ranks; `known` is False for a model type never checked."""

    model_type: str
    name: str
    known: bool
    hidden: int
    width: int
    vocab: int
    tied: bool
    layers: tuple[Attention, ...]
    gated_mlp: bool
    qkv_bias: bool
    out_bias: bool
    qk_norm: bool
    output_gate: bool
    dtype: str | None
    context: int
    moe: Moe | None = None
    mla: Mla | None = None
    compressed: Compressed | None = None
    linear: Linear | None = None
    vision: Vision | None = None
    audio: bool = False
    audio_weights: int = 0
    encoder_decoder: bool = False
    encoder_layers: int = 0
    encoder_context: int = 0
    encoder_input: int = 0  # channels that an encoder of sounds hears
    norms_per_layer: int = 2
    mtp_layers: int = 0
    whole_type: str = ""  # the model type of the whole config, of which the language model is a section
    joined: int = 0  # channels of the model's layers that a drafter of DFlash or EAGLE 3 joins
    joined_layers: int = 0  # how many of the model's layers EAGLE 3 joins
    drafts_as: str = ""  # the method that a drafter's config names
    draft_words: int = 0  # that a drafter chooses from
    beside: int = 0  # values of a drafter beside its layers and tables, whole on each rank
    token_heads: TokenHeads | None = None  # of a drafter that is nothing else
    per_layer_words: int = 0  # that have a per-layer embedding
    positions: int = 0
    per_layer_input: int = 0  # channels of the per-layer embedding of one layer (Gemma 3n, small Gemma 4)
    double_wide: bool = False  # layers that share another's keys have an MLP of twice the width (small Gemma 4)
    shares_weights: bool = False  # and no weights for keys and values
    ropes: tuple[tuple[int, int], ...] = ()  # (rows, rotary size) of each cos/sin table
    multimodal: bool = False
    whole_item: int = 0  # tokens of the largest item whose tokens attend to each other
    caps_attention: bool = False  # attention logits are kept within a bound, which not every kernel does (Gemma 2)
    text_prefix: str = "model"
    config: Section | None = None  # all that config.json says, for what a release's own code asks of it
    quantization: Section | None = None
    rope: Section | None = None  # rope_scaling, or rope_parameters of all layers alike
    own_code: bool = False  # config.json names a class of the checkpoint's own for itself (auto_map)
    doubts: tuple[str, ...] = ()

    @property
    def heads(self) -> int:
        """Query heads of the first attention layer."""
        return next((a.heads for a in self.layers if a.heads), 0)

    @property
    def kv_heads(self) -> int:
        """KV heads of the first attention layer."""
        return next((a.kv_heads for a in self.layers if a.kv_heads), 0)

    @property
    def head_dim(self) -> int:
        """Head size of the first attention layer."""
        return next((a.head_dim for a in self.layers if a.head_dim), 0)

    @property
    def hybrid(self) -> bool:
        """Has recurrent state beside attention."""
        return any(a.kind in RECURRENT for a in self.layers)
