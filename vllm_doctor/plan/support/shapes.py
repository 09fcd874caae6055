"""Does the tensor parallel size divide what vLLM divides by it: widths, quantized blocks, groups that share a scale?

The matrices of each layer are laid out as one rank holds them and as one card alone would: where the input side became
smaller the matrix is row parallel, where the output side did it is column parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd

from msgspec.structs import replace

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.parallel import Parallel, Shared
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.launch.spread import divides_vocabulary
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import FP8_LOADED, NVFP4, Format, Scheme, scheme
from vllm_doctor.plan.terms.matrices import Matrix, layer_matrices

# The least block that scales of fp8 experts are refined to (fused_moe/oracle/fp8.py refine_fp8_moe_block_shape).
_REFINED = 32


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, for the first matrix that cannot be split; none for one card."""
    par = s.parallel
    if s.gguf is not None or (par.tp == 1 and (a.moe is None or par.width_split == 1)):
        return
    asked = (s.quantization, s.element, s.gguf)
    why = _first(a, asked, par, s.does)
    if why is None:
        return
    if par.dp > 1 and not par.expert and _first(a, asked, replace(par, expert=True), s.does) is None:
        together = f"each expert is split among {par.width_split} ranks, data parallel ones too"
        yield Refusal(
            "--data-parallel-size", str(par.dp), f"--enable-expert-parallel, or a size that splits {why}: {together}"
        )
        return
    good = [n for n in range(1, s.parallel.tp) if _splits(a, asked, replace(s.parallel, tp=n), s.does)]
    needed = f"a size that splits {why}"
    if good:
        needed += f", such as {', '.join(map(str, good[-3:]))}"
    yield Refusal("--tensor-parallel-size", str(s.parallel.tp), needed)


# --quantization, bytes of a value of the model's type, the GGUF file.
_Asked = tuple[str | None, int, str | None]


def _splits(a: Architecture, asked: _Asked, par: Parallel, does: Behaviour) -> bool:
    heads = not (a.heads and a.heads % par.tp)
    kv = not (a.kv_heads and a.mla is None and a.kv_heads % par.tp and par.tp % a.kv_heads)
    return heads and kv and divides_vocabulary(a, par.tp) and _first(a, asked, par, does) is None


@lru_cache(maxsize=512)
def _first(a: Architecture, asked: _Asked, par: Parallel, does: Behaviour) -> str | None:
    """What of the model does not split in this size: of layers that are alike one is looked at. Kept: a search for
    cards asks the same sizes of each of them."""
    fmt = scheme(a.quantization, *asked)
    if fmt.name == "gptq" and (asked[0] == "gptq" or not does.gptq_by_marlin):
        fmt = replace(fmt, name=_ALONE)
    par = replace(par, shared=Shared.WHOLE) if par.shared is Shared.PERHAPS else par  # nothing that may be is refused
    seen: set[tuple[object, ...]] = set()
    for index, layer in enumerate(a.layers):
        moe = a.moe is not None and index in a.moe.layers
        prefix = f"{a.text_prefix}.layers"
        pairs = list(
            zip(
                layer_matrices(a, index, replace(par, tp=1, dp=1, prefill=1, expert=False), prefix),
                layer_matrices(a, index, par, prefix),
                strict=True,
            )
        )
        formats = [fmt.choose(m.name, m.expert) for _, m in pairs if not m.vector]
        like = (layer, moe, *(f.name for f in formats))
        if like in seen:
            continue
        seen.add(like)
        for whole, part in pairs:
            if part.name.endswith(_JOINED) and _splits_itself(a, par, does):
                continue
            if not part.vector and (why := _refused(a, does, fmt, whole, part)) is not None:
                return why
    return None


# Where they are stored joined, MiMo V2's class reads one tensor and gathers the blocks of each rank anew. A checkpoint
# that keeps them apart takes the ordinary way, which config.json does not always tell: what may be is not refused.
_JOINED = (".q_proj", ".k_proj", ".v_proj")
_APART = "mimo_v2_flash"


def _splits_itself(a: Architecture, par: Parallel, does: Behaviour) -> bool:
    if not a.model_type.startswith("mimo_v2"):
        return False
    if not does.splits_mimo_blocks:  # V2 Flash is stored in the parts of four ranks, which config.json does not tell
        return does.makes_uneven_joined_blocks and a.model_type == _APART
    return does.splits_mimo_heads or par.tp <= a.kv_heads


def _refused(a: Architecture, does: Behaviour, fmt: Scheme, whole: Matrix, part: Matrix) -> str | None:
    name = part.name.rpartition(".")[2]
    what = f"{name} of the experts" if part.expert else name
    for side, full, each in (("inputs", whole.inner, part.inner), ("outputs", whole.out, part.out)):
        if each == full:
            continue
        if each != int(each):
            return f"the {full:g} {side} of {what} evenly"
        told = _stored(a, does, fmt, fmt.choose(part.name, part.expert), part, int(each), side=side)
        if told is not None:
            return f"the {full:g} {side} of {what} into {told}"
    return None


def _stored(  # noqa: PLR0917
    a: Architecture, does: Behaviour, fmt: Scheme, form: Format, part: Matrix, each: int, *, side: str
) -> str | None:
    """The whole pieces that a rank's part of `each` must consist of, where it does not; None where it does."""
    if form.block and each % form.block:
        if form is FP8_LOADED and part.expert and does.pads_online_blocks:
            return None
        refines = does.refines_expert_blocks and fmt.name == "fp8" and part.expert
        if refines and gcd(form.block, each, a.moe.inputs(a.hidden) if a.moe else a.hidden) >= _REFINED:
            return None
        return f"blocks of {form.block} that share a scale; {each} for each rank is not a multiple"
    if does.marlin_alone_packs and _packed(a) and each % _MARLIN[side]:
        return f"multiples of {_MARLIN[side]}, which Marlin's kernel takes; {each} for each rank is not a multiple"
    if form.group and side == "inputs" and each % form.group and _needs_groups(does, fmt, form, part):
        return f"groups of {form.group} that share a scale; {each} for each rank is not a multiple"
    return None


# GPTQ in its own class, not on Marlin: before there was another, and where it is asked for by name.
_ALONE = "gptq alone"
# What a rank's part of a packed matrix is a multiple of (marlin_utils.py GPTQ_MARLIN_MIN_THREAD_K and _N).
_MARLIN = {"inputs": 128, "outputs": 64}


def _packed(a: Architecture) -> bool:
    """Are the linear layers packed integers that floats are multiplied with?"""
    config = a.quantization
    if config is None or a.moe is not None:
        return False
    if config.text("quant_method") == "gptq":
        return True
    groups = config.section("config_groups")
    found = [groups.section(key) for key in groups.values] if groups is not None else []
    weights = [one.section("weights") for one in found if one is not None and one.section("input_activations") is None]
    return any(one is not None and one.text("type") == "int" for one in weights)


def _needs_groups(does: Behaviour, fmt: Scheme, form: Format, part: Matrix) -> bool:
    """AWQ, compressed-tensors, GPTQ's own class (gptq.py create_weights, read in 0.3.0 to 0.20.0) and ModelOpt's NVFP4
    (modelopt.py: "in features size is not multiple of 16", the same in 0.9.1 and 0.33.0) raise for a part of a group;
    what Marlin makes of one of GPTQ's is not known here."""
    if fmt.name == _ALONE:
        return not part.expert
    if fmt.name == "compressed-tensors":
        return not part.expert or does.checks_expert_groups
    if fmt.name == "modelopt":
        return form == NVFP4 and not part.expert
    return fmt.name in {"awq", "awq-marlin"} and not part.expert
