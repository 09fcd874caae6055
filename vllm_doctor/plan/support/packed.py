"""Packed integers whose part for a rank no kernel of the release takes: GPTQ on Marlin, and compressed-tensors'
weights of 4 and 8 bits with inputs in 16.

From 0.6.2 on such a layer asks its kernels in turn (kernels/mixed_precision, choose_mp_linear_kernel) and the start
ends where none can: Machete on compute capability 9.0, AllSpark from 0.8.0 on Ampere and Ada, Marlin, and from
0.6.3.post1 Exllama, which multiplies with float16 alone. Not 0.6.2, which asks Marlin with two sizes exchanged, and not
from 0.23 on, whose requirements have kernels for each shape (humming-kernels).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.generations import AMPERE, HOPPER, TURING
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.named import fused
from vllm_doctor.plan.model.quantization import Scheme, scheme
from vllm_doctor.plan.terms.encoder import without_tower
from vllm_doctor.plan.terms.matrices import layer_matrices

_TP = "--tensor-parallel-size"
_GROUPS = frozenset({-1, 32, 64, 128})  # marlin_utils.py MARLIN_SUPPORTED_GROUP_SIZES


class _Stored(msgspec.Struct, frozen=True):
    """How the integers are kept: `group` values share a scale, -1 for a whole row; `ordered` where rows were sorted by
    activation, `zeros` where they have zero points."""

    bits: int
    group: int
    ordered: bool
    zeros: bool


class _Layer(msgspec.Struct, frozen=True):
    """One layer as a rank has it, what it computes at once together."""

    name: str
    whole: int  # inputs of the whole model
    inputs: int
    outputs: int


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal, for the first layer that no kernel takes."""
    capability = gpu.capability if gpu is not None and gpu.backend == "CUDA" else None
    stored = _stored(a.quantization)
    if stored is None or capability is None or not s.does.packed_by_choice or s.gguf is not None:
        return
    if s.quantization not in {None, "gptq_marlin", "compressed-tensors"}:
        return
    if capability < (TURING if s.does.marlin_on_turing else AMPERE):
        return
    if a.vision is not None and without_tower(a, s):
        a = replace(a, vision=None)
    found = _first(a, s.element, stored, s.dtype, capability, s.parallel, s.does)
    if found is None:
        return
    name = found.name.rpartition(".")[2] + (" in the vision tower" if found.name.startswith("visual.") else "")
    shape = f"{found.inputs} inputs and {found.outputs} outputs of {name}"
    good = [
        n for n in range(1, s.parallel.tp)
        if s.parallel.tp % n == 0
        and _first(a, s.element, stored, s.dtype, capability, replace(s.parallel, tp=n), s.does) is None
    ]  # fmt: skip
    half = "" if _taken(found, stored, "float16", capability, s.does) is None else "--dtype float16, or "
    if good:
        needed = f"{half}a size with which a kernel of {s.version} takes each rank's part, such as "
        yield Refusal(_TP, str(s.parallel.tp), f"{needed}{', '.join(map(str, good))}: none takes {shape}")
    else:
        needed = f"{half}another format" if half else "another format"
        yield Refusal("quantization_config", f"{stored.bits}-bit integers, {shape} in {s.dtype}", needed)


def _stored(config: Section | None) -> _Stored | None:
    if config is None:
        return None
    method = config.text("quant_method").lower()
    if method == "gptq":
        bits, group = config.values.get("bits"), config.values.get("group_size", 128)
        if bits not in {4, 8} or group not in _GROUPS or config.values.get("sym") is not True:
            return None  # GPTQ's own class takes it (is_gptq_marlin_compatible)
        return _Stored(int(bits), int(group), config.values.get("desc_act") is True, False)
    groups = config.section("config_groups") if method == "compressed-tensors" else None
    found = [groups.section(key) for key in groups.values] if groups is not None else []
    weights = found[0].section("weights") if len(found) == 1 and found[0] is not None else None
    if weights is None or found[0] is None or found[0].section("input_activations") is not None:
        return None
    bits, group = weights.values.get("num_bits"), weights.values.get("group_size")
    if weights.text("type") != "int" or bits not in {4, 8}:
        return None
    return _Stored(
        int(bits),
        int(group) if isinstance(group, int) and group > 0 else -1,
        weights.values.get("actorder") == "group",
        weights.values.get("symmetric") is False,
    )


@lru_cache(maxsize=256)
def _first(  # noqa: PLR0917
    a: Architecture, element: int, stored: _Stored, dtype: str, capability: float, par: Parallel, does: Behaviour
) -> _Layer | None:
    """Kept: a search for cards asks the same of each of them."""
    for layer in _layers(a, element, par):
        if _taken(layer, stored, dtype, capability, does) is None:
            return layer
    return None


@lru_cache(maxsize=64)
def _layers(a: Architecture, element: int, par: Parallel) -> tuple[_Layer, ...]:
    """Each shape of a packed layer once: experts have kernels of their own."""
    fmt = scheme(a.quantization, None, element)
    shapes: dict[tuple[int, int, int], _Layer] = {}
    prefix = f"{a.text_prefix}.layers"
    for index in range(len(a.layers)):
        merged: dict[str, tuple[float, float, float]] = {}
        whole = layer_matrices(a, index, replace(par, tp=1, dp=1, prefill=1, expert=False), prefix)
        for one, part in zip(whole, layer_matrices(a, index, par, prefix), strict=True):
            if part.vector or part.expert or fmt.choose(part.name, False).group is None:
                continue
            name = fused(part.name)
            merged[name] = (one.inner, part.inner, merged.get(name, (0, 0, 0))[2] + part.out)
        for name, (full, inner, out) in merged.items():
            if all(n == int(n) for n in (full, inner, out)):
                key = (int(full), int(inner), int(out))
                shapes.setdefault(key, _Layer(name, *key))
    return (*shapes.values(), *_tower(a, fmt, par.tower_split))


def _tower(a: Architecture, fmt: Scheme, ranks: int) -> Iterator[_Layer]:
    """The last matrix of a block of Qwen2.5-VL's tower, whose 3420 inputs are no whole groups of 128. Other towers'
    widths are, and GPTQ's are not quantized (qwen2_5_vl.py Qwen2_5_VisionMLP)."""
    v = a.vision
    if v is None or v.kind != "qwen2_5_vl" or not fmt.towers or v.width % ranks:
        return
    name = "model.visual.blocks.0.mlp.down_proj"
    if fmt.choose(name, False).group is not None:
        yield _Layer("visual.mlp.down_proj", v.width, v.width // ranks, v.hidden)


def _taken(layer: _Layer, stored: _Stored, dtype: str, capability: float, does: Behaviour) -> str | None:
    """The kernel that takes it; each one's `can_implement`, alike in all releases of this choice but where said."""
    split = layer.inputs != layer.whole
    if capability == HOPPER and layer.inputs % 64 == 0 and layer.outputs % 128 == 0 and not (stored.ordered and split):
        return "Machete"
    if stored.bits == 8 and stored.group == -1 and capability < HOPPER and does.has_allspark and not stored.ordered:
        return "AllSpark"
    in_groups = stored.group == -1 or stored.group >= layer.whole or layer.inputs % stored.group == 0
    tiles = layer.inputs % 128 == 0 and layer.outputs % 64 == 0
    if stored.group in _GROUPS and in_groups and tiles:
        return "Marlin"
    if does.has_exllama and dtype in {"float16", "half"} and not stored.zeros and not (stored.ordered and split):
        whole_groups = layer.whole % stored.group == 0 if stored.group > 0 else not does.exllama_wants_groups
        if whole_groups and layer.outputs % (32 // stored.bits) == 0:
            return "Exllama"
    return None
