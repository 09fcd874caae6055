"""Which engine a launch gets from 0.8 to 0.10, where a release has both: V1, but for what V1 did not take yet
(engine/arg_utils.py _is_v1_supported_oracle, read in 0.8.0 to 0.10.2). Unasked the release falls back to V0 and says
so; with VLLM_USE_V1=1 it ends, unless the thing is only experimental."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.generations import ADA, AMPERE, BLACKWELL, HOPPER, THOR
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Engine, Version, engine
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture

_FIRST, _PAST = Version((0, 8)), Version((0, 11))


class _Asked(msgspec.Struct, frozen=True):
    """What the choice depends on."""

    version: Version
    flags: Flags
    env: Mapping[str, str]
    arch: Architecture
    gpu: Card | None
    dtype: str
    quantization: str | None
    method: str | None  # of speculative decoding
    pooling: bool


class _Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that V1 did not take before `until`, `since` a release (None: since 0.8); `experimental`: VLLM_USE_V1=1
    takes it."""

    what: str
    holds: Callable[[_Asked], bool]
    since: str | None = None
    until: str | None = None
    experimental: bool = False

    def at(self, version: Version) -> bool:
        """Does it count in this release?"""
        begun = self.since is None or version >= as_version(self.since)
        return begun and (self.until is None or version < as_version(self.until))


class EngineChoice(msgspec.Struct, frozen=True):
    """The engine that starts, what made it V0 though nothing asked for that, and what refuses the launch."""

    engine: Engine
    because: str | None = None
    refusal: Refusal | None = None


class _Span(msgspec.Struct, frozen=True):
    name: str
    since: str | None
    until: str | None


@cache
def _v0_only() -> tuple[_Span, ...]:
    """Architectures whose class says SupportsV0Only, from one release to before another (model_executor/models)."""
    told = json.loads(Path(__file__).with_name("v0_only.json").read_text(encoding="utf-8"))
    return tuple(msgspec.convert(told, list[_Span]))


def _model_is_v0_only(x: _Asked) -> bool:
    return any(
        s.name == x.arch.name
        and (s.since is None or x.version >= as_version(s.since))
        and (s.until is None or x.version < as_version(s.until))
        for s in _v0_only()
    )


def _given(*names: str) -> Callable[[_Asked], bool]:
    """Is one of these flags there, with another value than its default of nothing?"""
    return lambda x: any(x.flags.values.get(n) not in {None, False, "0", "1", "0.0", "fcfs", "auto"} for n in names)


def _capability(x: _Asked) -> float:
    return (x.gpu.capability or 0.0) if x.gpu is not None else 0.0


def _other_cache(x: _Asked) -> bool:
    """A cache of another type than the model's, but 8-bit floats where FlashAttention 3 takes them."""
    return (x.flags.text("kv-cache-dtype") or "auto") != "auto"


def _cache_without_kernel(x: _Asked) -> bool:
    """A cache that no kernel of V1 takes (platforms/cuda.py is_kv_cache_dtype_supported). A card that is not named is
    taken as one that can."""
    asked, backend = x.flags.text("kv-cache-dtype") or "auto", _backend(x)
    if asked == "auto" or (x.version >= Version((0, 10)) and BLACKWELL <= _capability(x) < THOR):
        return False
    hopper = x.gpu is None or HOPPER <= _capability(x) < BLACKWELL
    if x.version < Version((0, 10, 2)):
        return not (asked.startswith("fp8") and hopper and backend in {None, "FLASH_ATTN_VLLM_V1"})
    if not asked.startswith("fp8") or backend == "FLASHINFER":
        return False
    if x.arch.mla is not None:
        return backend not in {None, "FLASHMLA", "CUTLASS_MLA"}
    if backend == "TRITON_ATTN_VLLM_V1":
        return 0.0 < _capability(x) < ADA
    return not (hopper and backend in {None, "FLASH_ATTN_VLLM_V1"})


def _backend(x: _Asked) -> str | None:
    return x.env.get("VLLM_ATTENTION_BACKEND")


# Names of attention backends that V1 takes; 0.8.0 to 0.8.2 neither FlashInfer nor (to 0.8.1) Triton.
_BACKENDS = ("FLASH_ATTN", "FLASH_ATTN_VLLM_V1", "PALLAS", "PALLAS_VLLM_V1", "TRITON_MLA", "FLASHMLA")
_TRITON = (*_BACKENDS, "TRITON_ATTN_VLLM_V1")
_FLASHINFER = (*_TRITON, "FLASHINFER", "FLASHINFER_VLLM_V1", "ROCM_AITER_MLA", "CUTLASS_MLA_VLLM_V1", "CUTLASS_MLA")
_LATER = (
    *_FLASHINFER, "TORCH_SDPA_VLLM_V1", "FLEX_ATTENTION", "FLASHMLA_VLLM_V1", "FLASH_ATTN_MLA", "FLASHINFER_MLA",
    "TREE_ATTN", "XFORMERS_VLLM_V1",
)  # fmt: skip


def _not_among(names: tuple[str, ...]) -> Callable[[_Asked], bool]:
    return lambda x: _backend(x) is not None and _backend(x) not in names


def _guided(*names: str) -> Callable[[_Asked], bool]:
    return lambda x: (x.flags.text("guided-decoding-backend") or "auto").partition(":")[0] not in {"auto", *names}


def _stages(*executors: str) -> Callable[[_Asked], bool]:
    """Pipeline stages with another executor than these; "" stands for none asked for."""
    return lambda x: (
        x.flags.int("pipeline-parallel-size", 1, 1, 4096) > 1
        and (x.flags.text("distributed-executor-backend") or "") not in executors
    )


def _drafts(*methods: str) -> Callable[[_Asked], bool]:
    return lambda x: x.method is not None and x.method.strip("[]") not in methods


def _drafts_by(*methods: str) -> Callable[[_Asked], bool]:
    return lambda x: x.method is not None and x.method.strip("[]") in methods


# In the order of 0.8.5.
_REASONS = (
    _Reason(what="--preemption-mode", holds=_given("preemption-mode")),
    _Reason(what="--disable-async-output-proc", holds=_given("disable-async-output-proc")),
    _Reason(what="--logits-processor-pattern", holds=_given("logits-processor-pattern")),
    _Reason(what="--scheduling-policy", holds=_given("scheduling-policy"), until="0.9.2"),
    _Reason(what="--num-scheduler-steps", holds=_given("num-scheduler-steps"), until="0.10.1"),
    _Reason(what="--scheduler-delay-factor", holds=_given("scheduler-delay-factor")),
    _Reason(what="--guided-decoding-backend", holds=_guided("xgrammar"), until="0.8.2"),
    _Reason(what="--guided-decoding-backend", holds=_guided("xgrammar", "guidance"), since="0.8.2", until="0.10.1"),
    _Reason(what="compute capability below 8.0", holds=lambda x: 0.0 < _capability(x) < AMPERE, until="0.10.2"),
    _Reason(what="--kv-cache-dtype", holds=_other_cache, until="0.8.2"),
    _Reason(what="--kv-cache-dtype", holds=_cache_without_kernel, since="0.8.2"),
    _Reason(what="--enable-prompt-adapter", holds=_given("enable-prompt-adapter"), until="0.10"),
    _Reason(what="--enable-prompt-embeds", holds=_given("enable-prompt-embeds"), since="0.9"),
    _Reason(what="--cpu-offload-gb", holds=_given("cpu-offload-gb"), until="0.8.3"),
    _Reason(what="--dtype float32", holds=lambda x: x.dtype == "float32", until="0.9.2"),
    _Reason(what="bitsandbytes", holds=lambda x: x.quantization == "bitsandbytes", until="0.8.3"),
    _Reason(what="GGUF", holds=lambda x: x.quantization == "gguf", until="0.9"),
    _Reason(what="a model that pools", holds=lambda x: x.pooling, until="0.9.2"),
    _Reason(what="the model", holds=_model_is_v0_only),
    _Reason(
        what="a device of another platform than CUDA",
        holds=lambda x: x.gpu is not None and x.gpu.backend != "CUDA",
        until="0.9.2",
        experimental=True,
    ),
    _Reason(what="recurrent states", holds=lambda x: x.arch.hybrid, since="0.9.2", until="0.10.2", experimental=True),
    _Reason(
        what="concurrent partial prefills",
        holds=_given("max-num-partial-prefills", "max-long-partial-prefills"),
    ),
    _Reason(
        what="--otlp-traces-endpoint",
        holds=_given("otlp-traces-endpoint", "collect-detailed-traces"),
        until="0.10.2",
    ),
    _Reason(what="speculative decoding", holds=_drafts("ngram"), until="0.8.3"),
    _Reason(what="speculative decoding", holds=_drafts("ngram", "eagle"), since="0.8.3", until="0.8.5"),
    _Reason(what="speculative decoding", holds=_drafts("ngram", "eagle", "eagle3"), since="0.8.5", until="0.9"),
    _Reason(
        what="speculative decoding",
        holds=_drafts("ngram", "medusa", "eagle", "eagle3", "mtp"),
        since="0.9",
        until="0.10",
    ),
    _Reason(what="--kv-transfer-config", holds=_given("kv-transfer-config"), until="0.8.5"),
    _Reason(what="VLLM_ATTENTION_BACKEND", holds=_not_among(_BACKENDS), until="0.8.2"),
    _Reason(what="VLLM_ATTENTION_BACKEND", holds=_not_among(_TRITON), since="0.8.2", until="0.8.5"),
    _Reason(what="VLLM_ATTENTION_BACKEND", holds=_not_among(_FLASHINFER), since="0.8.5", until="0.9.1"),
    _Reason(what="VLLM_ATTENTION_BACKEND", holds=_not_among(_LATER), since="0.9.1"),
    _Reason(what="pipeline stages without Ray", holds=_stages("ray"), since="0.8.3", until="0.9"),
    _Reason(
        what="pipeline stages without --distributed-executor-backend",
        holds=_stages("ray", "mp", "external_launcher"),
        since="0.9",
        until="0.9.1",
    ),
    _Reason(what="--enable-lora", holds=_given("enable-lora"), until="0.8.3", experimental=True),
    _Reason(what="pipeline stages", holds=_stages(), until="0.8.3", experimental=True),
    _Reason(what="n-gram drafts", holds=_drafts_by("ngram"), until="0.9", experimental=True),
    _Reason(what="EAGLE drafts", holds=_drafts_by("eagle", "eagle3"), since="0.8.3", until="0.9", experimental=True),
)


def which_engine(  # noqa: PLR0917
    version: Version,
    flags: Flags,
    env: Mapping[str, str],
    arch: Architecture,
    gpu: Card | None,
    dtype: str,
    quantization: str | None,
    method: str | None,
    *,
    pooling: bool,
) -> EngineChoice:
    """The engine of a launch."""
    told = env.get("VLLM_USE_V1")
    asked = None if told is None else told == "1"
    plain = engine(version, asked)
    if plain == "V0" or not _FIRST <= version < _PAST:
        return EngineChoice(plain)
    x = _Asked(version, flags, env, arch, gpu, dtype, quantization, method, pooling)
    found = [r for r in _REASONS if r.at(version) and r.holds(x)]
    if asked:
        ends = next((r for r in found if not r.experimental), None)
        if ends is None:
            return EngineChoice("V1")
        return EngineChoice("V1", refusal=Refusal("VLLM_USE_V1", "1", f"0, or unset: V1 does not take {ends.what}"))
    return EngineChoice("V0", found[0].what) if found else EngineChoice("V1")
