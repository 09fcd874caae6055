"""What balancing experts (--enable-eplb) takes beside the spare copies: one layer's experts once more, into which the
next placement is received, and in the profile the same of all ranks (distributed/eplb/rebalance_execute.py).

The profile gathers each weight of one layer's experts into a list that names one buffer many times "to avoid real
memory allocation"; torch's NCCL group flattens a list of like tensors into a new one first, as large as all of them
(torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp allgather, newLikeFlat).
"""

from __future__ import annotations

import msgspec

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import Scheme, unquantized_format
from vllm_doctor.plan.terms.matrices import feed_forward
from vllm_doctor.plan.terms.term import Term
from vllm_doctor.plan.terms.weights import WeightTarget, tensors


class Balancing(msgspec.Struct, frozen=True):
    """Bytes of one rank: what is kept, and the pass of the profile that makes it, None where there is none."""

    kept: float = 0.0
    profiled: Term | None = None


def balancing(a: Architecture, s: Settings, fmt: Scheme, target: WeightTarget) -> Balancing:
    """What it takes of one rank of this launch."""
    if s.balances is None or a.moe is None:
        return Balancing()
    index = min(a.moe.layers)
    layer = feed_forward(a, index, f"{a.text_prefix}.layers.{index}", s.parallel)
    held = tensors((m for m in layer if m.expert), fmt, unquantized_format(target.element), target)
    each, ranks, hidden = sum(held.sizes.values()) + held.scales, s.parallel.expert_split, s.batched * a.hidden
    widest = max(held.sizes.values())
    gathered = Term(
        "balancing of experts in the profile",
        each + ranks * widest + float(hidden * s.element),
        f"{each:.0f} B + {ranks} × {widest:.0f} B + {hidden} × {s.element} B",
        "distributed/eplb/rebalance_execute.py",
    )
    return Balancing(each if s.does.keeps_expert_buffer else 0.0, None if s.balances == "nixl" else gathered)
