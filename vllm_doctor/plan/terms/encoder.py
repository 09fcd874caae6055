"""What profiling a vision encoder takes: its own peak, and the outputs and pixels that stay alive under the language
model's pass."""

from __future__ import annotations

from math import ceil

import msgspec

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Vision
from vllm_doctor.plan.model.largest_image import QWEN_IMAGE
from vllm_doctor.plan.model.seen_items import asks_limits, takes_videos
from vllm_doctor.plan.terms import tiles
from vllm_doctor.plan.terms.term import Term


class Encoder(msgspec.Struct, frozen=True):
    """Bytes that stay (outputs, pixels), and the terms; the one named "vision encoder" is the encoder's own peak."""

    kept: float
    terms: tuple[Term, ...]


def encoder(a: Architecture, v: Vision, s: Settings) -> Encoder:
    """The encoder profile of a launch, in bytes on one rank."""
    e = s.element
    old_qwen = s.engine == "V0" and v.kind.startswith("qwen2")
    budget = sum(_v0_items(v, s)) if old_qwen else _shrunk(v, s, encoder_tokens(v, s, a))
    # Features of inner layers come beside those of the last (qwen3_vl.py).
    outputs = e * max(budget, _room(v, s)) * a.hidden * (1 + v.deepstack)
    pixels = _pixels(v, budget, a)
    if old_qwen:
        patches, run, formula = _v0_qwen(v, s)
        pixels *= 2  # float32 then
    else:
        patches = _patches(v, budget, a)
        pixels *= 2 if v.tiles and s.engine == "V0" else 1
        values, formula = _values(v, s)
        run = e * patches * values
        run += e * budget * a.hidden * v.deepstack
        formula = f"{patches:.0f} patches × {formula} × {e} B"
        if v.kind == "pixtral" and s.does.masks_images:
            run += _mask(patches, e)
            formula += f" + a mask of {patches:.0f} × {patches:.0f} × {e} B"
    kept = outputs + pixels
    shown = f"{budget} × {a.hidden} × {1 + v.deepstack} × {e} B, and pixels"
    # InternVL's tower is through before its outputs are made.
    peak = run + pixels + (outputs if s.engine == "V0" and not v.tiles else 0.0)
    return Encoder(
        kept,
        (
            Term("encoder outputs and pixels", kept, shown, "gpu_model_runner.py profile_run"),
            Term("vision encoder", peak, formula, "model_executor/models/*vl*.py"),
        ),
    )


def _values(v: Vision, s: Settings) -> tuple[float, str]:
    """Values of one patch that a block's pass has alive at once, and how they come about."""
    ranks = s.parallel.tower_split
    # Learned positions are interpolated to every patch; for Qwen3.5 logs of 0.19 and 0.22 show no copy of them.
    stream = 5 if v.positions and not v.kind.startswith("qwen3_5") else 4
    mlp = stream * v.hidden + (3 if v.gated else 2) * v.width / ranks
    # Attention splits less (models/qwen3_vl.py over qwen2_5_vl.py, 0.11 to 0.33). Whole are positions, the block's
    # input, its norm, the output and the sum of all ranks' outputs; of each rank queries, keys and values as projected
    # (3), queries and keys in order (2) and turned (2), and the result. Three logs of 2 and 4 cards agree to 0.03 GiB.
    # On one card it is no wider than the MLP, or by less than logs differ.
    wide = 5 + 8 / ranks if v.kind.startswith("qwen3") and ranks > 1 else tiles.attention(v, s) if v.tiles else 0.0
    wide = _dots(s, ranks) if v.kind == "dots_vit" else wide
    wide = max(wide, _turned(s)) if v.kind.startswith("qwen") and ranks == 1 else wide
    return max((mlp, f"({stream}×{v.hidden} + MLP)"), (wide * v.hidden, f"{wide:g}×{v.hidden}"))


def _mask(patches: float, element: int) -> float:
    """Bytes of the mask that keeps the images of one batch apart (transformers' generate_block_attention_mask): of all
    patches by all. torch copies it into rows of 8 where it has others (attention.cpp pad_bias)."""
    return element * patches * (patches + (ceil(patches / 8) * 8 if patches % 8 else 0))


def _dots(s: Settings, ranks: int) -> float:
    """Values of one patch, in widths of the tower, in a block's attention of dots.ocr: the block's input and its norm,
    queries, keys and values as projected (3) and in order (3), queries and keys side by side (2) and turned (2). They
    are turned in float32: plain tensors take four times four, themselves, by their cosines, with their halves changed,
    by their sines; a kernel takes four and gives four (models/dots_ocr.py, rotary_embedding/common.py ApplyRotaryEmb).
    A start of 0.12 on an RTX 3090 and one of 0.19 on an H100 logged what comes of it: 4.4 GiB, 3.4."""
    return 2 + (24 if s.does.dots_turns_in_float32 else 18) / ranks


def _turned(s: Settings) -> float:
    """Values of one patch, in widths of the tower, while one card's block of Qwen-VL turns queries and keys in float32:
    the block's input and its norm, queries, keys and values as projected (3) and in order (3), and what is turned,
    before and after (2 for each value, in float32) and in 16 bits. A start of 0.9.2 on an L4 had 0.3 GiB less than
    the MLP would leave, 0.16 of which are these."""
    ordered = 3 if s.does.orders_before_turning else 0
    if s.does.turns_each_in_float32:
        return 2 + 3 + ordered + 5
    return 2 + 3 + ordered + 2 + 10 if s.does.turns_both_in_float32 else 0


def _v0_qwen(v: Vision, s: Settings) -> tuple[float, float, str]:
    """The V0 engine profiled all images that a prompt may hold at once, then its videos, with rotary positions in
    float32: 43 bytes per channel and patch. Fitted to two starts of Qwen2.5-VL-3B (4.06 GiB at 32768 tokens; about
    20.9 GiB, by its pool, at 128000)."""
    patches = max(_v0_items(v, s)) * v.merge * v.merge
    return patches, 43.0 * v.hidden * patches, f"{patches} patches × {v.hidden} × 43 B"


def _v0_items(v: Vision, s: Settings) -> tuple[int, int]:
    """Tokens of the images and of the videos of V0's profile: as many of each as a prompt may hold, one unasked. A
    video has the pairs of frames for which the step has room beside the images, one at least and 8 at most
    (models/qwen2_vl.py get_dummy_mm_data, get_num_frames_with_most_features)."""
    image = tiles.image(v) if v.tiles else _image_tokens(v, s)
    images = (1 if s.image_limit is None else s.image_limit) * image
    if v.tiles:
        return images, 0
    videos = 1 if s.video_limit is None else s.video_limit
    pairs = min(max((s.batched - images) // image // max(videos, 1), 1), 8)
    return images, videos * pairs * image


def profiles_encoder(a: Architecture, s: Settings, *, first_stage: bool) -> bool:
    """Does a stage's profile run the encoder? The first runner of V1 asks for no stage (gpu_model_runner.py
    profile_run); V0's later stages take the hidden states of the one before them."""
    if s.skip_encoder or s.language_only or text_only(a, s):
        return False
    if s.v2_runner:
        return first_stage and s.does.v2_profiles_encoders
    return first_stage or s.engine == "V1"


def text_only(a: Architecture, s: Settings) -> bool:
    """Is nothing profiled: are all limits of items 0 ("running in text-only mode", multimodal/registry.py), or do the
    items of a prompt go beyond V0's step (multimodal/profiling.py)?"""
    if s.engine == "V0" and a.vision is not None:
        dropped = s.does.drops_items_beyond_step and "qwen" in a.vision.kind
        if dropped or (s.does.drops_tiles_beyond_step and a.vision.tiles):
            return sum(_v0_items(a.vision, s)) > s.batched
    return no_items(a, s)


def no_items(a: Architecture, s: Settings) -> bool:
    """May a prompt have neither an image nor a video?"""
    return s.image_limit == 0 and (s.video_limit == 0 or not takes_videos(a.name))


def without_tower(a: Architecture, s: Settings) -> bool:
    """Is the vision tower not made, because no prompt may have an item for it? An encoder of sound has a limit of its
    own."""
    if s.language_only:
        return True
    if a.vision is None or a.audio_weights or s.engine != "V1" or not no_items(a, s):
        return False
    return s.does.skips_unused_towers or (s.does.asks_limits_of_towers and asks_limits(a.name))


def encoder_tokens(v: Vision, s: Settings, a: Architecture) -> int:
    """Tokens that the encoder profile handles: the items of the largest kind that the batch budget holds, one at least,
    and no more than the sequences may bring (multimodal/encoder_budget.py _get_max_items)."""
    item = max(1, tiles.item(v, s, a) if v.tiles else _largest_item(v, s, a))
    if v.tiles and s.engine == "V0":
        return v0_rows(v, s) * sum(_v0_items(v, s))
    if item >= s.batched or s.engine == "V0":
        return max(s.batched, item)
    limit = s.image_limit or (999 if s.does.many_items else 1)
    brought = s.seqs * max(1, min(limit, s.length // item))
    return min(s.batched // item, brought) * item


# The most pixels of an image that dots.ocr's own processor takes (its preprocessor_config.json).
DOTS_PIXELS = 11_289_600
# A video of the most frames at Qwen3-VL's smallest frame, as the log of 0.11.0 states it ("budget of 153600 tokens").
QWEN3_VIDEO = 153_600


def v0_rows(v: Vision, s: Settings) -> int:
    """Sequences of the V0 profile: as many as the step holds prompts with all their items, whether or not it profiles
    any of them (worker/model_runner.py profile_run), which are also the rows that its sampler sees."""
    told = "qwen" in v.kind or v.tiles
    return max(1, min(s.seqs, s.batched // max(1, sum(_v0_items(v, s)) if told else 1)))


def _largest_item(v: Vision, s: Settings, a: Architecture) -> int:
    if v.kind.startswith("qwen2") and s.engine == "V1" and s.video_limit != 0:
        return max(_image_tokens(v, s), _qwen2_video(v, s))
    if "qwen" in v.kind:
        return _image_tokens(v, s)
    if v.kind == "dots_vit":
        return (s.image_pixels or DOTS_PIXELS) // (v.patch * v.merge) ** 2
    side = v.image_size // (v.patch * v.merge)
    return min(side * side, a.context)


def _image_tokens(v: Vision, s: Settings) -> int:
    pixels = s.image_pixels or v.pixels
    return QWEN_IMAGE if pixels is None else max(1, min(QWEN_IMAGE, pixels // (v.patch * v.merge) ** 2))


def _qwen2_video(v: Vision, s: Settings) -> int:
    """Tokens of the longest video that the profile takes: pairs of frames, each as large as an image, as many as the
    length holds and at most 16 frames (to 0.10, where an image has to fit beside them) or 14 (qwen2_vl.py
    get_num_frames_with_most_features)."""
    old = s.does.video_beside_image
    image = _image_tokens(v, s)
    held = (s.length - (image if old else 0)) // image
    return min(8 if old else 7, max(held, 0)) * image


# What Qwen2.5-Omni's processor makes of two frames of a video (transformers' processing_qwen2_5_omni.py max_pixels:
# 768 × 28 × 28), where the profile counts them as two whole images.
OMNI_FRAMES = 768


def _shrunk(v: Vision, s: Settings, budget: int) -> int:
    """Tokens that the items of an encoder budget have when they are profiled."""
    image = _image_tokens(v, s)
    video = v.kind == "qwen2_5_omni_vision_encoder" and s.video_limit != 0 and _qwen2_video(v, s) > image
    return budget // image * min(image, OMNI_FRAMES) if video else budget


def _room(v: Vision, s: Settings) -> int:
    """Tokens that the profile keeps room for beyond what its item has: in 0.11 and 0.12 outputs were copied into
    tensors as long as the encoder budget, which for Qwen3-VL was a video's (gpu_model_runner.py expanded_outputs)."""
    copied = s.does.copies_encoder_outputs and s.video_limit != 0
    return QWEN3_VIDEO if copied and v.kind.startswith("qwen3_vl") and s.length > QWEN_IMAGE else 0


def _pixels(v: Vision, tokens: int, a: Architecture) -> float:
    """Bytes of the profile's pixel input, which stays alive through the language pass (V1 profile_run)."""
    if v.kind == "siglip_vision_model" and a.model_type.startswith("gemma3"):
        return tokens / 256 * 3 * v.image_size**2 * 2
    patches = tokens * v.merge * v.merge * (4 if v.kind == "moonvit" else 1)
    return patches * v.patch * v.patch * 3 * 2 * (2 if "qwen" in v.kind else 1)


def _patches(v: Vision, tokens: int, a: Architecture) -> float:
    if v.kind == "siglip_vision_model" and a.model_type.startswith("gemma3"):
        return tokens / 256 * (v.image_size // v.patch) ** 2
    if v.kind == "moonvit":
        return tokens * 4.0
    if v.tiles:
        return tokens / tiles.tile(v) * (tiles.tile(v) * v.merge * v.merge + 1)
    return tokens * float(v.merge * v.merge)
