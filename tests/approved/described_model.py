"""What of a model's config.json the memory of a launch follows from: its architecture, each layer in a word, the bytes
of its weights as each way to spread them leaves them, and how each matrix is stored. `readings` sweeps it."""

import json
from collections.abc import Iterator
from itertools import groupby

import msgspec

from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture, Attention
from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.model.quantization import Format, scheme
from vllm_doctor.plan.terms.matrices import Matrix, layer_matrices
from vllm_doctor.plan.terms.weights import WeightTarget, rank_weights

# On one card, on two ranks, with the last of three stages, with experts spread whole, with a draft layer beside it.
_SPREADS = {
    "one card": (Parallel(), 0, False),
    "two ranks": (Parallel(tp=2), 0, False),
    "the first of two stages": (Parallel(pp=2), 0, False),
    "the last of two stages": (Parallel(pp=2), 1, True),
    "experts on two copies": (Parallel(dp=2, expert=True), 0, False),
}


def described(text: str) -> object:
    """The record; of what is refused, why."""
    try:
        a = describe(Section(json.loads(text)))
        stored = scheme(a.quantization, None, 2)
        sizes = {
            name: round(rank_weights(a, stored, par, stage, WeightTarget(), draft_mtp=drafts, draft_eagle=drafts))
            for name, (par, stage, drafts) in _SPREADS.items()
        }
        matrices = {m.name: stored.choose(m.name, m.expert) for m in _matrices(a) if not m.vector}
    except ConfigError as why:
        return {"refused": str(why)}
    plain = msgspec.to_builtins(msgspec.structs.replace(a, config=None, quantization=None, rope=None))
    told = {name: value for name, value in plain.items() if value}
    if a.moe is not None:
        told["moe"]["layers"] = " ".join(map(str, sorted(a.moe.layers)))
    return {
        **told,
        "layers": _alike([_layer(one) for one in a.layers]),
        "bytes": sizes,
        "stored": {"exact": stored.exact, "of": _alike([f"{_last(n)} {_stored(f)}" for n, f in matrices.items()])}
        if a.quantization is not None
        else {},
    }


def _matrices(a: Architecture) -> Iterator[Matrix]:
    for index in range(len(a.layers)):
        yield from layer_matrices(a, index, Parallel(), f"{a.text_prefix}.layers")


def _layer(one: Attention) -> str:
    sizes = f"{one.heads}/{one.kv_heads} x {one.head_dim}/{one.value_dim}" if one.heads else ""
    marks = (one.window, one.shares_kv and "shares", one.k_is_v and "K is V", one.indexed and "indexed")
    return " ".join((one.kind, sizes, *(str(mark) for mark in marks if mark))).strip()


def _last(name: str) -> str:
    return name.partition(".layers.")[2]


def _stored(one: Format) -> str:
    beside = f"{one.scale_bytes:g}+{one.zero_bits:g}, {one.block}, {one.index_bytes}"
    return f"{one.name} {one.bits:g} bits, {one.group}, {beside}"


def _alike(each: list[str]) -> dict[str, str]:
    """What follows one another and is the same stands once, with its number."""
    runs = [(text, len(list(same))) for text, same in groupby(each)]
    return {str(at): f"{count} x {text}" if count > 1 else text for at, (text, count) in enumerate(runs)}
