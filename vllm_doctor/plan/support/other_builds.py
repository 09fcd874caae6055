"""The methods of quantization that a release lists for another build than CUDA's (history/models.json `devices`, read
from platforms/rocm.py and its like: "quantization is currently not supported in rocm"), and one that asks for a
package of its own."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.generations import AMPERE, VOLTA
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.card import methods

_DEVICES = {"ROCm build": "rocm", "XPU build": "xpu"}
_BITBLAS = "gptq_bitblas"


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """A method that the release lists for other devices alone."""
    device = _DEVICES.get(gpu.backend) if gpu is not None else None
    if gpu is None or device is None or s.gguf is not None:
        return
    asked = (_BITBLAS,) if _by_bitblas(a, s) else methods(a, s)
    listed = _listed(device, s.version)
    if not asked or not listed or not _known(asked, s.version) or not listed.isdisjoint(asked):
        return
    instead = f"--quantization gptq, or a method of {s.version} for it" if asked == (_BITBLAS,) else "another method"
    yield Refusal(
        "quantization_config" if a.quantization is not None else "--quantization",
        f"{asked[-1]} on {gpu.name}",
        f"{instead}: vLLM's {gpu.backend} of {s.version} has {', '.join(sorted(listed))}",
    )


def depends(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """GPTQ on a card that Marlin does not take, where the release hands it to a package that is not vLLM's own."""
    capability = gpu.capability if gpu is not None and gpu.backend == "CUDA" else None
    if capability is not None and VOLTA <= capability < AMPERE and _by_bitblas(a, s):
        yield Dependence(
            "whether bitblas is installed",
            f"vLLM {s.version} makes {_BITBLAS} of this checkpoint below compute capability {AMPERE}, and does not "
            f"start without the package; --quantization gptq settles it",
        )


def _by_bitblas(a: Architecture, s: Settings) -> bool:
    """Does the release make gptq_bitblas of a GPTQ checkpoint (GPTQBitBLASConfig TYPE_MAP)?"""
    config = a.quantization
    if config is None or not s.does.gptq_by_bitblas or s.quantization is not None:
        return False
    plain = config.text("quant_method").lower() == "gptq" and config.values.get("sym") is True
    told = config.values.get("bits") in {4, 8} and isinstance(config.values.get("desc_act"), bool)
    return plain and told and config.values.get("group_size") in {-1, 32, 64, 128}


def _known(asked: tuple[str, ...], version: Version) -> bool:
    """Has the release a method of these names at all?"""
    table = history("models", "quantizations")
    return any(name in table and table.exists(name, version) for name in asked)


def _listed(device: str, version: Version) -> frozenset[str]:
    """The methods of a release that it has for a device; empty where it does not list any."""
    table = history("models", "quantizations")
    here = (name for name in table.names() if table.exists(name, version))
    return frozenset(name for name in here if device in _of(table.value(name, version).get("devices")))


def _of(devices: object) -> list[str]:
    return [str(one) for one in devices] if isinstance(devices, list) else []
