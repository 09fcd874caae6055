"""Run by an installed vLLM's own Python: its cache classes answer for lists of layers given as JSON on standard
input."""

import json
import sys
from types import SimpleNamespace

import torch
from vllm.v1.core import kv_cache_utils as utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_cache_layout import KVCacheLayout


def spec(layer):
    """One layer's spec: bytes per token stand for heads and sizes (one head of bytes/2 in two int8 halves)."""
    kind, block, token = layer["kind"], layer["block"], layer["token_bytes"]
    size = {"block_size": block, "num_kv_heads": 1, "dtype": torch.int8}
    if kind == "mla":
        return MLAAttentionSpec(head_size=token, **size)
    if kind == "sliding":
        return SlidingWindowSpec(head_size=token // 2, sliding_window=layer["window"], **size)
    if kind == "mamba":
        state = ((layer["state_bytes"],),)
        return MambaSpec(
            block_size=block,
            shapes=state,
            dtypes=(torch.int8,),
            page_size_padded=layer["padded"],
            num_speculative_blocks=layer["spec_blocks"],
        )
    return FullAttentionSpec(head_size=token // 2, **size)


def answer(case):
    cache = SimpleNamespace(
        num_gpu_blocks_override=None,
        mamba_cache_mode="align" if case["align"] else "none",
        prefix_cache_retention_interval=0,
        get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBNHC,
    )
    config = SimpleNamespace(
        cache_config=cache,
        model_config=SimpleNamespace(max_model_len=case["length"]),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1, tensor_parallel_size=1
        ),
        speculative_config=None,
        attention_config=SimpleNamespace(hisparse_config=None),
        max_in_flight_tokens=case["in_flight"],
        kv_transfer_config=None,
    )
    groups = utils.get_kv_cache_groups(config, {f"layers.{i}": spec(s) for i, s in enumerate(case["layers"])})
    made = utils.get_kv_cache_config_from_groups(config, groups, case["available"])
    return {
        "groups": len(groups),
        "blocks": made.num_blocks,
        "needed": utils._max_memory_usage_bytes_from_groups(config, groups),
        "concurrency": utils.get_max_concurrency_for_kv_cache_config(config, made),
    }


print("ANSWER " + json.dumps([answer(c) for c in json.load(sys.stdin)]))
