#!/usr/bin/env python3
"""Generate a tiny random Llama with its tokenizer: tiny_model.py FOLDER

It answers nonsense, but as a real model does: real weights, a real tokenizer, a KV cache of 16 KiB a token in
bfloat16 (2 × layers × KV heads × head size × 2 B = 2 × 4 × 8 × 128 × 2), so that a GiB holds 65536 tokens and a
context that does not fit is easy to ask for. Standard library only: it runs before vLLM is installed. The weights
come from a fixed seed, and config.json is written last, so that an interrupted run is seen and done again.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from array import array
from pathlib import Path

HIDDEN, INTERMEDIATE, LAYERS, HEADS, HEAD_DIM = 64, 128, 4, 8, 128
SPECIALS = ["<s>", "</s>"]
VOCABULARY = 256 + len(SPECIALS)
CHAT = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "torch_dtype": "bfloat16",
}


def byte_characters() -> list[str]:
    """Give the printable character that byte-level tokenizers write for each of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def tokenizer() -> dict[str, object]:
    """Compose a byte-level tokenizer without merges: every byte is a token, so every text can be said."""
    words = {character: number for number, character in enumerate(byte_characters())}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = [{"id": 256 + n, "content": text, "special": True, **plain} for n, text in enumerate(SPECIALS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": words, "merges": []},
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """Name every tensor of a Llama and its shape."""
    attention = HEADS * HEAD_DIM
    named: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        named |= {f"{at}.self_attn.{part}_proj.weight": (attention, HIDDEN) for part in "qkv"}
        named |= {
            f"{at}.self_attn.o_proj.weight": (HIDDEN, attention),
            f"{at}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
        named |= {f"{at}.mlp.{part}_proj.weight": (INTERMEDIATE, HIDDEN) for part in ("gate", "up")}
        named |= {f"{at}.{part}_layernorm.weight": (HIDDEN,) for part in ("input", "post_attention")}
    return named | {"model.norm.weight": (HIDDEN,)}


def bfloat16(values: array[float]) -> bytes:
    """Cut float32 down to its upper half."""
    raw = values.tobytes()
    return b"".join(raw[i + 2 : i + 4] for i in range(0, len(raw), 4))


def safetensors() -> bytes:
    """Compose the weights: an 8-byte length, a JSON header and the tensors one after another."""
    draw = random.Random(0)  # noqa: S311 (weights, not secrets)
    header, blobs, offset = {}, [], 0
    for name, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        norm = len(shape) == 1
        blob = bfloat16(array("f", (1.0 if norm else draw.uniform(-0.1, 0.1) for _ in range(count))))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + b"".join(blobs)


def main() -> None:
    """Write the five files of a model folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    named = {"bos_token": SPECIALS[0], "eos_token": SPECIALS[1]}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT,
        "model_max_length": 131072,
        **named,
    }
    (folder / "model.safetensors").write_bytes(safetensors())
    for name, content in {
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": settings,
        "generation_config.json": {"bos_token_id": 256, "eos_token_id": 257},
        "config.json": CONFIG,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
