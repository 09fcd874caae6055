"""Groups of a compressed-tensors checkpoint for which a release has no scheme: its own choice of one, asked of the
group's keys (history/schemes.json, read from each wheel by tools/releases/schemes.py).

Linear layers have one choice, experts another. What a release asks beside the keys is not known and refuses nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from vllm_doctor.knowledge.generations import BLACKWELL
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.parser.combinations import UNKNOWN
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.named import ModuleNames
from vllm_doctor.plan.support.asked_facts import FactTest
from vllm_doctor.plan.terms.matrices import layer_matrices

_METHOD = "compressed-tensors"
# What a key is where a checkpoint leaves it out (the package compressed-tensors, QuantizationArgs).
_DEFAULTS: Mapping[str, object] = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "group_size": None,
    "dynamic": False,
}
# Formats whose inputs are quantized; of the others' inputs releases before this one take none (compressed_tensors.py
# _quantization_scheme_map_from_config; read in 0.8.5, 0.10.2 and 0.33.0).
_BY_INPUTS = frozenset({"naive-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized"})
_ALL_INPUTS = as_version("0.10.2")


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, for the first group of linear layers, or of experts, that has no scheme."""
    config = a.quantization
    if config is None or config.text("quant_method").lower().replace("_", "-") != _METHOD:
        return
    sparse = config.section("sparsity_config")
    if sparse is not None and sparse.texts("targets"):
        return  # which has kernels of its own
    for experts, kind in ((False, "linear layers"), (True, "experts")):
        tests = history("schemes", "schemes").around(f"{_METHOD} experts" if experts else _METHOD, s.version)
        for key in _used(a, s.version, experts) if tests else ():
            facts = _facts(config, key, s.version, gpu.capability if gpu is not None else None)
            ask = FactTest(facts)
            if all(ask.value(_tree(test)) is False for test in tests or ()):
                yield Refusal("quantization_config", _shown(facts), f"a scheme that {s.version} has for {kind}")
                return
            if not experts and gpu is not None and _uncompiled(facts, s, gpu.capability):
                needed = "a checkpoint in fp8, or a card before Blackwell: the kernel has no code for this one"
                yield Refusal("quantization_config", f"{_shown(facts)} on {gpu.name}", needed)
                return


@lru_cache(maxsize=64)
def _used(a: Architecture, _version: Version, experts: bool) -> tuple[str, ...]:
    """The groups that some linear layer has, or some expert: by its name, else as a Linear (find_matched_target)."""
    config = a.quantization
    groups = config.section("config_groups") if config is not None else None
    if config is None or groups is None:
        return ()
    ignored = ModuleNames(config.texts("ignore"))
    listed = {key: group.texts("targets") for key in groups.values if (group := groups.section(key)) is not None}
    named = {key: ModuleNames(targets) for key, targets in listed.items()}
    linear = next((key for key, targets in listed.items() if not targets or "Linear" in targets), None)
    found: dict[str, None] = {}
    for index in range(len(a.layers)):
        for matrix in layer_matrices(a, index, Parallel(), f"{a.text_prefix}.layers"):
            if not matrix.vector and matrix.expert is experts and matrix.name not in ignored:
                key = next((key for key, names in named.items() if matrix.name in names), linear)
                if key is not None:
                    found[key] = None
    return tuple(found)


def _facts(config: Section, key: str, version: Version, capability: float | None) -> dict[str, object]:
    """A group's keys under the names of the choice; what is not known is not there."""
    groups = config.section("config_groups")
    group = groups.section(key) if groups is not None else None
    if group is None:
        return {}
    form = group.text("format") or config.text("format")
    facts: dict[str, object] = {"format": form} if form else {}
    if capability is not None:
        facts["capability"] = capability
    inputs = form in _BY_INPUTS or version >= _ALL_INPUTS
    parts = {
        "weights": "weights",
        "outputs": "output_activations",
        **({"inputs": "input_activations"} if inputs else {}),
    }
    for name, where in parts.items():
        part = group.section(where)
        facts[name] = True if part is not None else None
        # Without weights a layer stays as it is; a key asked of inputs that are not there ends the launch.
        absent = {} if name == "weights" else dict.fromkeys([*_DEFAULTS, "strategy"])
        told = _keys(part) if part is not None else absent
        facts |= {f"{name}.{each}": value for each, value in told.items()}
    return facts


def _uncompiled(facts: Mapping[str, object], s: Settings, capability: float | None) -> bool:
    """8-bit integers with their inputs where the kernel that is taken for them has no machine code."""
    asked = [(facts.get(f"{part}.type"), facts.get(f"{part}.num_bits")) for part in ("weights", "inputs")]
    newer = capability is not None and capability >= BLACKWELL
    return newer and s.does.no_integers_on_blackwell and not s.other_kernels and asked == [("int", 8)] * 2


def _keys(part: Section) -> dict[str, object]:
    """The keys of weights or inputs, with the strategy that follows from the others where none is said."""
    told = {key: part.values.get(key, default) for key, default in _DEFAULTS.items()}
    size, strategy = told["group_size"], part.values.get("strategy")
    if not isinstance(strategy, str) and isinstance(size, int | None):
        strategy = "tensor" if size is None else "group" if size > 0 else "channel"
        strategy = UNKNOWN if part.values.get("block_structure") else strategy
    return told | {"strategy": strategy, "type": str(told["type"])}


def _shown(facts: Mapping[str, object]) -> str:
    """A group in words."""

    def told(name: str) -> str:
        words = f"{facts[f'{name}.num_bits']}-bit {facts[f'{name}.type']} by {facts[f'{name}.strategy']}"
        return words + ("" if facts[f"{name}.symmetric"] else ", not symmetric")

    parts = [f"{_METHOD}, {told('weights')}"]
    if facts.get("inputs"):
        kind = "dynamic" if facts["inputs.dynamic"] else "fixed"
        parts.append(f"inputs {kind} {told('inputs')}")
    return ", ".join([*parts, *([str(facts["format"])] if "format" in facts else [])])


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
