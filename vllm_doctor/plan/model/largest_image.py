"""The largest image that a checkpoint's own preprocessor takes, which decides how much the encoder's profile takes.

vLLM asks the processor for its most pixels (models/qwen2_vl.py get_image_size_with_most_features), and the processor
reads preprocessor_config.json of the checkpoint, which no config.json and no launch shows. It lies beside a config.json
that came with its model. A launch that names a Qwen model by its maker's name has the maker's own, which takes as much
as vLLM plans with (starts of Qwen2.5-VL, Qwen3-VL and Qwen3.5 show 16384 tokens an image); a model that others tuned
may have less.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from vllm_doctor.gather.bounded import all_of, json_value
from vllm_doctor.plan.model.architecture import Architecture, Vision
from vllm_doctor.plan.model.config_json import MAX_BYTES
from vllm_doctor.records.reading import Known, Unknown

FILE = "preprocessor_config.json"
_MAKER = "Qwen/"
# 12845056 pixels in 28-pixel merged patches (Qwen2-VL), 16777216 in 32-pixel ones (Qwen3-VL): 16384 tokens each.
QWEN_IMAGE = 16384


def with_largest_image(a: Architecture, config: Path, model: str | None) -> Architecture:
    """The architecture with what its preprocessor says of images, where that is known and decides something."""
    if a.vision is None or "qwen" not in a.vision.kind:
        return a
    pixels = _beside(config)
    if pixels is None and (model or "").startswith(_MAKER):
        pixels = _most(a.vision)
    return a if pixels is None else replace(a, vision=replace(a.vision, pixels=pixels))


def most_pixels(values: object) -> int | None:
    """The most pixels that these settings of a processor name (max_pixels, or the longest edge of its size, which
    Qwen's processors count in pixels)."""
    if not isinstance(values, Mapping):
        return None
    size = values.get("size")
    told = values.get("max_pixels", size.get("longest_edge") if isinstance(size, Mapping) else None)
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else None


def _most(v: Vision) -> int:
    return int(QWEN_IMAGE * (v.patch * v.merge) ** 2)


def _beside(config: Path) -> int | None:
    folder = config if config.is_dir() else config.parent
    raw = all_of(str(folder / FILE), FILE, MAX_BYTES) if (folder / FILE).is_file() else b""
    if isinstance(raw, Unknown):
        return None
    told = json_value(raw, FILE, "download the checkpoint again")
    return most_pixels(told.value) if isinstance(told, Known) else None  # vLLM says what is wrong with it
