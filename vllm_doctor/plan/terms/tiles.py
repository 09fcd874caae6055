"""What the profile shows to InternVL's tower, which sees a picture as tiles of equal size and a video as frames of one
tile each (models/internvl.py), and what a patch takes in its attention (models/intern_vit.py)."""

from __future__ import annotations

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Vision

# The text models whose checkpoints have a word for videos (get_video_token): one to 0.10.1, then three.
_FILMED = {"qwen2": True, "qwen3": False, "qwen3_moe": False}


def tile(v: Vision) -> int:
    """Tokens of one tile."""
    return (v.image_size // (v.patch * v.merge)) ** 2


def image(v: Vision) -> int:
    """Tokens of the image of the most tiles."""
    return v.tiles * tile(v)


def item(v: Vision, s: Settings, a: Architecture) -> int:
    """Tokens of the largest item that V1 profiles: a video has the frames that the length holds, to 0.10 beside an
    image."""
    old = _FILMED.get(a.model_type)
    if a.name != "InternVLChatModel" or s.video_limit == 0 or not s.does.films_tiles:
        return image(v)
    if old is None or not (old or s.does.films_tiles_of_qwen3):
        return image(v)
    beside = image(v) if s.does.video_beside_image and s.image_limit != 0 else 0
    return max(image(v), max((s.length - beside) // tile(v), 1) * tile(v))


def attention(v: Vision, s: Settings) -> float:
    """Values of one patch, in widths of the tower, in a block's attention where its heads do not divide by the ranks,
    so that each has all of it: the stream (4), queries, keys and values as projected (3), then queries and keys
    normalized (2) and the result, or, where the norm was in float32, normalized queries and that norm's values (4)."""
    if not v.heads % s.parallel.tower_split:
        return 0.0
    return 12.0 if s.does.norms_tower_heads_in_float32 else 10.0
