"""Methods of quantization that have nothing for a model's experts in a release.

Fused experts assert that they have a method, which ends the start where the method's class has none for them
(history/models.json `no_experts`). Before there were fused ones a model put the weights of plain layers into one tensor
by itself, by a name that packed layers have not (history/traits.json `joined_experts`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import Record, history
from vllm_doctor.knowledge.traits import has_trait
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.card import methods

# Methods whose linear layers keep packed integers and no `weight` (their create_weights, read in 0.3.3 to 0.9.2).
_NO_WEIGHT = frozenset(
    {"aqlm", "awq", "awq_marlin", "bitsandbytes", "gptq", "gptq_marlin", "gptq_marlin_24", "marlin", "squeezellm"}
)


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, where each method that the release may take the checkpoint by has nothing for them."""
    if a.moe is None or s.gguf is not None or any(r.flag == "--quantization" for r in s.refusals):
        return
    asked, able = _asked(a, s), _able(a, s, gpu)
    joined = has_trait(a.name, "joined_experts", s.version) and able.keys() <= _NO_WEIGHT
    fused = has_trait(a.name, "fused_experts", s.version) and all(one.get("no_experts") for one in able.values())
    if able and (joined or (fused and not _stands_in(a, s))):
        flag = "--quantization" if a.quantization is None or s.quantization is not None else "quantization_config"
        name = asked[-1].replace("_", "-") if flag == "quantization_config" else asked[-1]
        yield Refusal(flag, name, f"another method: {name} of {s.version} has nothing for the experts of {a.name}")


def unable(a: Architecture, s: Settings, gpu: Card | None, to: str) -> str | None:
    """The method whose experts a release cannot adapt or balance, whichever it may take the checkpoint by (`to` is
    `no_adapted_experts` or `no_balanced_experts` of history/models.json); None where one can, or experts are left out
    of it."""
    told = a.quantization.values if a.quantization is not None and s.quantization is None else {}
    if "expert" in json.dumps(told):
        return None
    able = _able(a, s, gpu)
    return list(able)[-1] if able and all(one.get(to) for one in able.values()) else None


def _asked(a: Architecture, s: Settings) -> Sequence[str]:
    """The methods that the launch asks for, or the checkpoint."""
    table = history("models", "quantizations")
    named = s.quantization is not None and s.quantization in table
    return (s.quantization,) if s.quantization is not None and named else methods(a, s)


def _able(a: Architecture, s: Settings, gpu: Card | None) -> Mapping[str, Record]:
    """Those of them that the release has for the card, with what is known of each."""
    table = history("models", "quantizations")
    here = {n: table.value(n, s.version) for n in _asked(a, s) if n in table and table.exists(n, s.version)}
    held = gpu.capability if gpu is not None else None
    return {n: one for n, one in here.items() if held is None or float(str(one.get("capability", "0"))) <= held}


def _stands_in(a: Architecture, s: Settings) -> bool:
    """A release may have a class beside it for quantized checkpoints (model_loader/utils.py, up to 0.10): its experts
    are plain layers."""
    return history("models", "architectures").exists(f"Quant{a.name}", s.version) is not False
