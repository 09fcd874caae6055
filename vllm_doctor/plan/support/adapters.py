"""Models that a release says it has adapters for, and whose start ends where they are made (adapters.json).

The release makes an adapter layer for each matrix whose name the class lists with as many parts as the matrix has, and
asserts that there is one; what belongs to a tower is left out by the prefix that the class names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.adapted import HEAD, adapted_words
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.traits import lacks
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Shared
from vllm_doctor.plan.launch.settings import DTYPE_BYTES, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support import without_experts
from vllm_doctor.plan.terms.encoder import text_only


class Broken(msgspec.Struct, frozen=True):
    """Releases whose adapters end the start of an architecture; `profile` where the profile run of an image does."""

    architecture: str
    since: str
    until: str
    profile: bool
    what: str
    source: str

    def at(self, version: Version) -> bool:
        """Is it so in this release?"""
        return as_version(self.since) <= version < as_version(self.until)


@cache
def rows() -> tuple[Broken, ...]:
    """The table."""
    told = json.loads(Path(__file__).with_name("adapters.json").read_text(encoding="utf-8"))
    return tuple(msgspec.convert(told, list[Broken]))


_ADAPTED = "no_adapted_experts"

# Before these releases the largest vocabulary whose head can be adapted, and since (lora/layers.py, then
# lora/layers/logits_processor.py create_lora_weights; read in 0.3.3, 0.4.2, 0.5.4, 0.5.5, 0.16.0 and 0.17.1).
_LARGEST = (("0.4", 33024), ("0.5.5", 128512), ("0.17", 257024))
_SINCE = 258048
# Rows that an adapter may add to the vocabulary, which count there until 0.12 (--lora-extra-vocab-size).
_ADDED = 256


def _vocabulary(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, where the head is adapted and its vocabulary is larger than the release takes."""
    adapted = adapted_words(a.name, s.version)
    asked = s.lora_targets is None or HEAD in s.lora_targets
    if adapted is None or HEAD not in adapted or not asked or s.pooling:
        return
    most = next((size for before, size in _LARGEST if s.version < as_version(before)), _SINCE)
    rows = a.vocab + (_ADDED if s.does.adds_words else 0)
    if rows > most:
        instead = f"no --enable-lora: vLLM {s.version} adapts heads of at most {most} tokens, {a.name} has {rows}"
        yield Refusal("--enable-lora", "set", instead)


# The largest rank that the kernel of all steps at once takes (lora/ops/triton_ops/fused_moe_lora_op.py).
_EXPERTS_RANK = 128


def _rank(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, where adapters of experts have more rows than the release's kernel takes."""
    experts = a.moe is not None and s.lora_targets is None
    if experts and s.does.adapts_experts_at_once and s.lora_rank > _EXPERTS_RANK and not s.lora_shared:
        needed = f"at most {_EXPERTS_RANK}, which its kernel of experts takes; or vLLM 0.32"
        yield Refusal("--max-lora-rank", str(s.lora_rank), needed)


# The one way of exchanging tokens that adapters of experts know, and the names that the release takes for it
# (lora/layers/fused_moe.py _ep_check, from 0.21 on; config/parallel.py __post_init__).
_GATHERING = "allgather_reducescatter"
_ADAPTED_EXCHANGES = frozenset({_GATHERING, "pplx", "naive"})


def _shared(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Ranks that have whole experts, or a part of an adapter's rows (lora/layers/fused_moe.py, column_parallel.py)."""
    par = s.parallel
    experts = a.moe is not None and s.lora_targets is None and s.does.adapts_experts
    if experts and par.expert and par.expert_split > 1:
        if s.does.adapts_no_experts_of_ranks:
            needed = (
                f"no --enable-expert-parallel beside --enable-lora, or vLLM 0.21: {s.version} adapts no such experts"
            )
            yield Refusal("--enable-expert-parallel", "set", needed)
        elif s.lora_shared:
            yield Refusal("--fully-sharded-loras", "set", "it, or --enable-expert-parallel")
        elif s.exchanges and s.exchanges.isdisjoint(_ADAPTED_EXCHANGES):
            needed = f"{_GATHERING} beside --enable-lora and --enable-expert-parallel"
            yield Refusal("--all2all-backend", " or ".join(sorted(s.exchanges)), needed)
        elif par.shared is Shared.WHOLE:
            needed = "1 beside --enable-lora where experts are spread over data-parallel ranks: such ranks split tokens"
            yield Refusal("--tensor-parallel-size", str(par.tp), needed)
    if s.lora_shared and s.lora_rank % par.tp:
        yield Refusal("--max-lora-rank", str(s.lora_rank), f"a multiple of {par.tp}, the ranks that share its rows")


def _experts(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, where adapters find nothing in a model's experts: its class has no map of them, which is asked for
    whatever is adapted (lora/utils.py process_packed_modules_mapping), or their quantization gives no kernel."""
    if a.moe is None:
        return
    if s.does.asks_map_of_adapted_experts and lacks(a.name, "get_expert_mapping", s.version):
        instead = f"no --enable-lora: {a.name} of {s.version} has no map of its experts (get_expert_mapping)"
        yield Refusal("--enable-lora", "set", f"{instead}, or vLLM 0.25")
    elif s.does.adapts_experts and s.lora_targets is None and (method := without_experts.unable(a, s, gpu, _ADAPTED)):
        instead = f"no --enable-lora: vLLM {s.version} adapts no experts in {method}"
        yield Refusal("--enable-lora", "set", f"{instead}; or a checkpoint in another format")


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, where adapters are asked for that end the start."""
    if not s.loras:
        return
    if DTYPE_BYTES.get(s.dtype) == 4:  # lora/ops asserts 16 bits of what it is given, in 0.5.4 to 0.33.0
        needed = f"float16 or bfloat16 beside --enable-lora: the kernels of adapters take no other in {s.version}"
        yield Refusal("--dtype", s.dtype, needed)
    yield from _experts(a, s, gpu)
    yield from _vocabulary(a, s)
    yield from _rank(a, s)
    yield from _shared(a, s)
    for row in rows():
        if row.architecture != a.name or not row.at(s.version):
            continue
        if row.profile and (s.skip_encoder or s.language_only or text_only(a, s)):
            continue
        instead = f"no --enable-lora, or vLLM {row.until} or later: with {a.name} {row.what} in {s.version}"
        yield Refusal("--enable-lora", "set", instead)
        return
