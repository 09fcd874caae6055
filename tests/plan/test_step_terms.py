"""The bytes of each part of a step, counted by hand from small widths of which no two are alike."""

import pytest
from msgspec.structs import replace

from tests.plan.models import LLAMA_8B, arch
from tests.plan.test_which_engine import asked
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Linear, Mla, Moe
from vllm_doctor.plan.terms import activation

WIDE = arch(LLAMA_8B)
LAYERS = tuple(replace(layer, heads=4, kv_heads=2, head_dim=25) for layer in WIDE.layers)
DENSE = replace(WIDE, hidden=100, width=400, layers=LAYERS)
EVERY_LAYER = frozenset(range(len(DENSE.layers)))
EXPERTS = Moe(experts=8, top_k=3, width=70, shared_width=0, layers=EVERY_LAYER)
LAST = asked("vllm serve m", "0.33.0")


def step(
    version: str = "0.33.0", *, tokens: int = 10, over: dict[str, object] | None = None, **spread: int
) -> Settings:
    """A step of so many tokens in 16 bits, spread over ranks."""
    parallel = replace(LAST.parallel, **spread)
    told: Settings = replace(
        LAST, version=as_version(version), batched=tokens, element=2, parallel=parallel, **(over or {})
    )
    return told


def with_experts(**over: object) -> Architecture:
    """The model with experts instead of a width in each layer."""
    moe: Moe = replace(EXPERTS, **over)
    return replace(DENSE, moe=moe)


@pytest.mark.parametrize(
    ("a", "tp", "name", "size"),
    [
        (DENSE, 1, "MLP", 2 * 10 * (400 + 3 * 400)),
        (DENSE, 2, "MLP", 2 * 10 * (400 + 3 * 200)),
        (replace(DENSE, gated_mlp=False), 1, "MLP", 2 * 10 * (400 + 2 * 400)),
        (replace(DENSE, width=100), 1, "MLP", 2 * 10 * 700),  # both alike
        (replace(DENSE, width=99), 1, "attention", 2 * 10 * (400 + 2 * 100 + 2 * 50)),
        (replace(DENSE, width=60), 2, "attention", 2 * 10 * (400 + 2 * 50 + 2 * 25)),
        (replace(DENSE, width=60), 4, "attention", 2 * 10 * (400 + 2 * 25 + 2 * 25)),  # a head of keys at least
        (with_experts(), 1, "attention", 2 * 10 * 700),  # no layer has a width
        (with_experts(shared_width=200), 1, "MLP", 2 * 10 * (400 + 3 * 200)),
        (with_experts(shared_width=300), 2, "MLP", 2 * 10 * (400 + 3 * 150)),
        (with_experts(layers=EVERY_LAYER - {0}), 1, "MLP", 2 * 10 * (400 + 3 * 400)),  # the first layer has
        (with_experts(layers=EVERY_LAYER - {0}, shared_width=500), 1, "MLP", 2 * 10 * (400 + 3 * 500)),
    ],
)
def test_the_widest_layer_of_a_step(a: Architecture, tp: int, name: str, size: int) -> None:
    told = activation._forward(a, step(tp=tp), 10)
    assert (told.name, told.bytes) == (f"forward pass, {name}", size)


@pytest.mark.parametrize(
    ("kind", "tp", "size"),
    [
        ("gdn", 1, 400 + 2 * (2 * 60 + 2 * 110) + 2 * 110),
        ("gdn", 2, 400 + 2 * (2 * 30 + 2 * 55) + 2 * 55),
        ("mamba2", 1, 400 + 2 * 100 + 2 * 50),
    ],
)
def test_a_delta_net_has_its_projections_and_their_copies(kind: str, tp: int, size: int) -> None:
    r = Linear(
        kind="gdn", key_heads=4, key_dim=15, value_heads=10, value_dim=11, conv=4, state_float32=False
    )  # fmt: skip
    a = replace(DENSE, width=1, linear=replace(r, kind=kind))
    assert activation._forward(a, step(tp=tp), 10).bytes == 2 * 10 * size
    # Of few heads it is narrower than the attention beside it.
    narrow = replace(a, linear=replace(r, key_heads=2, key_dim=1, value_heads=2, value_dim=1))
    assert activation._forward(narrow, step(), 10).bytes == 2 * 10 * 700


@pytest.mark.parametrize(
    ("experts", "version", "capability", "direct"),
    [
        ("fp8", "0.13.0", 8.6, True), ("fp8", "0.13.0", 8.9, False), ("fp8", "0.13.0", None, False),
        ("fp8", "0.33.0", 8.6, False), ("int4", "0.13.0", 9.0, True), ("int4", "0.33.0", 9.0, False),
        ("gptq4", "0.19.0", 9.0, True), ("gptq4", "0.20.0", 9.0, False), ("awq4", "0.20.0", 9.0, True),
        ("mxfp4", "0.13.0", 8.6, False),
    ],
)  # fmt: skip
def test_experts_that_marlin_is_called_for_directly(
    experts: str, version: str, capability: float | None, *, direct: bool
) -> None:
    assert activation._direct(step(version), experts, capability) is direct


def test_the_formula_shown_has_the_widths_that_were_counted() -> None:
    assert activation._forward(replace(DENSE, gated_mlp=False), step(), 10).formula == "10 × (4×100 + 2×400) × 2 B"


@pytest.mark.parametrize(
    ("indexer_top", "tp", "size"),
    [(0, 1, 4 * (2 * 57 + 50 + 2 * 60)), (0, 2, 2 * (2 * 57 + 50 + 2 * 60)), (9, 1, 4 * (2 * 57 + 60))],
)
def test_latents_are_made_keys_and_values_of_but_for_sparse_attention(indexer_top: int, tp: int, size: int) -> None:
    a = replace(DENSE, width=1, mla=Mla(kv_rank=30, q_rank=None, rope=7, nope=50, value=60, indexer_top=indexer_top))
    assert activation._forward(a, step(tp=tp), 10).bytes == 2 * 10 * (4 * 100 + size)


@pytest.mark.parametrize(
    ("s", "direct", "size"),
    [
        (step(), False, 2 * 10 * 3 * (100 + 140)),
        (step(tp=2), False, 2 * 10 * 3 * (100 + 100)),
        (step(tp=2, expert=True), False, 2 * 10 * 3 * (100 + 140)),
        (step(dp=4), False, 2 * 40 * 3 * (100 + 100)),
        (step(dp=4, expert=True), False, 2 * 40 * 3 * (100 + 140)),
        (step(), True, 2 * 10 * 3 * (140 + 70)),
        (step(tp=2), True, 2 * 10 * 3 * (100 + 35)),
        (step(dp=4, expert=True), True, 2 * 40 * 3 * (140 + 70)),
        (step(tokens=40_000), False, 2 * 40_000 * 3 * (100 + 140)),
    ],
)
def test_the_workspace_of_experts(s: Settings, size: int, *, direct: bool) -> None:
    told = activation._moe(with_experts(), s, direct=direct)
    assert told is not None
    assert told.bytes == size
    assert activation._moe(DENSE, s, direct=direct) is None


def test_what_ranks_hand_each_other() -> None:
    assert activation._hand_over(DENSE, step()) is None
    handed = activation._hand_over(DENSE, step(pp=2))
    assert handed is not None
    assert handed.bytes == 2 * 10 * 2 * 100
    assert activation._gathered(with_experts(), step(expert=True)) is None
    assert activation._gathered(DENSE, step(dp=4, expert=True)) is None
    for s in (step(dp=4), step(dp=4, expert=True)):
        gathered = activation._gathered(with_experts(), s)
        assert gathered is not None
        assert gathered.bytes == 2 * 40 * 100 * 2


@pytest.mark.parametrize(
    ("length", "seqs", "rows"),
    [(1000, 1, 8000), (10, 1, 80), (7, 1, 64), (8, 1, 64), (7, 100, 6400), (8191, 1, 65528), (8193, 1, 65536)],
)
def test_a_prefill_of_latents_keeps_room_for_a_chunk(length: int, seqs: int, rows: int) -> None:
    mla = Mla(kv_rank=30, q_rank=None, rope=7, nope=50, value=60)
    s = step(over={"length": length, "seqs": seqs, "engine": "V1"})
    told = activation._mla(mla, s)
    assert told is not None
    assert told.bytes == 2 * rows * 37
    assert activation._mla(mla, replace(s, engine="V0")) is None


@pytest.mark.parametrize(
    ("version", "length", "latents"),
    [("0.33.0", 262_144, 5), ("0.33.0", 262_145, 2), ("0.31.0", 262_145, 5), ("0.33.0", 1000, 5)],
)
def test_an_indexer_keeps_room_for_the_keys_it_gathers(version: str, length: int, latents: int) -> None:
    mla = Mla(kv_rank=30, q_rank=None, rope=7, nope=50, value=60, indexer_top=9, indexer_dim=128)
    told = activation._mla(mla, step(version, over={"length": length}))
    assert told is not None
    assert told.bytes == length * 8 * latents * 132
