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
    "int8_per_token_head": 1.0,
    "fp8_per_token_head": 1.0,
    "int4_per_token_head": 0.5,
    "nvfp4": 0.5625,
    "nvfp4_4over6": 0.5625,
}
