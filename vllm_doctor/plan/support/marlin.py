"""Layers that Marlin's kernel does not take, on one card as on several: of an AWQ checkpoint, and 8-bit floats on a
card without such floats.

From 0.5.3 on an AWQ checkpoint runs on Marlin where it can (Ampere and later). Before 0.7.3 each linear layer has to be
of its sizes; 0.7.3 leaves one that is not to AWQ's own kernel (awq_marlin.py get_quant_method,
check_marlin_supports_layer). Floats of 8 bits are packed anew for it on Ampere, each layer whole, in tiles of 16 inputs
and 64 outputs (marlin_utils_fp8.py prepare_fp8_layer_for_marlin, csrc gptq_marlin_repack.cu); 0.24 fills them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from vllm_doctor.knowledge.generations import ADA, AMPERE
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.named import fused
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.matrices import layer_matrices

# utils/marlin_utils.py GPTQ_MARLIN_MIN_THREAD_K and MARLIN_SUPPORTED_GROUP_SIZES, alike in 0.5.4 and 0.6.6.
_INPUTS = 128
_GROUPS = frozenset({-1, 32, 64, 128})


# Of a layer of 8-bit floats (csrc marlin.cuh tile_size, gptq_marlin_repack.cu tile_n_size).
_TILE = {"inputs": 16, "outputs": 64}


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal of each kind."""
    yield from _packed(a, s, gpu)
    yield from _floats(a, s, gpu)


def _floats(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """For the first layer of 8-bit floats that does not fill its tiles."""
    capability = gpu.capability if gpu is not None and gpu.backend == "CUDA" else None
    if gpu is None or capability is None or not AMPERE <= capability < ADA or s.does.marlin_pads_floats:
        return
    found = None if s.gguf is not None else _first_float(a, s.quantization, s.element, s.parallel)
    if found is not None:
        name, side, each = found
        needed = (
            f"a multiple of {_TILE[side]} {side} of {name} for each rank, not {each:g}: {gpu.name} has no 8-bit "
            f"floats, and Marlin's kernel takes whole tiles; or vLLM 0.24, which fills them up"
        )
        alone = s.parallel.tp == 1
        flag = "quantization_config" if alone else "--tensor-parallel-size"
        yield Refusal(flag, "fp8" if alone else str(s.parallel.tp), needed)


@lru_cache(maxsize=64)
def _first_float(
    a: Architecture, quantization: str | None, element: int, par: Parallel
) -> tuple[str, str, float] | None:
    """The layer's name, the side that does not fill its tiles, and how much of it a rank has."""
    fmt = scheme(a.quantization, quantization, element)
    for index in range(len(a.layers)):
        outputs: dict[str, float] = {}
        for matrix in layer_matrices(a, index, par, f"{a.text_prefix}.layers"):
            if matrix.vector or matrix.expert or fmt.choose(matrix.name, matrix.expert).name != "fp8":
                continue
            if matrix.inner % _TILE["inputs"]:
                return matrix.name.rpartition(".")[2], "inputs", matrix.inner
            outputs[fused(matrix.name)] = outputs.get(fused(matrix.name), 0) + matrix.out
        for name, each in outputs.items():
            if each % _TILE["outputs"]:
                return name.rpartition(".")[2], "outputs", each
    return None


def _packed(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """For the first layer whose inputs are no multiple of what the kernel takes."""
    config = a.quantization
    able = gpu is not None and gpu.backend == "CUDA" and gpu.capability is not None and gpu.capability >= AMPERE
    if config is None or not able or not s.does.marlin_takes_all_of_awq or s.quantization not in {None, "awq_marlin"}:
        return
    if config.text("quant_method").lower() != "awq" or config.values.get("zero_point") is None:
        return
    if config.values.get("bits") not in {4, 8} or config.values.get("group_size") not in _GROUPS:
        return
    found = _first(a, s.quantization, s.element, s.parallel)
    if found is not None:
        name, inputs = found
        yield Refusal(
            "--quantization",
            "awq_marlin, which vLLM takes by itself",
            f"awq: Marlin's kernel takes multiples of {_INPUTS} inputs, and {name} has {inputs} for each rank",
        )


@lru_cache(maxsize=64)
def _first(a: Architecture, quantization: str | None, element: int, par: Parallel) -> tuple[str, int] | None:
    """The layer's name and its inputs on one rank. Groups that a rank has in part are refused as such
    (support/shapes.py). Kept: a search for cards asks it of each."""
    fmt = scheme(a.quantization, quantization, element)
    for index in range(len(a.layers)):
        for matrix in layer_matrices(a, index, par, f"{a.text_prefix}.layers"):
            if matrix.vector or matrix.expert or matrix.inner != int(matrix.inner):
                continue
            form = fmt.choose(matrix.name, matrix.expert)
            if form.group and int(matrix.inner) % _INPUTS and not int(matrix.inner) % form.group:
                return matrix.name.rpartition(".")[2], int(matrix.inner)
    return None
