"""What --kv-cache-dtype makes of a value of the cache."""

from __future__ import annotations

import msgspec

from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section

# Bytes per element of --kv-cache-dtype; "auto" takes the model dtype, the packed kinds are computed per head below.
ELEMENT = {
    "auto": 0.0,
    "float16": 2.0,
    "bfloat16": 2.0,
    "half": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "fp8_ds_mla": 1.0,
    "nvfp4_ds_mla": 0.5625,
    "int8_per_token_head": 1.0,
    "fp8_per_token_head": 1.0,
    "int4_per_token_head": 0.5,
    "nvfp4": 0.5625,
    "nvfp4_4over6": 0.5625,
}
# Bits of a key's value and of a value's, in the layouts that pack both of one head into a slot
# (quantization/turboquant/config.py TQ_PRESETS, the same from 0.20 to 0.33).
TURBOQUANT = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
# Layouts that releases list (config/cache.py CacheDType of 0.33.0) and no build for CUDA takes: their bytes a token are
# not known here.
UNKNOWN = frozenset({"octave_k3v4", "octave_k3v3", "octave_k3v3_compact", "ultraquant_4bit"})
# First and last layers that keep their type beside such a layout (turboquant/config.py get_boundary_skip_layers).
ENDS = 2


class Unpacked(msgspec.Struct, frozen=True):
    """Layers whose cache keeps the model's type: by number, and all that have a window."""

    layers: frozenset[int] = frozenset()
    windows: bool = False

    def holds(self, index: int, *, window: bool) -> bool:
        """Is it one of them?"""
        return index in self.layers or (self.windows and window)


def unpacked_layers(flags: Flags, a: Architecture, layout: str) -> Unpacked:
    """Those that --kv-cache-dtype-skip-layers names, and the ends of a model without recurrent layers beside
    turboquant (engine/arg_utils.py create_engine_config)."""
    named = (flags.text("kv-cache-dtype-skip-layers") or "").split(",")
    numbers = {int(name) for name in named if name.strip().isdecimal() and len(name) < 8}
    if layout in TURBOQUANT and not a.hybrid:
        count = len(a.layers)
        ends = min(ENDS, count // 2)
        numbers |= {*range(ends), *range(count - ends, count)}
    return Unpacked(frozenset(numbers), "sliding_window" in named)


def cache_type(flags: Flags, a: Architecture, does: Behaviour) -> str:
    """The layout that is asked for, or else the checkpoint's; whether the release lists it was asked when the line was
    read. Raises SettingError."""
    asked = flags.text("kv-cache-dtype") or "auto"
    if asked not in ELEMENT and asked not in {*TURBOQUANT, *UNKNOWN}:
        raise SettingError(
            f"--kv-cache-dtype: found {asked!r}; needed: a layout that some release has: "
            f"{', '.join(sorted({*ELEMENT, *TURBOQUANT, *UNKNOWN}))}"
        )
    stored = asked == "auto" and does.takes_cache_of_modelopt and a.quantization is not None
    return "fp8_e4m3" if stored and a.quantization is not None and _in_fp8(a.quantization) else asked


def layers_cache_type(flags: Flags, a: Architecture, does: Behaviour) -> str:
    """The layout that the layers take. The configuration still says what was asked for where it is the checkpoint's
    kv_cache_scheme that decides; layers of latents do not ask it (mla_attention.py)."""
    asked = cache_type(flags, a, does)
    config = a.quantization
    named = config is not None and config.text("quant_method").lower().replace("_", "-") == "compressed-tensors"
    scheme = config.section("kv_cache_scheme") if config is not None and named and a.mla is None else None
    decides = does.takes_cache_scheme and (asked == "auto" or does.cache_scheme_over_option)
    return "fp8" if scheme is not None and decides else asked


def _in_fp8(config: Section) -> bool:
    """Does a checkpoint of modelopt name a cache of 8-bit floats with scales of its own (utils/torch_utils.py
    get_kv_cache_quant_algo_string)?"""
    method = config.text("quant_method")
    if not method.startswith("modelopt"):
        return False
    for part in (config.section("quantization") or config, config):
        scheme = part.section("kv_cache_scheme") if isinstance(part.values.get("kv_cache_scheme"), dict) else None
        if scheme is not None:
            kind = (scheme.values.get("num_bits"), scheme.text("type"), scheme.values.get("dynamic"))
            return kind == (8, "float", False)
    return any(
        part.text("kv_cache_quant_algo").lower() == "fp8" for part in (config.section("quantization") or config, config)
    )
