"""Which attention backend takes a launch: the answers of a release's own backends (history/kernels.json `takes`), asked
of what the launch settles, in the release's own order.

A backend answers for the size of a head, the types of cache and model, the card, blocks, sinks and the like. What
nobody knows refuses nothing: a launch is refused where the backend that it asks for says no, or, where it asks for
none, each that the release would try.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from msgspec import structs

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import Record, history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Attention
from vllm_doctor.plan.model.families import BOTH_WAYS
from vllm_doctor.plan.support.asked_facts import FactTest

# The questions that a launch can ask, in the order in which one is told: what a reader would change first.
_ASKED = (
    "kv_cache_dtype", "block_size", "pcp", "dcp", "dtype", "head_size", "sink", "mm_prefix", "capability", "sparse"
)  # fmt: skip
# Models whose layers name a backend of their own: the release does not choose.
_OWN = frozenset({"deepseek_v4", "minimax_m3", "step5", "glm5_next"})
# Layers that keep keys and values.
_KINDS = frozenset({"full", "sliding", "chunked", "mla"})
# The first release whose --speculative-config has a kv_cache_dtype (config/speculative.py).
_OWN_CACHE = as_version("0.26")
_SHORT = {"half": "float16", "float": "float32"}

_Facts = Mapping[str, object]


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, for the first kind of layer that no backend takes."""
    capability = gpu.capability if gpu is not None and gpu.backend == "CUDA" else None
    if gpu is None or capability is None or s.engine != "V1" or s.pooling:
        return
    if not a.known or a.encoder_decoder or a.model_type in _OWN:
        return
    for layer in dict.fromkeys(layer for layer in a.layers if layer.kind in _KINDS):
        facts = _facts(a, s, layer, capability)
        question = _refused(facts, s)
        if question is not None:
            told = _told(question, facts, s, gpu)
            if told.flag not in {earlier.flag for earlier in s.refusals}:  # one mistake is said once
                yield told
            return
    yield from _of_drafter(s, capability)


def _of_drafter(s: Settings, capability: float) -> Iterator[Refusal]:
    """One refusal, where a drafter that is a model of its own has the model's type of cache, which none of the backends
    for its layers takes (v1/spec_decode: a backend is chosen anew, the cache is not)."""
    cache = s.draft_kv_dtype or s.kv_dtype
    if s.draft is None or s.draft.mla is not None or s.kv_stored or cache == "auto":
        return
    alone = structs.replace(s, backend=None, kv_dtype=cache)
    for layer in dict.fromkeys(layer for layer in s.draft.layers if layer.kind in _KINDS):
        if _refused(_facts(s.draft, alone, layer, capability), alone) == "kv_cache_dtype":
            instead = "kv_cache_dtype auto in it" if s.version >= _OWN_CACHE else "another --kv-cache-dtype"
            needed = f"{instead}: no backend of {s.version} takes {cache} for its layers"
            yield Refusal("--speculative-config", f"a drafter with a cache of {cache}", needed)
            return


# What a class is asked for where it is made, in words.
_LAYERS = {
    "head_size": "heads of {}",
    "sliding_window": "windows of {} tokens",
    "logits_soft_cap": "attention logits that are capped",
    "attn_type": "attention to an encoder",
}


def constructed(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, where the class of the backend that is asked for ends the start as it is made for a kind of layer
    (history/kernels.json `made`)."""
    name, table = (s.backend or "").upper(), history("kernels", "attention")
    windows = {layer.window for layer in a.layers if layer.kind in _KINDS}
    if name == "FLASHINFER" and s.engine == "V1" and s.does.flashinfer_of_one_window and len(windows) > 1:
        needed = f"another backend, or vLLM 0.10.1: FlashInfer of {s.version} asks all layers for one window"
        yield Refusal("VLLM_ATTENTION_BACKEND", name, needed)
        return
    if not name or not a.known or a.mla is not None or s.pooling or table.exists(name, s.version) is not True:
        return
    if s.engine == "V0" and name == "FLASH_ATTN":  # attention/selector.py takes xFormers in its place
        return
    engines = table.value(name, s.version).get("made")
    listed = engines.get(s.engine) if isinstance(engines, Mapping) else None
    tests = [str(test) for test in listed] if isinstance(listed, list) else []
    kinds = dict.fromkeys(layer for layer in a.layers if layer.kind in _KINDS)
    for layer in kinds:
        facts: dict[str, object] = {"logits_soft_cap": 1.0 if a.caps_attention else None}
        if layer.head_dim == layer.value_dim:
            facts["head_size"] = layer.head_dim
        if len(windows) == 1:  # of several an engine may make one
            facts["sliding_window"] = layer.window
        if a.encoder_decoder:
            facts["attn_type"] = "encoder_decoder"
        ask = FactTest(facts)
        told = next((test for test in tests if ask.value(_tree(test)) is True), None)
        asked = next((one for one in _LAYERS if told is not None and one in told), None)
        if asked is not None:
            flag = "VLLM_ATTENTION_BACKEND" if s.engine == "V0" else "--attention-backend"
            what = _LAYERS[asked].format(facts[asked])
            yield Refusal(flag, name, f"another backend, or none: in {s.version} it does not take {what}")
            return


def _facts(a: Architecture, s: Settings, layer: Attention, capability: float) -> _Facts:
    """What a kind of layer asks; a name that is not here is not known."""
    dtype = _SHORT.get(s.dtype, s.dtype)
    facts: dict[str, object] = {"capability": capability, "major": int(capability), "dtype": dtype}
    facts["mla"] = latent = a.mla is not None and s.latents
    if a.mla is not None and a.mla.indexer_top:
        facts["sparse"] = True
        if s.kv_dtype != "auto" and not s.does.packs_asked_latents:  # before, it is laid out anew ahead of the choice
            facts["kv_cache_dtype"] = "auto" if s.kv_dtype == "bfloat16" else s.kv_dtype
    else:
        facts["kv_cache_dtype"] = s.kv_dtype
    if not latent:
        if layer.head_dim == layer.value_dim:
            facts["head_size"] = layer.head_dim
        if s.block and not a.hybrid:  # whose blocks the release makes as long as a state
            facts["block_size"] = s.block
    if a.model_type == "gpt_oss":
        facts["sink"] = True
    if a.name in BOTH_WAYS and not s.language_only and s.image_limit is None:
        facts["mm_prefix"] = True
    if s.prefill_parallel > 1:
        facts["pcp"] = True
    if s.context_parallel > s.prefill_parallel:
        facts["dcp"] = True
    return facts


def _refused(facts: _Facts, s: Settings) -> str | None:
    """The question that ends the start; None where none does."""
    table = history("kernels", "attention")
    if s.backend is not None:
        name = s.backend.upper()
        found = _failing(table.value(name, s.version), facts) if table.exists(name, s.version) else ()
        return found[0] if found else None
    chosen = dict(facts)
    if not s.does.selects_by_block:
        chosen.pop("block_size", None)
    records = [table.value(name, s.version) for name in _tried(facts, s.version)]
    if not records:
        return None
    answers = [_failing(record, chosen) for record in records]
    if all(answers):
        # What alone stands in the way of some backend is what a reader can change.
        alone = [question for question in _ASKED if any(set(found) == {question} for found in answers)]
        return (alone or list(answers[0]))[0]
    if chosen != facts:
        blocks = {"block_size": facts["block_size"]}
        if all(_failing(record, blocks) for record in _possible(records, answers, chosen)):
            return "block_size"
    return None


def _possible(records: Sequence[Record], answers: Sequence[tuple[str, ...]], facts: _Facts) -> Iterator[Record]:
    """The backends one of which is chosen: those that may do, up to the first that is sure to."""
    for record, failing in zip(records, answers, strict=True):
        if not failing:
            yield record
            if _sure(record, facts):
                return


def _tried(facts: _Facts, version: Version) -> Iterator[str]:
    """The backends that the release may try, each once, in its order."""
    table, ask = history("kernels", "attention_order"), FactTest(facts)
    names: dict[str, None] = {}
    for condition in table.names():
        if table.exists(condition, version) and ask.value(_tree(condition)) is not False:
            listed = table.value(condition, version).get("names")
            names |= dict.fromkeys(map(str, listed)) if isinstance(listed, list) else {}
    yield from names


def _failing(record: Record, facts: _Facts) -> tuple[str, ...]:
    """The questions to which a backend's answer is no, whatever nobody knows."""
    return tuple(question for question, value in _answers(record, facts) if value is False)


def _sure(record: Record, facts: _Facts) -> bool:
    """Does a backend say yes to all that is asked?"""
    return all(value is True for _, value in _answers(record, facts))


def _answers(record: Record, facts: _Facts) -> Iterator[tuple[str, object]]:
    """A backend's answers to what is asked; to a question that it has no test of the answer is yes."""
    takes = record.get("takes")
    ask = FactTest(facts)
    for question in _ASKED:
        if question in facts and isinstance(takes, Mapping) and question in takes:
            yield question, ask.value(_tree(str(takes[question])))


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _told(question: str, facts: _Facts, s: Settings, gpu: Card) -> Refusal:
    """What is refused, in the launch's own words."""
    asked = s.backend.upper() if s.backend is not None else ""
    own = {
        "kv_cache_dtype": ("--kv-cache-dtype", s.kv_dtype, "auto"),
        "block_size": ("--block-size", str(s.block), "a multiple of 16"),
        "pcp": ("--prefill-context-parallel-size", str(s.prefill_parallel), "1"),
        "dcp": ("--decode-context-parallel-size", str(s.context_parallel // s.prefill_parallel), "1"),
        "dtype": ("--dtype", s.dtype, "bfloat16 or float16"),
    }
    layers = {
        "head_size": f"heads of {facts.get('head_size')}",
        "sink": "attention sinks",
        "mm_prefix": "images that are seen both ways",
        "sparse": "sparse latent attention",
        "capability": f"{gpu.name}, compute capability {gpu.capability}",
    }
    if question in own:
        flag, found, instead = own[question]
        beside = f", or another backend: {asked} does not take it" if asked else f": no backend of {s.version} takes it"
        return Refusal(flag, found, f"{instead}{beside}" + ("" if asked else " with this model on this card"))
    if asked:
        return Refusal("--attention-backend", asked, f"another backend: it does not take {layers[question]}")
    return Refusal("--gpu", gpu.name, f"another card or release: no backend of {s.version} takes {layers[question]}")
