"""The layouts that pack a head's key and value into one slot: bytes a token, layers that keep their type, and what the
kernels keep, by release."""

import shlex

import pytest

from tests.plan.models import DEEPSEEK_LIKE, GEMMA3_LIKE, HYBRID_LIKE, LLAMA_8B
from vllm_doctor.plan.question.ask import KnownStart, foresee
from vllm_doctor.plan.question.planner import Planner
from vllm_doctor.plan.terms.kv import slot_bytes
from vllm_doctor.plan.terms.turboquant import reserved

GIB = 1 << 30
MODES = ["turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"]


def ask(config, line, *, version="0.33.0") -> Planner:
    words = ("vllm", "serve", "m", *shlex.split(line))
    told = foresee(KnownStart(words, version, config, "NVIDIA H200", 139.8, gpus=8))
    assert told is not None
    return told.planner


@pytest.mark.parametrize(
    ("bits", "width", "size"),
    [
        ((8, 4), 128, 196),  # a key as it is, half of a value's, its scale and zero
        ((4, 4), 128, 134),  # the norm of the key in two bytes
        ((3, 4), 128, 118),
        ((3, 3), 128, 102),
        ((3, 3), 80, 66),
        ((3, 4), 256, 230),  # 98 + 132
        ((3, 3), 20, 22),  # 10 and 12
        ((3, 4), 36, 38),  # 16 and 22
        ((8, 3), 21, 34),  # 33 are no even number
    ],
)
def test_a_slot_holds_key_and_value_on_an_even_number_of_bytes(bits, width, size):
    assert slot_bytes(width, *bits) == size


@pytest.mark.parametrize(("mode", "slot"), list(zip(MODES, (196, 134, 118, 102), strict=True)))
def test_the_first_and_the_last_two_layers_keep_the_models_type(mode, slot):
    p = ask(LLAMA_8B, f"--kv-cache-dtype {mode} --max-model-len 8192").predict()
    assert p.pool is not None
    assert p.pool.block_bytes == 16 * 8 * (28 * slot + 4 * 2 * 128 * 2)
    assert p.needed_kv_gib == pytest.approx(512 * p.pool.block_bytes / GIB)
    assert p.verdict == "starts"


def test_of_a_hybrid_none_does_and_the_states_page_follows_the_slot():
    p = ask(HYBRID_LIKE, "--kv-cache-dtype turboquant_4bit_nc --max-model-len 8192", version="0.24.0").predict()
    assert p.pool is not None
    page = next(g.spec for g in p.pool.groups if g.spec.kind == "full")
    assert page.token_bytes == 4 * (128 + 2 + 128 + 4)
    assert page.page == page.block * page.token_bytes


@pytest.mark.parametrize(("asked", "kept"), [("", 0), ("0", 1), ("0 5 31", 3), ("0 99", 1), ("sliding_window", 0)])
def test_layers_that_are_named_keep_the_models_type_in_any_layout(asked, kept):
    skipped = f"--kv-cache-dtype-skip-layers {asked}" if asked else ""
    p = ask(LLAMA_8B, f"--kv-cache-dtype fp8 {skipped} --max-model-len 8192").predict()
    assert p.pool is not None
    assert p.pool.block_bytes == 16 * 8 * 128 * 2 * (32 + kept)


def test_windows_that_are_named_do():
    windows = "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers sliding_window --max-model-len 8192"
    p = ask(GEMMA3_LIKE, windows).predict()
    assert p.pool is not None
    assert {(g.spec.kind, g.spec.token_bytes // g.spec.heads // 128) for g in p.pool.groups} == {
        ("full", 2), ("sliding", 4),
    }  # fmt: skip


@pytest.mark.parametrize(("version", "buffers"), [("0.20.2", 28), ("0.21.0", 0)])
def test_to_0_20_each_packed_layer_loads_buffers_for_a_batch(version, buffers):
    line = "--kv-cache-dtype {} --max-model-len 8192 --max-num-seqs 128"
    packed, plain = (ask(LLAMA_8B, line.format(k), version=version).predict() for k in (MODES[0], "fp8"))
    each = 128 * 32 * (32 * 129 + 128 + 1) * 4
    assert packed.weights_gib - plain.weights_gib == pytest.approx(buffers * each / GIB, abs=1e-3)


@pytest.mark.parametrize(
    ("version", "seqs", "tokens", "taken"),
    [
        ("0.23.0", 128, 2048, 0),
        ("0.24.0", 128, 2048, 2 * 8 * 65536 * 128 * 2),  # the longest request in 16 bits
        ("0.24.0", 4096, 4096, 4096 * 32 * (32 * 129 * 4 + 128 * 2 + 4)),
        ("0.33.0", 128, 128, 128 * 32 * (32 * 129 * 4 + 128 * 2 + 4)),  # a step too small to unpack
    ],
)
def test_from_0_24_a_workspace_is_reserved_beyond_the_profile(version, seqs, tokens, taken):
    line = f"--kv-cache-dtype {{}} --max-model-len 65536 --max-num-seqs {seqs} --max-num-batched-tokens {tokens}"
    a = ask(LLAMA_8B, line.format(MODES[0]), version=version)
    assert reserved(a.arch, a.settings()) == taken
    assert reserved(a.arch, ask(LLAMA_8B, line.format("fp8"), version=version).settings()) == 0


def test_a_layer_that_predicts_more_is_packed():
    config = {**LLAMA_8B, "num_nextn_predict_layers": 1}
    drafts = """--speculative-config '{"method":"mtp","num_speculative_tokens":1}'"""
    with_it, without = (
        ask(config, f"--kv-cache-dtype {MODES[0]} --max-model-len 8192 {more}").predict().pool for more in (drafts, "")
    )
    assert with_it is not None
    assert without is not None
    assert with_it.block_bytes - without.block_bytes == 16 * 8 * 196


def test_windows_beside_it_leave_the_verdict_open():
    p = ask(GEMMA3_LIKE, "--kv-cache-dtype turboquant_k8v4 --max-model-len 8192", version="0.33.0").predict()
    assert any("layers with a window" in doubt for doubt in p.settings.doubts)


@pytest.mark.parametrize(("version", "kept"), [("0.25.1", 0), ("0.26.0", 1)])
def test_latents_that_are_named_keep_it_from_0_26_on(version, kept):
    line = "-tp 8 --kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0 --max-model-len 8192"
    p = ask(DEEPSEEK_LIKE, line, version=version).predict()
    assert p.pool is not None
    assert p.pool.block_bytes == p.pool.groups[0].spec.block * 576 * (61 + kept)
