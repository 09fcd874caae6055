"""What a release asks of the card: compiled code, the quantisation's compute capability and types, the backend's."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge import builds
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture

# The methods among which vLLM chooses for what a checkpoint calls itself, best first
# (config/model.py _verify_quantization and the methods' override_quantization_method).
_METHODS: dict[str, tuple[str, ...]] = {
    "awq": ("auto_awq", "awq_marlin", "awq"),
    "gptq": ("auto_gptq", "gptq_marlin", "gptq"),
    "auto-round": ("inc", "auto-round", "gptq_marlin", "gptq"),
    "mxfp4": ("gpt_oss_mxfp4", "mxfp4"),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"),
}
_ALGORITHMS = {"FP4": "modelopt_fp4", "MXFP8": "modelopt_mxfp8", "MIXED": "modelopt_mixed", "FP8": "modelopt"}


# The least compute capability that any release was built for (setup.py and CMakeLists.txt, CUDA_SUPPORTED_ARCHS).
_LEAST = 7.0


def doubts(gpu: Card | None) -> Iterator[str]:
    """A device that runs another build of vLLM."""
    if gpu is not None and gpu.backend != "CUDA":
        yield (
            f"{gpu.name} runs vLLM's {gpu.backend}: what CUDA starts take beside weights and KV cache does not hold "
            f"there; only these two are planned"
        )


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """What this release would refuse on this card; nothing where the card is not known."""
    if gpu is None or gpu.capability is None:
        return
    yield from _build(s, gpu, gpu.capability)
    yield from _quantised(a, s, gpu, gpu.capability)
    yield from _backend(a, s, gpu, gpu.capability)


def _build(s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    if capability < _LEAST:
        yield Refusal(
            "--gpu", f"{gpu.name}, compute capability {capability}", f"{_LEAST} or higher, which every release asks for"
        )
        return
    if builds.has_code(capability, s.version) is not False:
        return
    last = builds.last_with(capability)
    instead = f"; {last} has code for it" if last is not None else ""
    yield Refusal(
        "--gpu",
        f"{gpu.name}, compute capability {capability}",
        f"{builds.oldest(s.version)} or higher, for which the wheel of {s.version} has code{instead}",
    )


def methods(a: Architecture, s: Settings) -> tuple[str, ...]:
    """What vLLM may call the quantisation of this launch; empty for none."""
    config = a.quantization
    if config is None:
        return (s.quantization,) if s.quantization is not None else ()
    named = config.text("quant_method").lower().replace("intel/", "").replace("autoround", "auto-round")
    named = named.replace("_", "-") if named in {"auto_round", "compressed_tensors"} else named
    if named.startswith("modelopt") or (not named and config.has("quant_algo")):
        algorithm = config.text("quant_algo").upper()
        return next(((m,) for word, m in _ALGORITHMS.items() if word in algorithm), _METHODS["modelopt"])
    return _METHODS.get(named, (named,)) if named else ()


def _quantised(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    table = history("models", "quantizations")
    asked = methods(a, s)
    known = [m for m in asked if m in table]
    if not known or any(table.exists(m, s.version) is None for m in known):
        return
    here = [m for m in known if table.exists(m, s.version)]
    if not here:
        yield Refusal(
            "--quantization",
            asked[-1],
            f"a method of {s.version}, which has none of this name; {table.span(known[-1])[1]} is the last that had it "
            f"(a plugin may bring it)",
        )
        return
    needs = {m: float(str(table.value(m, s.version).get("capability", "0"))) for m in here}
    able = [m for m in here if needs[m] <= capability]
    if not able:
        least = min(needs.values())
        yield Refusal(
            "--quantization" if a.quantization is None else "quantization_config",
            f"{asked[-1]} on {gpu.name}, compute capability {capability}",
            f"compute capability {least}, which {s.version} asks for with {asked[-1]}",
        )
        return
    types = [table.value(m, s.version).get("dtypes") for m in able]
    if all(isinstance(t, list) and s.dtype not in t for t in types):
        listed = sorted({str(x) for t in types if isinstance(t, list) for x in t})
        yield Refusal("--dtype", s.dtype, f"{' or '.join(listed)}, which {s.version} takes with {asked[-1]}")


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
    if name == "FLASH_ATTN" and s.kv_dtype.startswith("fp8") and not 9.0 <= capability < 12.0:
        yield Refusal("--kv-cache-dtype", s.kv_dtype, "auto, or another backend: FlashAttention 2 has none")
    if name == "FLASH_ATTN" and s.block and s.block % 16:
        yield Refusal("--block-size", str(s.block), "a multiple of 16, which FlashAttention asks for")


def _backend(a: Architecture, s: Settings, gpu: Card, capability: float) -> Iterator[Refusal]:
    if s.backend is None:
        return
    if s.does.checks_asked_backend and s.engine == "V1":
        yield from _asked(a, s, capability)
    name, table = s.backend.upper(), history("kernels", "attention")
    asks = table.value(name, s.version).get("capability") if table.exists(name, s.version) else None
    if not isinstance(asks, str):
        return
    least = asks.removeprefix(">=")
    met = capability >= float(least) if least != asks else str(int(capability)) in asks.split(",")
    if not met:
        yield Refusal(
            "--attention-backend",
            f"{name} on {gpu.name}, compute capability {capability}",
            f"compute capability {asks.replace(',', ' or ')}, or another backend",
        )
