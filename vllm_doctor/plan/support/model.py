"""Does the release know the model, and does the plan?"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.history import ReleaseHistory, history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.cache_types import TURBOQUANT, UNKNOWN
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import ENCODER_ONLY, WEIGHED, generating

# Drafters whose memory follows from the model, or that have none.
_DRAFTS_KNOWN = frozenset({"mtp", "eagle", "eagle3", "ngram", "ngram_gpu", "[ngram]", "suffix"})

# The classes of drafters whose code the plan follows (models/qwen3_dflash.py, qwen3_dflash2.py, qwen3_dspark.py).
_FOLLOWED = frozenset({"DFlashDraftModel", "DFlash2DraftModel", "Qwen3DSparkModel", "Qwen3OmniDSparkModel"})

# Encoder-decoders that the registry of vLLM sends to a plugin (models/registry.py _OOT_SUPPORTED_MODELS).
_BY_PLUGIN = frozenset(
    {
        "BartModel",
        "BartForConditionalGeneration",
        "Florence2ForConditionalGeneration",
        "MBartForConditionalGeneration",
    }
)


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A cache of another plain type than the model's, where the release refuses that; an architecture that only later
    releases have, where nothing stands in for one."""
    if _refused(a, s):
        when = _when(history("models", "architectures"), a.name, s.version)
        yield Refusal("architectures", a.name, f"one of {s.version}{when} (a plugin may bring it)")
    if a.name == "KimiLinearForCausalLM" and s.does.kimi_linear_misses_a_part:
        yield Refusal("architectures", a.name, f"vLLM 0.11.2 or 0.13.0: MLAModules raises a TypeError in {s.version}")
    stored = a.quantization.text("quant_method") if a.quantization is not None else ""
    if s.speculative == "eagle3" and stored == "mxfp4" and s.does.drafter_in_mxfp4:
        needed = f"vLLM 0.11.1 or later: {s.version} makes the drafter's layers in MXFP4, which has none of that kind"
        yield Refusal("--speculative-config", "a drafter of EAGLE 3 for a model in MXFP4", needed)
    if s.does.rejects_other_float_cache and s.kv_dtype in {"float16", "bfloat16"} and s.kv_dtype != s.dtype:
        yield Refusal("--kv-cache-dtype", s.kv_dtype, f"auto or {s.dtype}, the type that the model runs in")
    yield from _of_kinds(a, s)
    yield from _by_text_alone(a, s)


# Classes that had text alone before they had a tower (models/chatglm.py and qwen.py, read in 0.5.0 to 0.6.4).
_TOWER_SINCE = {"ChatGLMModel": "0.6.3", "ChatGLMForConditionalGeneration": "0.6.3", "QWenLMHeadModel": "0.6.1"}


def _by_text_alone(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """A checkpoint with a tower for a class that has none: its weights have no place."""
    since = _TOWER_SINCE.get(a.name)
    if since is not None and a.vision is not None and s.version < as_version(since):
        yield Refusal("architectures", f"{a.name} with a vision tower", f"vLLM {since}, the first that gives it one")


def windowed(a: Architecture) -> bool:
    """Has it layers with a window beside layers of full attention?"""
    kinds = {layer.kind for layer in a.layers}
    return "full" in kinds and not kinds.isdisjoint({"sliding", "chunked"})


def _of_kinds(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """What does not go with several kinds of layers, with one kind of cache beside another, or without one."""
    if a.model_type in ENCODER_ONLY and s.engine == "V1" and s.prefix_caching and s.does.keeps_prefixes_of_nothing:
        needed = f"no --enable-prefix-caching: {a.name} has no KV cache, and {s.version} asserts one; or vLLM 0.24"
        yield Refusal("--enable-prefix-caching", "set", needed)
    flag, split = "--decode-context-parallel-size", s.context_parallel // s.prefill_parallel
    told = any(r.flag == flag for r in s.refusals)
    windows = s.hybrid_manager and s.does.groups_kinds and windowed(a)
    alone = (s.does.shares_context_of_one_kind and a.hybrid) or (s.does.windows_share_no_context and windows)
    if s.engine == "V1" and split > 1 and s.prefix_caching and alone and not told:
        needed = "1, or --no-enable-prefix-caching: with it ranks share the context of one kind of layers"
        yield Refusal(flag, str(split), needed)
    if not s.kv_dtype.startswith("turboquant_"):
        return
    if s.does.refuses_turboquant_of_recurrent and a.hybrid:
        needed = f"auto or fp8: {s.version} has it for no model with recurrent layers"
        yield Refusal("--kv-cache-dtype", s.kv_dtype, needed)
    elif s.does.v1_misses_turboquant and not s.v2_runner and all(r.flag != "--kv-cache-dtype" for r in s.refusals):
        needed = f"auto or fp8: the first model runner of {s.version} makes no cache of this type"
        yield Refusal("--kv-cache-dtype", s.kv_dtype, needed)


def _when(table: ReleaseHistory, name: str, version: Version) -> str:
    """Which releases have it, and what another one does with it (models/registry.py inspect_model_cls)."""
    through = "where Transformers has, it may run through that, with other memory"
    if name not in table:
        return f"; {through}"
    first, last = table.span(name)
    if version < as_version(first):
        return f", which {first} is the first to have"
    return f", whose last release that has is {last}; {through}"


def _lacks(a: Architecture, s: Settings) -> bool:
    """Has the release no class of this name, nor one that it would make of another?"""
    table = history("models", "architectures")
    adapted = s.pooling and s.does.adapts_to_pooling and table.exists(generating(a.name), s.version)
    return bool(a.name) and table.exists(a.name, s.version) is False and not adapted


def _refused(a: Architecture, s: Settings) -> bool:
    """Does the release end for want of a class: another release has one, and nothing stands in for it here?"""
    known = a.name in history("models", "architectures")
    return known and _lacks(a, s) and not s.does.falls_back_to_transformers


def doubts(a: Architecture, s: Settings) -> Iterator[str]:
    """What is known of neither the release nor this plan, each in a sentence."""
    table = history("models", "architectures")
    if _refused(a, s):
        pass  # said already
    elif _lacks(a, s) and a.name in _BY_PLUGIN and s.does.names_bart_plugin:
        yield (
            f"vLLM {s.version} leaves {a.name} to a plugin (https://github.com/vllm-project/bart-plugin): the launch "
            f"does not show whether it is installed, and no start of it was compared with a plan"
        )
    elif _lacks(a, s):
        yield f"vLLM {s.version} has no model code for {a.name}{_when(table, a.name, s.version)}"
    elif a.encoder_decoder and a.model_type != "whisper":
        yield f"{a.name or a.model_type} has an encoder and a decoder: no start of one was compared with a plan"
    elif a.model_type in WEIGHED:
        yield f"the plan has the weights and the KV cache of {a.name}, without the memory of images in the profile run"
    elif not a.known:
        yield f"no start of model_type {a.model_type or '(none)'} was compared with a plan"
    if s.gguf is not None and s.does.gguf_by_plugin:
        yield (
            f"vLLM {s.version} reads GGUF through a plugin (pip install vllm-gguf-plugin): the start ends if the "
            f"plugin is missing"
        )
    if s.draft is not None:
        if not s.draft.known:
            yield f"no start of the drafter's model_type {s.draft.model_type or '(none)'} was compared with a plan"
        elif s.speculative in {"dflash", "dspark"} and s.draft.name not in _FOLLOWED and not s.draft.drafts_as:
            yield f"no start with a drafter of class {s.draft.name or '(none)'} was compared with a plan"
    elif s.speculative is not None and s.speculative not in _DRAFTS_KNOWN:
        beside = s.speculative in {"draft_model", "dflash", "dspark", "medusa", "mlp_speculator"}
        way = ": --draft-config FILE, its config.json, puts them there" if beside else ""
        yield (
            f"--speculative-config: a drafter of method {s.speculative} is a separate model; its weights and its KV "
            f"cache are not known here, and not in the figures{way}"
        )
    if s.speculative is not None and s.parallel.pp > 1 and not s.does.drafts_in_one_stage:
        yield (
            f"vLLM {s.version} does not refuse drafts over pipeline stages, as 0.6.5 and later V0 engines do, and no "
            f"start of it was compared with a plan"
        )
    yield from _of_layout(a, s)


def _of_layout(a: Architecture, s: Settings) -> Iterator[str]:
    """What is not known of the cache's."""
    if s.kv_dtype in TURBOQUANT and any(layer.window for layer in a.layers):
        yield f"--kv-cache-dtype {s.kv_dtype}: how it lays out layers with a window is not known here"
    if s.kv_dtype in UNKNOWN:
        yield f"--kv-cache-dtype {s.kv_dtype}: how it lays out keys and values is not known here"
