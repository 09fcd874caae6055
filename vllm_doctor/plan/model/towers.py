"""From config.json to what stands beside the language model: the vision tower and the audio encoder."""

from vllm_doctor.plan.model.architecture import Vision
from vllm_doctor.plan.model.config_json import Section

# Phi-3-vision's tower stands in the code alone (phi3v.py CLIP_VIT_LARGE_PATCH14_336_CONFIG); four patches make a token.
PHI3_TOWER = Vision(24, 1024, 4096, 16, 14, False, 0, 2, 0, 336, "clip_vision_model")

# The names of the number of heads, as families have them.
_HEADS = ("num_heads", "num_attention_heads", "heads", "vt_num_attention_heads")


def vision_tower(top: Section) -> Vision | None:
    """The vision tower; None for a model without."""
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
    queries = top.whole("query_num", low=0, high=100_000, default=64) if top.text("model_type") == "minicpmv" else 0
    layers -= queries > 0 and top.flag("drop_vision_last_layer", default=False)
    return Vision(
        layers=layers,
        hidden=hidden,
        width=seen.whole("intermediate_size", "mlp_hidden_dim", high=1_000_000, default=4 * hidden),
        heads=seen.whole(*_HEADS, high=4096, default=16),
        patch=seen.whole("patch_size", "spatial_patch_size", high=1024, default=14)
        if not isinstance(seen.values.get("patch_size"), list)
        else 14,
        gated=kind in {"qwen2_5_vl", "qwen2_5_omni_vision_encoder", "pixtral", "gemma4_vision", "dots_vit"},
        positions=_tile_rows(seen, image)
        if kind == "mllama_vision_model"
        else seen.whole("num_position_embeddings", "position_embedding_size", low=0, high=10_000_000, default=0),
        merge=seen.whole("spatial_merge_size", high=64, default=_merge(top)),
        out=seen.whole("out_hidden_size", "vision_output_dim", low=0, high=100_000, default=0),
        image_size=image,
        kind=kind,
        deepstack=len(seen.items("deepstack_visual_indexes") or []),
        queries=queries,
        tiles=_tiles(top) if kind.startswith("intern_vit") else 0,
        heads_told=any(seen.has(name) for name in _HEADS),
    )


def _merge(top: Section) -> int:
    """Patches to a token, along one side: InternVL says its inverse (downsample_ratio)."""
    ratio = top.values.get("downsample_ratio")
    inverse = round(1 / ratio) if isinstance(ratio, float) and 1 / 64 <= ratio <= 1 else 1
    return top.whole("spatial_merge_size", high=64, default=inverse)


def _tiles(top: Section) -> int:
    """Tiles of InternVL's largest image: the most that it is cut into, and the whole of it, made small, beside them
    (internvl.py resolve_internvl_min_max_num)."""
    most = top.whole("max_dynamic_patch", high=1000, default=6)
    most = most if top.flag("dynamic_image_size", default=False) else 1
    return most + (most != 1 and top.flag("use_thumbnail", default=False))


def _tile_rows(seen: Section, image: int) -> int:
    """Rows of Llama 3.2 Vision's position tables: one of a tile, one of each tile of each shape that an image may have,
    and what is added before and after the local layers (mllama.py MllamaPrecomputedPositionEmbedding)."""
    tiles = seen.whole("max_num_tiles", high=64, default=4)
    shapes = len(seen.items("supported_aspect_ratios") or [()] * 8) + 1
    patches = (image // seen.whole("patch_size", high=1024, default=14)) ** 2 + 1
    return patches + shapes * tiles * (patches + 2)


def audio_weights(top: Section, hidden: int) -> int:
    """Weights of the conformer of Gemma 3n and Gemma 4: a layer has two halved feed-forwards of four times the width
    (16 H²), attention with relative positions (5 H²) and a convolution (3 H²) (gemma3n.py of transformers)."""
    heard = top.section("audio_config")
    if heard is not None and heard.text("model_type") == "qwen2_5_omni_audio_encoder":
        return _heard_as_by_whisper(heard)
    if heard is None or not heard.text("model_type").startswith(("gemma3n", "gemma4")):
        return 0
    width = heard.whole("hidden_size", high=100_000, default=1536)
    depth = heard.whole("num_hidden_layers", "conf_num_hidden_layers", high=1000, default=12)
    return depth * 24 * width * width + width * hidden


def _heard_as_by_whisper(heard: Section) -> int:
    """Weights of Qwen2.5-Omni's encoder: two convolutions over three steps, layers of attention and of two matrices,
    and a projection (transformers' modeling_qwen2_5_omni.py Qwen2_5OmniAudioEncoder)."""
    width = heard.whole("d_model", high=100_000, default=1280)
    inner = heard.whole("encoder_ffn_dim", high=1_000_000, default=5120)
    depth = heard.whole("encoder_layers", high=1000, default=32)
    mel = heard.whole("num_mel_bins", high=100_000, default=128)
    given = heard.whole("output_dim", high=100_000, default=3584)
    return depth * (4 * width * width + 2 * width * inner) + 3 * width * (mel + width) + width * given
