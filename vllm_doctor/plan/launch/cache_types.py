"""What --kv-cache-dtype makes of a value of the cache."""

from __future__ import annotations

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
# Layouts that releases list (config/cache.py CacheDType of 0.33.0) and whose bytes a token are not known here.
UNKNOWN = frozenset(
    {
        "turboquant_k8v4",
        "turboquant_4bit_nc",
        "turboquant_k3v4_nc",
        "turboquant_3bit_nc",
        "octave_k3v4",
        "octave_k3v3",
        "octave_k3v3_compact",
        "ultraquant_4bit",
    }
)
