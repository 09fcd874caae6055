"""What a release asks of the card: compiled code, the quantization's compute capability and types, the backend's."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge import builds
from vllm_doctor.knowledge.generations import ADA, AMPERE, BLACKWELL, HOPPER, RTX_BLACKWELL, THOR, TURING, VOLTA
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.online import MICROSCALED, SHORTHANDS
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import AWQ_METHODS, GPTQ_METHODS
from vllm_doctor.plan.support import backends

# The methods among which vLLM chooses for what a checkpoint calls itself, best first
# (config/model.py _verify_quantization and the methods' override_quantization_method).
_METHODS: dict[str, tuple[str, ...]] = {
    "awq": AWQ_METHODS,
    "gptq": GPTQ_METHODS,
    "auto-round": ("inc", "auto-round", "gptq_marlin", "gptq"),
    "mxfp4": ("gpt_oss_mxfp4", "mxfp4"),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"),
}
_ALGORITHMS = {"FP4": "modelopt_fp4", "MXFP8": "modelopt_mxfp8", "MIXED": "modelopt_mixed", "FP8": "modelopt"}


# Names that stand for themselves where they are asked for: no other method of the kind is taken instead
# (gptq_marlin.py and awq_marlin.py override_quantization_method, "so forcing").
_FORCED = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin"})

# Of the oldest card that any release was built for (setup.py and CMakeLists.txt, CUDA_SUPPORTED_ARCHS).
_LEAST = VOLTA


def doubts(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[str]:
    """A device that runs another build of vLLM, or whose own code no build that was read has: machine code of a desktop
    card does not run on a Jetson of the same major number (CUDA C++ Programming Guide, binary compatibility)."""
    if gpu is not None and gpu.backend != "CUDA" and gpu.compared:
        unlike = "latent attention" if a.mla or a.compressed else "an encoder-decoder" if a.encoder_decoder else ""
        packed = next(iter(methods(a, s)), unlike)
        if packed or s.gguf is not None:
            yield (
                f"{gpu.name} runs vLLM's {gpu.backend}, of which starts in 16 bits were compared with a plan, and none "
                f"with {packed or 'GGUF'}"
            )
        if s.engine == "V0":
            yield f"{gpu.name} runs vLLM's {gpu.backend}, of which starts of V1 were compared with a plan, none of V0"
    if gpu is not None and gpu.backend != "CUDA" and not gpu.compared:
        yield (
            f"{gpu.name} runs vLLM's {gpu.backend}: the figures of CUDA starts do not apply there; only weights "
            f"and KV cache are planned"
        )
    if gpu is not None and gpu.template == "tegra" and gpu.capability is not None:
        own = history("build", "build").exists(str(gpu.capability), s.version)
        if not own:
            yield (
                f"{gpu.name}: the wheel of {s.version} for x86-64, which was read, has no machine code for "
                f"{gpu.capability}, and that of desktop cards does not run there; NVIDIA builds vLLM for Jetson"
            )


def unheard(a: Architecture, s: Settings) -> Iterator[str]:
    """A quantization that no release calls by this name (config/model.py _verify_quantization: "Unknown quantization
    method")."""
    table, asked = history("models", "quantizations"), methods(a, s)
    if asked and s.gguf is None and not any(method in table for method in asked):
        yield (
            f"quantization {asked[-1]}: none of the releases that were read has a method of this name; the start ends "
            f"unless a plugin brings it"
        )


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """What this release would refuse on this card; nothing where the card is not known."""
    if gpu is None or gpu.capability is None:
        return
    yield from _build(s, gpu, gpu.capability)
    yield from _quantized(a, s, gpu, gpu.capability)
    yield from _schemes(a, s, gpu, gpu.capability)
    told = list(_backend(a, s, gpu, gpu.capability)) or list(_by_flash_attention(a, s, gpu.capability))
    yield from told or list(backends.refusals(a, s, gpu)) or backends.constructed(a, s)
    yield from _capped(a, s, gpu, gpu.capability)
    yield from _first_v1(s, gpu, gpu.capability)
    yield from _latents(a, s, gpu, gpu.capability)


def _build(s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    if capability < _LEAST:
        yield Refusal(
            "--gpu", f"{gpu.name}, compute capability {capability}", f"{_LEAST} or higher, which every release asks for"
        )
        return
    least = builds.oldest(s.version)
    # A card that is newer than the wheel's code is run by builds from source: see torch_build.py.
    if least is None or capability > float(least) or builds.has_code(capability, s.version) is not False:
        return
    other = builds.nearest_with(capability, s.version)
    instead = f"; {other} has code for it" if other is not None else ""
    yield Refusal(
        "--gpu",
        f"{gpu.name}, compute capability {capability}",
        f"{least} or higher, for which the wheel of {s.version} has code{instead}",
    )


def methods(a: Architecture, s: Settings) -> tuple[str, ...]:
    """What vLLM may call the quantization of this launch; empty for none."""
    config = a.quantization
    if config is None:
        return (s.quantization,) if s.quantization is not None else ()
    named = config.text("quant_method").lower().replace("intel/", "").replace("autoround", "auto-round")
    named = named.replace("_", "-") if named in {"auto_round", "compressed_tensors"} else named
    if named.startswith("modelopt") or (not named and config.has("quant_algo")):
        algorithm = config.text("quant_algo").upper()
        return next(((m,) for word, m in _ALGORITHMS.items() if word in algorithm), _METHODS["modelopt"])
    return _METHODS.get(named, (named,)) if named else ()


def _quantized(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    table = history("models", "quantizations")
    asked = (s.quantization,) if s.quantization in _FORCED else methods(a, s)
    known = [m for m in asked if m in table]
    if not known or any(table.exists(m, s.version) is None for m in known):
        return
    here = [m for m in known if table.exists(m, s.version)]
    if not here:
        yield Refusal(
            "--quantization",
            asked[-1],
            f"a method of {s.version}, which has no such method; {table.span(known[-1])[1]} is the last that had it "
            f"(a plugin may bring it)",
        )
        return
    plain = a.quantization is None and table.exists("fp8_per_channel", s.version) is True
    loading = {*SHORTHANDS, *(MICROSCALED if plain else ())}
    asks = {m: table.value("online" if m in loading else m, s.version) for m in here}
    own = SHORTHANDS if a.moe is not None or "nvfp4_per_token" not in here else {}  # of its experts alone
    needs = {m: max(float(str(asks[m].get("capability", "0"))), own.get(m, 0.0)) for m in here}
    able = [m for m in here if needs[m] <= capability]
    if not able:
        least = min(needs.values())
        yield Refusal(
            "--quantization" if a.quantization is None else "quantization_config",
            f"{asked[-1]} on {gpu.name}, compute capability {capability}",
            f"compute capability {least}, which {s.version} asks for with {asked[-1]}",
        )
        return
    types = [asks[m].get("dtypes") for m in able]
    if all(isinstance(t, list) and s.dtype not in t for t in types):
        listed = sorted({str(x) for t in types if isinstance(t, list) for x in t})
        yield Refusal("--dtype", s.dtype, f"{' or '.join(listed)}, which {s.version} takes with {asked[-1]}")


def _schemes(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """compressed-tensors asks the card once more for each linear layer, by what weights and inputs are (quantization/
    compressed_tensors/schemes, get_min_capability). Experts have kernels of their own, which ask otherwise."""
    if methods(a, s) != ("compressed-tensors",) or a.moe is not None or not s.does.asks_card_of_schemes:
        return
    if capability < _LEAST:
        return  # refused already
    groups = a.quantization.section("config_groups") if a.quantization is not None else None
    for key in groups.values if groups is not None else ():
        group = groups.section(key) if groups is not None else None
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None or "Linear" not in (group.texts("targets") or ["Linear"]):
            continue
        plain = weights.text("type") == "int" and group.section("input_activations") is None
        above = s.does.packed_from_ampere if plain else s.does.floats_from_ampere and weights.text("type") == "float"
        least = AMPERE if above else TURING
        if capability < least:
            what = f"{weights.values.get('num_bits')}-bit {'integers' if weights.text('type') == 'int' else 'floats'}"
            yield Refusal(
                "quantization_config",
                f"compressed-tensors, {what} on {gpu.name}, compute capability {capability}",
                f"compute capability {least}, which {s.version} asks for with them",
            )
            return


def floats(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """8-bit floats that only Triton computes, on a card that has none: the profile ends as the kernel is compiled."""
    capability = gpu.capability if gpu is not None else None
    if gpu is None or capability is None or not s.does.floats_by_triton or not AMPERE <= capability < ADA:
        return
    found = _in_floats(a, methods(a, s))
    if found:
        yield Refusal(
            "--quantization" if a.quantization is None else "quantization_config",
            f"{found} on {gpu.name}, compute capability {capability}",
            f"compute capability {ADA}, or vLLM 0.9.0: Triton's kernel, their only one in {s.version}, has no such "
            f"floats on this card",
        )


def _in_floats(a: Architecture, called: tuple[str, ...]) -> str:
    """Which of a model's matrices are 8-bit floats that Marlin's kernel of plain layers does not take; "" for none."""
    config = a.quantization
    if called == ("fp8",):
        blocks = config is not None and config.values.get("weight_block_size") is not None
        return "fp8 in blocks" if blocks else "experts in fp8" if a.moe is not None else ""
    if called != ("compressed-tensors",) or a.moe is None or config is None:
        return ""
    groups = config.section("config_groups")
    for key in groups.values if groups is not None else ():
        group = groups.section(key) if groups is not None else None
        weights = group.section("weights") if group is not None else None
        if weights is not None and weights.text("type") == "float" and weights.values.get("num_bits") == 8:
            return "experts in fp8"
    return ""


# Backends that a model without latents may be asked to run on and that take no sinks (v1/attention/backend.py
# supports_sink, which they leave as it is: read in 0.11.1, 0.19.1, 0.28.0 and 0.33.0).
_WITHOUT_SINKS = frozenset({"FLEX_ATTENTION", "XFORMERS", "TREE_ATTN", "TORCH_SDPA"})


def _asked(a: Architecture, s: Settings, capability: float) -> Iterator[Refusal]:
    """A backend that is asked for and does not take the model, the cache or the block."""
    name = (s.backend or "").upper()
    if not history("kernels", "attention").exists(name, s.version):
        return  # a plugin's, or one that the next question refuses
    latent, sparse = a.mla is not None, a.mla is not None and a.mla.indexer_top > 0
    if latent != ("MLA" in name):
        yield Refusal("--attention-backend", name, "one of latent attention (MLA)" if latent else "one not of MLA")
    elif latent and sparse != ("SPARSE" in name):
        yield Refusal("--attention-backend", name, "a sparse one" if sparse else "one that is not sparse")
    newer = HOPPER <= capability < RTX_BLACKWELL  # FlashAttention 3 or 4
    if name == "FLASH_ATTN" and s.kv_dtype.startswith("fp8") and not newer:
        yield Refusal("--kv-cache-dtype", s.kv_dtype, "auto, or another backend: FlashAttention 2 has no fp8")
    sinks = {"FLASH_ATTN": newer, "FLASHINFER": _flashinfer_sinks(s, capability)}
    if a.model_type == "gpt_oss" and not sinks.get(name, name not in _WITHOUT_SINKS):
        yield Refusal("--attention-backend", name, "another backend: it takes no attention sinks on this card")
    if name == "FLASHINFER" and not _head_sizes(a) <= _flashinfer_heads(s):
        yield Refusal("--attention-backend", name, "another backend: it has no kernel for heads of this size")
    if name == "FLASHINFER" and s.does.flashinfer_from_ampere and capability < _FLASHINFER_FROM:
        yield Refusal("--attention-backend", name, f"another backend: it asks for {_FLASHINFER_FROM}")
    if name == "FLEX_ATTENTION" and a.model_type == "gemma2":
        yield Refusal("--attention-backend", name, "another backend: it does not cap logits, as Gemma 2 does")
    if name.startswith("TRITON") and _without_fp8(s, capability):
        yield Refusal("--kv-cache-dtype", s.kv_dtype, f"auto, or another backend: Triton asks for {ADA}")
    if name == "FLASH_ATTN" and s.block and s.block % 16:
        yield Refusal("--block-size", str(s.block), "a multiple of 16, which FlashAttention asks for")


def indexer(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """An indexer's cache in four bits on another card than one of 10.x."""
    sparse = a.model_type in _INDEXED or (a.mla is not None and a.mla.indexer_top > 0)
    capability = gpu.capability if gpu is not None and gpu.backend == "CUDA" else None
    if not (s.indexer_in_four_bits and sparse and s.does.indexer_in_four_bits_on_ten) or capability is None:
        return
    if int(capability) != int(BLACKWELL):
        found = f"the indexer's cache in four bits, on compute capability {capability}"
        yield Refusal("--attention-config", found, "indexer_kv_dtype fp8, the default: four bits need 10.x")


# Models with an indexer that are described beside latent attention (models/deepseek_v4).
_INDEXED = frozenset({"deepseek_v4", "deepseek_v41"})


def _met(asks: str, capability: float) -> bool:
    """Is a backend's `>=8.0`, or `9,10` of whole generations, met?"""
    least = asks.removeprefix(">=")
    return capability >= float(least) if least != asks else str(int(capability)) in asks.split(",")


def _latents(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """The prompt of the V0 engine's profile runs through FlashAttention where latents are cached, on any card
    (attention/backends/mla, read in 0.7.2 to 0.9.2). The V1 engine has no kernel of theirs at first (platforms/cuda.py,
    read in 0.7.2)."""
    if s.engine == "V0" and a.mla is not None and s.latents and capability < AMPERE:
        yield Refusal(
            "--gpu",
            f"{gpu.name}, compute capability {capability}",
            f"compute capability {AMPERE}, which FlashAttention asks for; or VLLM_MLA_DISABLE=1",
        )
    elif s.engine == "V1" and a.mla is not None and s.latents and s.version < _FIRST_ALIKE:
        needed = f"0, or VLLM_MLA_DISABLE=1: the V1 engine of {s.version} has no kernel of latent attention (MLA)"
        yield Refusal("VLLM_USE_V1", "1", needed)


def _sparse(s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """Sparse latent attention has kernels for some generations alone, and the release looks for no other backend."""
    table = history("kernels", "attention")
    # Of one model's own layouts (DSV4) and of other makers' devices the release does not choose here.
    names = [n for n in table.names() if n.endswith(_SPARSE) and not n.startswith(("ROCM", "XPU"))]
    asked = [table.value(n, s.version).get("capability") for n in names if table.exists(n, s.version)]
    known = [asks for asks in asked if isinstance(asks, str)]
    if known and not any(_met(asks, capability) for asks in known):
        generations = sorted({int(n) for asks in known for n in asks.split(",")})
        yield Refusal(
            "--gpu",
            f"{gpu.name}, compute capability {capability}",
            f"compute capability {' or '.join(map(str, generations))}, for which alone {s.version} has kernels of "
            f"sparse latent attention",
        )


# Triton's kernels read an 8-bit float cache with the card's own instructions; FlashInfer's do without, from 8.0 on, for
# these sizes of a head and where no sink stands beside the keys (v1/attention/backends/flashinfer.py).
_FLASHINFER_FROM = AMPERE


def _flashinfer_heads(s: Settings) -> frozenset[int]:
    return frozenset({64, 128, 256, *([512] if s.does.flashinfer_wide_heads else [])})


def _flashinfer_sinks(s: Settings, capability: float) -> bool:
    """Does FlashInfer take sinks beside the keys on this card?"""
    if s.does.flashinfer_sinks_on_ten:
        return BLACKWELL <= capability < THOR
    return capability >= (BLACKWELL if s.does.flashinfer_sinks_on_blackwell else HOPPER)


def _without_fp8(s: Settings, capability: float) -> bool:
    """Has Triton no 8-bit floats of the asked kind on this card? Before it was refused, only those with four bits of
    exponent end the start (fp8e4nv), when the kernel that writes the cache is compiled."""
    if capability >= ADA or s.engine != "V1":
        return False
    late = s.does.triton_reads_fp8_cache and s.kv_dtype in {"fp8", "fp8_e4m3"}
    return late or (s.does.asks_native_fp8_cache and s.kv_dtype.startswith("fp8"))


def _by_flash_attention(a: Architecture, s: Settings, capability: float) -> Iterator[Refusal]:
    """What FlashAttention does not take, in releases that choose it without asking."""
    chosen = s.engine == "V1" and s.backend in {None, "FLASH_ATTN"} and AMPERE <= capability < BLACKWELL
    if not chosen or a.mla is not None or a.encoder_decoder or s.pooling:
        return
    other = sorted(size for size in _head_sizes(a) if size % 32 or size > _LARGEST_HEAD)
    if s.does.v1_by_flash_attention_alone and other:
        needed = f"0, or vLLM 0.10.0: FlashAttention, which V1 of {s.version} takes, has no heads of {other[0]}"
        yield Refusal("VLLM_USE_V1", "1, or not set", needed)
    elif s.does.v1_blocks_of_16 and s.block and s.block % 16 and not a.hybrid:
        yield Refusal("--block-size", str(s.block), "a multiple of 16, which FlashAttention asks for")


_LARGEST_HEAD = 256  # FlashAttentionBackend.get_supported_head_sizes: 32 to 256, by 32


def _head_sizes(a: Architecture) -> set[int]:
    return {layer.head_dim for layer in a.layers if layer.kind in {"full", "sliding"}}


def _cache(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """An 8-bit float cache on a card without such arithmetic, where FlashInfer does not take the model."""
    floor = _FLASHINFER_FROM if s.does.flashinfer_from_ampere else TURING
    taken = s.does.fp8_cache_by_flashinfer and capability >= floor and a.mla is None
    if not (taken and _head_sizes(a) <= _flashinfer_heads(s)) or a.model_type == "gpt_oss":
        yield Refusal(
            "--kv-cache-dtype",
            f"{s.kv_dtype} on {gpu.name}, compute capability {capability}",
            f"auto, or compute capability {ADA}: no other kernel of {s.version} reads it with this model",
        )


def _four_bits(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """A cache of nvfp4 is FlashInfer's alone."""
    generations = [10] if s.does.nvfp4_cache_on_ten else [8, 9, 10, 12] if s.does.nvfp4_cache_by_fa2 else []
    sizes, ten = _head_sizes(a), int(capability) == 10
    taken = sizes <= _flashinfer_heads(s) and (ten or (64 not in sizes and a.model_type != "gpt_oss"))
    if generations and not (int(capability) in generations and taken and (ten or s.kv_dtype == "nvfp4")):
        yield Refusal(
            "--kv-cache-dtype",
            f"{s.kv_dtype} on {gpu.name}, compute capability {capability}",
            f"auto or fp8: no kernel of {s.version} reads it there with this model",
        )


def _by_triton_alone(s: Settings, capability: float) -> bool:
    """Is an 8-bit cache of latents left to Triton's kernel, which has none? The other kernels are of 9.0 and 10.x."""
    return s.does.plain_latents_by_triton and s.kv_dtype.startswith("fp8") and int(capability) not in {9, 10}


# Backends of other devices and of towers alone, which a first engine on CUDA refuses by name (platforms/cuda.py
# get_attn_backend_cls, read in 0.8.5 and 0.9.2; attention/selector.py asserts the device before).
_ELSEWHERE = frozenset({"TORCH_SDPA", "ROCM_FLASH", "OPENVINO", "PALLAS", "IPEX", "HPU_ATTN"})

# The names of backends of sparse latent attention that a release chooses by itself.
_SPARSE = ("MLA_SPARSE", "MLA_SPARSE_SM120", "MLA_SPARSE_SM90")


def _backend(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    if a.mla is not None and s.latents and s.does.latents_in_16_bits and s.kv_dtype.startswith("fp8"):
        needed = f"auto, or vLLM 0.10.2: no kernel of latent attention (MLA) in {s.version} takes a cache in 8 bits"
        yield Refusal("--kv-cache-dtype", s.kv_dtype, needed)
        return
    if s.backend is None:
        if s.engine == "V1" and a.mla is not None and a.mla.indexer_top:
            yield from _sparse(s, gpu, capability)
        elif s.engine == "V1" and a.mla is not None and _by_triton_alone(s, capability):
            yield Refusal(
                "--kv-cache-dtype",
                f"{s.kv_dtype} on {gpu.name}, compute capability {capability}",
                f"a cache in the type of the model, or vLLM 0.18.0: Triton's kernel, the only one of latent attention "
                f"(MLA) there, has no 8-bit cache in {s.version}",
            )
        elif _without_fp8(s, capability) and (a.mla is None or s.does.asks_native_fp8_latents):
            yield from _cache(a, s, gpu, capability)
        elif s.engine == "V1" and s.does.cache_of_its_own_type and s.kv_dtype == "bfloat16":
            yield Refusal("--kv-cache-dtype", s.kv_dtype, f"auto: no kernel of {s.version} takes this name")
        elif s.engine == "V1" and s.kv_dtype.startswith("nvfp4") and a.mla is None:
            yield from _four_bits(a, s, gpu, capability)
        return
    if s.does.checks_asked_backend and s.engine == "V1":
        yield from _asked(a, s, capability)
    name, table = s.backend.upper(), history("kernels", "attention")
    if s.engine == "V0" and name in _ELSEWHERE:
        yield Refusal("VLLM_ATTENTION_BACKEND", name, "FLASH_ATTN, XFORMERS or FLASHINFER: CUDA has no such backend")
        return
    latents = a.mla is not None and s.latents  # whose kernel the release chooses before it asks
    if s.engine == "V0" and name == "FLASHINFER" and capability < AMPERE and not latents and not a.caps_attention:
        # The profile has no cache yet, and computes its prompts with FlashAttention (attention/backends/flashinfer.py
        # forward, `if kv_cache.numel() == 0`; read in 0.4.3, 0.6.0, 0.7.2, 0.9.2 and 0.10.1).
        yield Refusal(
            "VLLM_ATTENTION_BACKEND",
            f"{name} on {gpu.name}, compute capability {capability}",
            f"XFORMERS, or none: its profile runs on FlashAttention, which asks for {AMPERE}",
        )
        return
    asks = table.value(name, s.version).get("capability") if table.exists(name, s.version) else None
    if not isinstance(asks, str):
        return
    if not _met(asks, capability):
        yield Refusal(
            "--attention-backend",
            f"{name} on {gpu.name}, compute capability {capability}",
            f"compute capability {asks.replace(',', ' or ')}, or another backend",
        )


def _capped(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """A model that caps its attention logits, on a kernel that does not."""
    if not a.caps_attention or s.engine != "V0":
        return
    here = f"{a.name or a.model_type} on {gpu.name}, compute capability {capability}"
    if s.does.caps_by_flashinfer and (s.backend != "FLASHINFER" or capability < AMPERE):
        with_it = "VLLM_ATTENTION_BACKEND=FLASHINFER" if capability >= AMPERE else f"compute capability {AMPERE}"
        yield Refusal(
            "VLLM_ATTENTION_BACKEND", here, f"{with_it}: only FlashInfer caps attention logits in {s.version}"
        )
    elif s.does.xformers_refuses_caps and s.backend is None and capability < AMPERE:  # asked for: backends.constructed
        yield Refusal(
            "--gpu",
            here,
            f"compute capability {AMPERE}, or vLLM 0.6.5: xFormers of {s.version} does not cap attention logits",
        )


def _first_v1(s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    """Before 0.8 the V1 engine has FlashAttention alone (v1/attention/backends, read in 0.7.3)."""
    if s.engine == "V1" and s.version < _FIRST_ALIKE and capability < AMPERE:
        yield Refusal(
            "VLLM_USE_V1",
            f"1 on {gpu.name}, compute capability {capability}",
            f"0, or unset: V1 of {s.version} has FlashAttention alone, which asks for {AMPERE}",
        )


_FIRST_ALIKE = Version((0, 8))
