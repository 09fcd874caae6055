"""What a card's generation decides, from both sides of each bound."""

import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.plan.models import DEEPSEEK_LIKE, DSA_LIKE, GPT_OSS_20B, LLAMA_8B, arch
from tests.plan.test_which_engine import asked
from vllm_doctor.knowledge.gpus import Card, find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Linear
from vllm_doctor.plan.model.quantization import MXFP4
from vllm_doctor.plan.support import card
from vllm_doctor.plan.terms import outside_torch, pages, weights
from vllm_doctor.plan.terms.matrices import Matrix

L4 = next(one for one in (find("L4"),) if one is not None)
LAST = asked("vllm serve m", "0.33.0")
LLAMA, GPT_OSS, DSA, MLA = arch(LLAMA_8B), arch(GPT_OSS_20B), arch(DSA_LIKE), arch(DEEPSEEK_LIKE)
DELTA = replace(
    arch({**LLAMA_8B, "model_type": "qwen3_next"}),
    linear=Linear(
        kind="gdn", key_heads=16, key_dim=128, value_heads=32, value_dim=128, conv=4, state_float32=False
    ),
)  # fmt: skip
EVERY = (7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 10.3, 11.0, 12.0, 12.1)
BELOW_ADA, FROM_ADA = EVERY[:3], EVERY[3:]


def of(capability: float) -> Card:
    """A card of this generation."""
    return dataclasses.replace(L4, capability=capability)


def at(version: str, **over: object) -> Settings:
    """The settings in a release."""
    told: Settings = replace(LAST, version=as_version(version), **over)
    return told


def _takes(a: Architecture, s: Settings) -> Callable[[float], bool]:
    """Does the card take the launch: is no option refused?"""
    return lambda c: not list(card._backend(a, s, of(c), c))


def _gdn(key_dim: int) -> Callable[[float], bool]:
    a = replace(DELTA, linear=replace(DELTA.linear, key_dim=key_dim)) if DELTA.linear is not None else DELTA
    return lambda c: pages._checkpoints(a, replace(LAST, prefix_caching=True), of(c)) == 64


def _sparse(version: str, kv: str, to: str, model_type: str = "deepseek_v32") -> Callable[[float], bool]:
    a = replace(DSA, model_type=model_type)
    return lambda c: pages._sparse_dtype(a, at(version, kv_dtype=kv), of(c)) == to


FLASH = {"backend": "FLASH_ATTN", "kv_dtype": "fp8"}
INFER = {"backend": "FLASHINFER", "kv_dtype": "auto"}
TRITON = {"backend": "TRITON_ATTN", "kv_dtype": "fp8"}


@pytest.mark.parametrize(
    ("holds", "cards"),
    [
        pytest.param(lambda c: of(c).computes_fp8, FROM_ADA, id="multiplies 8-bit floats"),
        pytest.param(lambda c: outside_torch.uses_flashinfer(LAST, of(c)), (10.0, 10.3), id="FlashInfer"),
        pytest.param(
            lambda c: outside_torch.uses_flashinfer(at("0.33.0", kv_dtype="fp8"), of(c)),
            (8.0, 8.6, 8.9, 10.0, 10.3, 11.0, 12.0, 12.1),
            id="FlashInfer of an 8-bit cache",
        ),
        pytest.param(_gdn(128), (9.0, 10.0, 10.3, 12.0, 12.1), id="delta net's states by FlashInfer"),
        pytest.param(_gdn(64), (9.0,), id="the same, of narrow keys"),
        pytest.param(lambda c: pages.block_size(MLA, at("0.33.0"), of(c)) == 64, EVERY[5:], id="blocks of latents"),
        pytest.param(lambda c: pages.block_size(MLA, at("0.10.0"), of(c)) == 128, EVERY[5:], id="the same, to 0.10"),
        pytest.param(_sparse("0.33.0", "auto", "fp8_ds_mla"), (12.0, 12.1), id="packed latents, unasked"),
        pytest.param(_sparse("0.11.0", "auto", "fp8_ds_mla"), EVERY, id="the same, in 0.11.0"),
        pytest.param(_sparse("0.11.1", "auto", "auto"), EVERY[:8], id="latents unasked, from 0.11.1"),
        pytest.param(_sparse("0.17.1", "fp8", "fp8_ds_mla"), EVERY, id="packed latents asked for, to 0.17"),
        pytest.param(_sparse("0.33.0", "auto", "fp8", "glm_moe_dsa"), (10.0, 10.3, 11.0), id="GLM's latents in fp8"),
        pytest.param(_sparse("0.28.0", "auto", "fp8", "glm_moe_dsa"), (), id="the same, to 0.28"),
        pytest.param(_sparse("0.33.0", "fp8", "fp8_ds_mla"), (*EVERY[:5], 12.0, 12.1), id="packed latents, asked for"),
        pytest.param(_sparse("0.33.0", "bfloat16", "auto"), EVERY[:8], id="latents in the model's own type"),
        pytest.param(_takes(LLAMA, at("0.33.0", **FLASH)), EVERY[4:8], id="FlashAttention 3 or 4, 8-bit cache"),
        pytest.param(_takes(GPT_OSS, at("0.33.0", **INFER)), EVERY[4:], id="FlashInfer's sinks"),
        pytest.param(_takes(GPT_OSS, at("0.28.0", **INFER)), EVERY[5:], id="the same, to 0.28"),
        pytest.param(_takes(GPT_OSS, at("0.25.0", **INFER)), (10.0, 10.3), id="the same, to 0.25"),
        pytest.param(_takes(LLAMA, at("0.33.0", **INFER)), EVERY[1:], id="FlashInfer asked for"),
        pytest.param(_takes(LLAMA, at("0.22.0", **INFER)), EVERY, id="the same, to 0.23"),
        pytest.param(_takes(LLAMA, at("0.33.0", **TRITON)), FROM_ADA, id="Triton, 8-bit cache"),
        pytest.param(_takes(LLAMA, at("0.33.0", kv_dtype="fp8")), EVERY[1:], id="8-bit cache, no backend asked for"),
        pytest.param(_takes(GPT_OSS, at("0.33.0", kv_dtype="fp8")), FROM_ADA, id="8-bit cache beside sinks"),
        pytest.param(_takes(MLA, at("0.17.0", kv_dtype="fp8")), (9.0, 10.0, 10.3), id="8-bit latents, to 0.17"),
        pytest.param(_takes(LLAMA, at("0.28.0", kv_dtype="nvfp4")), (10.0, 10.3), id="4-bit cache, to 0.28"),
        pytest.param(
            _takes(LLAMA, at("0.33.0", kv_dtype="nvfp4")), (*EVERY[1:7], *EVERY[8:]), id="4-bit cache"
        ),
        pytest.param(_takes(GPT_OSS, at("0.33.0", kv_dtype="nvfp4")), (10.0, 10.3), id="4-bit cache beside sinks"),
        pytest.param(_takes(LLAMA, at("0.14.1", kv_dtype="bfloat16")), (), id="bfloat16 by name, to 0.15"),
        pytest.param(_takes(LLAMA, at("0.33.0", kv_dtype="bfloat16")), EVERY, id="bfloat16 by name"),
        pytest.param(
            lambda c: not list(card._first_v1(at("0.7.3"), of(c), c)), EVERY[1:], id="V1 before 0.8: FlashAttention"
        ),
        pytest.param(lambda c: not list(card._first_v1(at("0.8.0"), of(c), c)), EVERY, id="V1 from 0.8"),
    ],
)  # fmt: skip
def test_a_generation_decides(holds: Callable[[float], bool], cards: tuple[float, ...]) -> None:
    assert tuple(c for c in EVERY if holds(c)) == cards


@pytest.mark.parametrize(
    ("capability", "up", "down"),
    [
        (8.9, (384, 512), (512, 384)), (9.0, (320, 512), (300, 512)), (10.0, (512, 512), (512, 512)),
        (12.0, (512, 512), (512, 512)), (None, (300, 300), (300, 300)),
    ],
)  # fmt: skip
def test_mxfp4_experts_are_padded_to_the_tile_of_the_generation_s_kernel(
    capability: float | None, up: tuple[float, float], down: tuple[float, float]
) -> None:
    target = weights.WeightTarget(2, capability=capability)
    for name, shape in (("up_proj", up), ("down_proj", down)):
        told = weights.padded(Matrix(f"mlp.experts.{name}", 300, 300, 7, expert=True), MXFP4, target)
        assert (told.out, told.inner, told.count) == (*shape, 7)
        plain = Matrix(f"mlp.{name}", 300, 300, 1)
        assert weights.padded(plain, MXFP4, target) == plain
