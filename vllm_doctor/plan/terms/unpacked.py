"""What a packed matrix takes while a wide step is multiplied by it, where no kernel reads it as it is.

bitsandbytes, GPTQ's exllama and AWQ make the whole matrix in the model's type first, for the time of one product; AWQ
before 0.3 keeps eight parts of the product side by side. Marlin's kernels do neither. Sizes in bytes on one rank.
"""

from __future__ import annotations

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.term import Term

_MARLIN_FROM = 8.0  # compute capability
# Parts of a product that are added up at the end (csrc/quantization/awq/gemm_kernels.cu split_k_iters).
_PARTS = 8


def packed_pass(a: Architecture, s: Settings, capability: float | None) -> Term | None:
    """The pass at the matrix where most is alive at once, residual stream and all; None where nothing is unpacked."""
    method = _method(a, s, capability)
    if method is None or (a.moe is not None and not _plain_experts(a, s) and method != "bitsandbytes"):
        return None
    e, tokens, hidden = s.element, s.batched, a.hidden
    if a.moe is not None and _plain_experts(a, s):
        # Each expert is a matrix of its own, on one rank as a whole, and takes every token (mixtral_quant.py).
        up, alive = a.moe.width, 4 * hidden + 2 * a.moe.width
    else:
        up, alive = 2 * a.width // s.parallel.tp, 2 * hidden + 2 * a.width // s.parallel.tp
    if method == "awq" and s.does.awq_in_eight_parts:
        parts = _PARTS * up
        return Term(
            "forward pass, AWQ in eight parts",
            float(e * tokens * (alive + parts)),
            f"{tokens} × ({alive} + {_PARTS}×{up}) × {e} B",
            "csrc/quantization/awq/gemm_kernels.cu",
        )
    return Term(
        f"forward pass, {method} unpacked",
        float(e * (tokens * alive + up * hidden)),
        f"({tokens} × {alive} + {up} × {hidden}) × {e} B",
        f"model_executor/layers/quantization/{method}.py",
    )


def _plain_experts(a: Architecture, s: Settings) -> bool:
    """Are packed experts plain layers (QuantMixtralForCausalLM; before 0.3 Mixtral's one class)?"""
    return a.name == "MixtralForCausalLM" and s.engine == "V0"


def _method(a: Architecture, s: Settings, capability: float | None) -> str | None:
    """The method, if its kernel unpacks."""
    stored = a.quantization.text("quant_method") if a.quantization is not None else None
    method = stored or s.quantization
    if method == "bitsandbytes":
        return method
    by_marlin = s.quantization is None and (capability or _MARLIN_FROM) >= _MARLIN_FROM
    if method == "gptq" and not (by_marlin and s.does.gptq_by_marlin):
        return method
    if method == "awq" and not (by_marlin and s.does.awq_by_marlin):
        return method
    return None
