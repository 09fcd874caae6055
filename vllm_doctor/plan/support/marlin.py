"""Layers of an AWQ checkpoint that Marlin's kernel does not take, on one card as on several.

From 0.5.3 on an AWQ checkpoint runs on Marlin where it can (Ampere and later). Before 0.7.3 each linear layer has to be
of its sizes; 0.7.3 leaves one that is not to AWQ's own kernel (awq_marlin.py get_quant_method,
check_marlin_supports_layer).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from vllm_doctor.knowledge.generations import AMPERE
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.matrices import layer_matrices

# utils/marlin_utils.py GPTQ_MARLIN_MIN_THREAD_K and MARLIN_SUPPORTED_GROUP_SIZES, alike in 0.5.4 and 0.6.6.
_INPUTS = 128
_GROUPS = frozenset({-1, 32, 64, 128})


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, for the first layer whose inputs are no multiple of what the kernel takes."""
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
