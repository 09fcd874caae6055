"""One pipeline stage's terms, in bytes: weights, activations, the pool of the KV cache, what loading takes."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.generations import ADA, BLACKWELL, HOPPER
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.online import STREAMED, STREAMED_EXPERTS
from vllm_doctor.plan.launch.parallel import Parallel, Shared
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Attention
from vllm_doctor.plan.model.quantization import Scheme, scheme
from vllm_doctor.plan.terms import turboquant
from vllm_doctor.plan.terms.activation import Activation, estimate
from vllm_doctor.plan.terms.balancing import balancing
from vllm_doctor.plan.terms.compiling import left_behind, may_stay
from vllm_doctor.plan.terms.draft_model import drafter_bytes
from vllm_doctor.plan.terms.encoder import without_tower
from vllm_doctor.plan.terms.fragments import stranded
from vllm_doctor.plan.terms.host import Offloaded, offloaded
from vllm_doctor.plan.terms.kv import Pool
from vllm_doctor.plan.terms.lora import lora_bytes
from vllm_doctor.plan.terms.matrices import first_expert, padded_vocab
from vllm_doctor.plan.terms.pages import pool_of
from vllm_doctor.plan.terms.products import products
from vllm_doctor.plan.terms.term import Term
from vllm_doctor.plan.terms.weights import WeightTarget, rank_weights, step_buffers


class Stage(msgspec.Struct, frozen=True):
    """One pipeline stage's terms in bytes."""

    weights: float
    activation: Activation
    pool: Pool | None
    checked: Pool | None  # the pool against which vLLM checks that one request fits
    stranded: float
    heavier: float  # what the weights are more if the host's kernels lay them out the other way
    replicated: float  # what they are more if each rank holds the shared experts whole
    lighter: float  # what the profile takes less if NIXL is installed, by which experts are balanced
    offloaded: Offloaded  # of the weights, what stays on the host
    loading: float  # what is there beside the weights until they are loaded
    pinned: float  # of what compiling takes, what may stay
    staying: float  # and of that what is planned to
    reserved: float = 0.0  # what kernels take when the pool is made, beyond the profile


def quantization(a: Architecture, s: Settings) -> Scheme:
    """The launch's weight formats. Raises ConfigError for a broken quantization_config."""
    return scheme(a.quantization, s.quantization, s.element, s.gguf)


@lru_cache(maxsize=1024)
def _loaded(  # noqa: PLR0917
    a: Architecture,
    quantized: tuple[str | None, int, str | None],
    parallel: Parallel,
    index: int,
    target: WeightTarget,
    draft: str | None,
) -> float:
    """Bytes of one rank's weights. Kept: a search varies what they do not depend on, and they are most of its work."""
    fmt = scheme(a.quantization, *quantized)
    eagle, third = draft in {"eagle", "eagle3"}, draft == "eagle3"
    return rank_weights(
        a, fmt, parallel, index, target, draft_mtp=draft == "mtp", draft_eagle=eagle, draft_eagle3=third
    )


def stage_of(a: Architecture, s: Settings, gpu: Card | None, index: int, fmt: Scheme) -> Stage:
    """The terms of the stage with this number."""
    if gpu is not None and gpu.backend != "CUDA":
        # FlashInfer is CUDA's (v1/sample/ops/topk_topp_sampler.py is_cuda).
        s = replace(s, flashinfer_asked=False, flashinfer_sampler=False)
    target = WeightTarget(
        s.element,
        splits_large=s.does.splits_large_blocks,
        capability=gpu.capability if gpu else None,
        rope_element=s.element,
        undoes_double=s.does.undoes_double_quantization,
    )
    own = a.model_type.startswith("gemma4") and s.does.shares_keys_without_weights
    # A model that pools is built without the head (models/adapters.py StageMissingLayer).
    headless = a.tied or s.pooling
    # Each stage makes the tower, though the first alone uses it; the second runner's later ones have stopped to.
    elsewhere = index > 0 and s.v2_runner and s.does.v2_towers_on_first_stage
    tower = None if elsewhere or without_tower(a, s) else a.vision
    shown = replace(a, vision=tower, shares_weights=own, tied=headless, layers=_with_indexers(a, s))

    drafts = s.speculative if s.draft is None else None  # by analogy with the model, where nothing tells

    def load(to: WeightTarget, par: Parallel = s.parallel) -> float:
        return _loaded(shown, (s.quantization, s.element, s.gguf), par, index, to, drafts)

    weights, heavier = load(target) + step_buffers(shown, s.batched, s.element) + lora_bytes(a, s, index), 0.0
    last = index == s.parallel.pp - 1
    weights += _chosen_apart(shown, s) if last else 0.0
    weights += products(shown, s, fmt, index)
    weights += (drafter_bytes(a, s, target) if last else 0.0) + turboquant.kept_by_layers(a, s, index)
    # Triton's layout or Marlin's: gpt-oss-120b logs 65.97 GiB with 0.10.1, 64.38 with 0.14.1.
    if fmt.name == "mxfp4" and not s.does.mxfp4_for_triton and HOPPER <= (target.capability or 0) < BLACKWELL:
        heavier = max(0.0, load(replace(target, capability=ADA)) - weights)

    replicated = 0.0
    if s.parallel.shared is Shared.PERHAPS:
        replicated = load(target, replace(s.parallel, shared=Shared.WHOLE)) - load(target)

    def profiled(pass_: Term | None) -> Activation:
        return estimate(
            shown,
            s,
            capability=gpu.capability if gpu else None,
            multiprocessors=gpu.multiprocessors if gpu else 132,
            experts=fmt.choose(first_expert(a), True).name if a.moe is not None else "",
            first_stage=index == 0,
            last_stage=last,
            balancing=pass_,
        )

    balanced = balancing(a, s, fmt, target)
    weights += balanced.kept
    activation = profiled(balanced.profiled)
    lighter = activation.peak - profiled(None).peak if s.balances == "either" else 0.0
    pool = pool_of(a, s, gpu, index)
    checked = pool_of(a, s, gpu, None) if _checks_all_layers(s) else pool
    away = offloaded(shown, s, fmt, target, index)
    weights += away.buffers - away.moved
    lost = stranded(a, s, gpu, index, fmt)
    loading = _while_loading(a, s, index)
    if quantizes_late(a, s):
        plain = _loaded(shown, (None, s.element, None), s.parallel, index, target, drafts)
        loading += plain if s.does.keeps_both_while_quantizing else max(0.0, plain - load(target))
    kept_beyond = turboquant.reserved(a, s)
    capability = gpu.capability if gpu else None
    pinned = may_stay(activation.terms, s)
    return Stage(
        weights,
        activation,
        pool,
        checked,
        lost,
        heavier,
        replicated,
        lighter,
        away,
        loading,
        pinned,
        left_behind(activation.terms, s, capability, highest=activation.peak > activation.compiled),
        kept_beyond,
    )


def _with_indexers(a: Architecture, s: Settings) -> tuple[Attention, ...]:
    """The layers, each with an indexer where the release lets none use another's choice."""
    if a.mla is None or not a.mla.indexer_top or s.does.shares_chosen_tokens:
        return a.layers
    return tuple(replace(x, indexed=True) if x.kind == "mla" else x for x in a.layers)


def _chosen_apart(a: Architecture, s: Settings) -> float:
    """To 0.22 each layer that predicts more keeps a place of its own for the tokens that its indexer chooses
    (deepseek_mtp.py topk_indices_buffer)."""
    sparse = a.mla is not None and a.mla.indexer_top > 0 and s.speculative == "mtp"
    return (
        a.mtp_layers * step_buffers(a, s.batched, s.element)
        if sparse and not s.does.drafts_share_chosen_tokens
        else 0.0
    )


# What drafters make of their own before the model's takes its place: embedding and head (models/*_mtp.py; the drafter
# shares them after both are loaded, v1/spec_decode _maybe_share_embeddings, _maybe_share_lm_head).
_SHARED_LATER = {"mtp": 2, "eagle": 2, "dflash": 2, "eagle3": 1}


def _while_loading(a: Architecture, s: Settings, index: int) -> float:
    """Bytes of one rank that are there only until the weights are loaded."""
    if s.engine != "V1" or index != s.parallel.pp - 1:
        return 0.0
    rows = padded_vocab(a.vocab, s.parallel.tp) // s.parallel.tp
    # Where the model has several stages the drafter keeps its embedding (terms/weights.py).
    tables = _SHARED_LATER.get(s.speculative or "", 0) - (s.parallel.pp > 1)
    return float(max(0, tables) * rows * a.hidden * s.element)


def quantizes_late(a: Architecture, s: Settings) -> bool:
    """Does a plain checkpoint lie on the GPU in 16 bits as a whole before it is quantized (quantization/fp8.py: so do
    linear layers before 0.16, experts before 0.17)?"""
    asked = s.quantization == "fp8" and a.quantization is None and s.element == 2 and not s.host.weights_gib
    return asked and s.version < (STREAMED if a.moe is None else STREAMED_EXPERTS)


def _checks_all_layers(s: Settings) -> bool:
    """Does the check that one request fits count the layers of every pipeline stage against one rank's memory? So do
    0.14 to 0.16, where the groups of the whole model are checked (v1/core/kv_cache_utils.py get_kv_cache_configs);
    since 0.17 they are projected to each worker first."""
    return s.engine == "V1" and s.parallel.pp > 1 and s.does.checks_all_stages
