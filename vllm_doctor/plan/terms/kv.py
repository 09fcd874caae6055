"""The KV cache: bytes of a page per layer kind, groups of layers, blocks, tokens, concurrency, the longest request.

Follows v1/kv_cache_interface.py (pages, what one request needs), v1/core/kv_cache_utils.py (groups, counts,
messages) and, for the V0 engine, worker/cache_engine.py. All sizes are bytes on one rank.
"""

from __future__ import annotations

from math import ceil
from typing import Literal

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.cache_types import ELEMENT, TURBOQUANT

CacheKind = Literal["full", "sliding", "chunked", "mla", "mamba", "cross"]


class Spec(msgspec.Struct, frozen=True):
    """What one layer keeps. `token_bytes` x `block` is its page; a recurrent layer keeps `state_bytes` whatever the
    length."""

    kind: CacheKind
    block: int
    token_bytes: int = 0
    window: int = 0
    state_bytes: int = 0
    spec_blocks: int = 0
    padded: int | None = None
    heads: int = 0  # of keys on this rank: layers of another shape share no group, though a token takes as much

    @property
    def page(self) -> int:
        """Bytes of one block of this layer."""
        if self.padded is not None:
            return self.padded
        return self.state_bytes if self.kind == "mamba" else self.block * self.token_bytes


class Rules(msgspec.Struct, frozen=True):
    """What a version does: see `rules_for`."""

    hybrid: bool = True  # groups by kind; False keeps sliding layers as full ones
    in_flight: int = 0  # tokens a sliding window keeps beside the window
    slack_block: int = 1  # one more block, for a window that starts inside a block
    tokens_by_concurrency: bool = False
    padding_ratio: float = 1.0
    reserve_null_block: bool = False
    bytes_over_block: bool = True
    context_parallel: int = 1
    align_states: bool = False  # prefix caching of recurrent layers: two states a request


class Group(msgspec.Struct, frozen=True):
    """Layers that share a block table: how many (padded), and the spec of each."""

    layers: int
    spec: Spec


class Pool(msgspec.Struct, frozen=True):
    """The grouped cache of one rank: bytes of one block over all layers, and the groups."""

    block_bytes: int
    groups: tuple[Group, ...]
    rules: Rules

    def request_blocks(self, length: int) -> int:
        """Blocks that one request of `length` tokens takes over all groups."""
        return sum(request_blocks(g.spec, length, self.rules) for g in self.groups)

    def needed(self, length: int) -> int:
        """Bytes that vLLM asks for before it serves a request of `length` tokens."""
        return self.request_blocks(length) * self.block_bytes

    def blocks(self, available: float) -> int:
        """Whole blocks in `available` bytes."""
        return max(0, int(available // self.block_bytes)) if self.block_bytes else 0

    def tokens(self, blocks: int, length: int) -> int:
        """The tokens that this release prints as "GPU KV cache size"."""
        if self.rules.tokens_by_concurrency:
            return int(self.concurrency(blocks, length) * length)
        smallest = min(g.spec.block for g in self.groups)
        if not self.rules.align_states and any(g.spec.kind == "mamba" for g in self.groups):
            smallest = min(smallest, length)  # one state holds a whole request (models/config.py mamba_block_size)
        return blocks // len(self.groups) * smallest * self.rules.context_parallel

    def concurrency(self, blocks: int, length: int) -> float:
        """Requests of `length` tokens that the pool holds at once ("Maximum concurrency")."""
        if not self.rules.bytes_over_block:
            return blocks * self.groups[0].spec.block / length
        return blocks / max(1, self.request_blocks(length))

    def longest(self, available: float, limit: int) -> int:
        """The largest length up to `limit` whose need fits ("estimated maximum model length"); 0 if none."""
        usable = available - (self.block_bytes if self.rules.reserve_null_block else 0)
        if self.needed(1) > usable:
            return 0
        low, high = 1, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.needed(middle) <= usable:
                low = middle
            else:
                high = middle - 1
        return low


def request_blocks(spec: Spec, length: int, rules: Rules) -> int:
    """Blocks of one group that a request of `length` tokens takes (max_memory_usage_bytes over page)."""
    if spec.kind == "mamba":
        return (2 if rules.align_states else 1) + spec.spec_blocks
    if spec.kind == "sliding":
        held = min(spec.window - 1 + rules.in_flight, length)
        return ceil(held / spec.block) + rules.slack_block
    if spec.kind == "chunked":
        return ceil(min(spec.window + rules.in_flight, length) / spec.block)
    if spec.kind == "cross":
        return ceil(spec.window / spec.block)
    return ceil(ceil(length / rules.context_parallel) / spec.block)


def _unify(specs: list[Spec]) -> list[Spec]:
    """One page size for all layers: smaller attention pages get a larger block, or padding where that does not
    divide."""
    largest = max(s.page for s in specs)
    out: list[Spec] = []
    for s in specs:
        if s.page == largest:
            out.append(s)
        elif s.kind != "mamba" and largest % s.page == 0:
            out.append(replace(s, block=s.block * (largest // s.page)))
        else:
            out.append(replace(s, padded=largest))
    return out


def pool(specs: list[Spec], rules: Rules) -> Pool | None:
    """Group the layers of a whole model (or of one pipeline stage) as the engine does. None for a model without a
    cache."""
    if not specs:
        return None
    if not rules.hybrid:
        specs = [replace(s, kind="full", window=0) if s.kind in {"sliding", "chunked"} else s for s in specs]
    first = specs[0]
    alike = [s.kind == first.kind and s.window == first.window and s.block == first.block for s in specs]
    if all(alike) or all(s.kind in {"full", "mla"} and s.block == first.block for s in specs):
        # One block table; each layer keeps its own page size (UniformTypeKVCacheSpecs).
        return Pool(sum(s.page for s in specs), (Group(len(specs), first),), rules)
    kinds: dict[Spec, int] = {}
    for s in _unify(specs):
        kinds[s] = kinds.get(s, 0) + 1
    smallest, largest = min(kinds.values()), max(kinds.values())
    size = largest if largest < smallest * rules.padding_ratio else smallest
    groups = tuple(Group(size, s) for s, n in kinds.items() for _ in range(ceil(n / size)))
    return Pool(size * groups[0].spec.page, groups, rules)


def rules_for(
    version: Version,
    *,
    max_batched_tokens: int,
    pp: int = 1,
    async_scheduling: bool | None = None,
    v2_runner: bool = False,
    hybrid: bool = True,
    context_parallel: int = 1,
    prefix_caching: bool = True,
) -> Rules:
    """The counting rules of a V1 release, by what it does (behaviours.json)."""
    does = behaviour(version)
    batches = 1
    if does.counts_batches_in_flight:
        on = async_scheduling if async_scheduling is not None else True
        batches = (pp + 1 if v2_runner else 2 if pp == 1 else pp) if on else pp
    ratio = 1.5 if does.pads_within_half else 1.25 if does.pads_within_quarter else 0.0
    return Rules(
        hybrid=hybrid and does.groups_kinds,
        in_flight=batches * max_batched_tokens,
        tokens_by_concurrency=does.tokens_by_concurrency,
        padding_ratio=ratio,
        reserve_null_block=does.reserves_null_block,
        bytes_over_block=does.need_in_bytes,
        context_parallel=context_parallel,
        align_states=prefix_caching,
    )


def v0_rules() -> Rules:
    """The V0 engine: one table, every layer in full (worker/cache_engine.py get_cache_block_size)."""
    return Rules(hybrid=False, bytes_over_block=False)


PER_TOKEN_HEAD_SCALES = 8  # two fp32 per token and head (kv_cache_interface.py)


def slot_bytes(head_dim: int, key_bits: int, value_bits: int) -> int:
    """Bytes of one head's key and value, packed: a key of 8 bits as it is, else with its norm in two bytes; a value
    with its scale and its zero; on an even number (turboquant/config.py slot_size_aligned)."""
    key = head_dim if key_bits == 8 else ceil(head_dim * key_bits / 8) + 2
    size = key + ceil(head_dim * value_bits / 8) + 4
    return size + size % 2


def token_bytes(heads: int, head_dim: int, value_dim: int, dtype: str, element: int) -> int:
    """Bytes that one token takes in one attention layer of this rank: heads x (key + value) x element, plus scales."""
    if dtype in TURBOQUANT:
        return heads * slot_bytes(head_dim, *TURBOQUANT[dtype])
    each = ELEMENT.get(dtype, 0.0) or float(element)
    scales = heads * PER_TOKEN_HEAD_SCALES if dtype.endswith("_per_token_head") else 0
    return int(heads * (head_dim + value_dim) * each) + scales


def mla_token_bytes(latent: int, dtype: str, element: int) -> int:
    """Bytes that one token takes in one MLA layer, on every tensor-parallel rank (latent = kv_lora_rank + rope)."""
    packed = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
    if dtype in packed:
        return packed[dtype]
    return int(latent * (ELEMENT.get(dtype, 0.0) or float(element)))
