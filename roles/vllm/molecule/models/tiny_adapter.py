#!/usr/bin/env python3
"""Generate a tiny adapter (LoRA, rank 8) for the model of tiny_model.py: tiny_adapter.py FOLDER"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from pathlib import Path

import tiny_model as base

RANK = 8
CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "acme/tiny",
    "r": RANK,
    "lora_alpha": RANK,
    "lora_dropout": 0.0,
    "bias": "none",
    "target_modules": ["q_proj", "v_proj"],
}


def main() -> None:
    """Write its two files."""
    header, blobs, offset = {}, [], 0
    for layer in range(base.LAYERS):
        for part in "qv":
            at = f"base_model.model.model.layers.{layer}.self_attn.{part}_proj"
            for name, shape in (("A", (RANK, base.HIDDEN)), ("B", (base.HEADS * base.HEAD_DIM, RANK))):
                blob = base.bfloat16(array("f", [0.01] * (shape[0] * shape[1])))
                offsets = [offset, offset + len(blob)]
                header[f"{at}.lora_{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
                blobs.append(blob)
                offset += len(blob)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    folder = Path(sys.argv[1])
    folder.joinpath("adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blobs))
    folder.joinpath("adapter_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")


if __name__ == "__main__":
    main()
