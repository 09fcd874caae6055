"""A component that has a substitute has a switch, and the newest release's switches are all known."""

import pytest

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.layers.switches import switches, switches_of

SITE = "/opt/v/lib/python3.12/site-packages"
# Switches of the newest release that no failing call tells, or whose other side is no substitute.
OF_NO_COMPONENT = {
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",
    "VLLM_BEAM_ALWAYS_CONSTRAIN_OUTPUT",
    "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER",
    "VLLM_CONFIGURE_LOGGING",
    "VLLM_CPU_ATTN_SPLIT_KV",
    "VLLM_CPU_INT4_W4A8",
    "VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE",
    "VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING",
    "VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE",
    "VLLM_ENABLE_PREGRAD_PASSES",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_ENFORCE_STRICT_TOOL_CALLING",
    "VLLM_KIMI_K3_GEMM_AR",
    "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES",
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "VLLM_MOE_SKIP_PADDING",
    "VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD",
    "VLLM_ROCM_FP8_PADDING",
    "VLLM_ROCM_MOE_PADDING",
    "VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16",
    "VLLM_USE_BYTECODE_HOOK",
    "VLLM_USE_DEEP_GEMM_E8M0",
    "VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES",
    "VLLM_USE_FLASHINFER_SAMPLER",  # rules/remedies/other_kernel.py
    "VLLM_USE_LAYERNAME",
    "VLLM_XPU_PP_MICROBATCH",
    "VLLM_XPU_USE_SAMPLER_KERNEL",
    "VLLM_ZENTORCH_WEIGHT_PREPACK",
}


@pytest.mark.parametrize("one", switches(), ids=lambda one: f"{one.options[0]} {one.calls[:24]}")
def test_a_release_has_each_switch(one: object) -> None:
    told = next(row for row in switches() if row is one)
    known = versions.env if told.kind == "env" else versions.flag
    assert any(known(name, at) is not None for name in told.options for at in ("0.16.0", "0.33.0"))
    assert told.why


def test_no_switch_of_the_newest_release_that_is_on_by_default_was_overlooked() -> None:
    facts = {name: versions.env(name, "0.33.0") for name in versions.env_names("0.33.0")}
    on = {name for name, fact in facts.items() if fact is not None and fact.default is True}
    assert on - {name for row in switches() for name in row.options} == OF_NO_COMPONENT


@pytest.mark.parametrize(
    ("calls", "said", "first"),
    [
        (["vllm/_aiter_ops.py", "aiter/ops/triton/gluon/mla_gluon.py"], "", "VLLM_ROCM_USE_AITER_MLA"),
        (["vllm/_aiter_ops.py", "aiter/fused_moe.py"], "", "VLLM_ROCM_USE_AITER_MOE"),
        (["vllm/_aiter_ops.py", "aiter/jit/core.py"], "", "VLLM_ROCM_USE_AITER"),
        (["vllm/utils/deep_gemm.py"], "", "VLLM_USE_DEEP_GEMM"),
        (["vllm/v1/worker/gpu/model_runner.py", "vllm/v1/worker/gpu/states.py"], "", "VLLM_USE_V2_MODEL_RUNNER"),
        (["vllm/v1/worker/gpu_model_runner.py", "vllm/device_allocator/cumem.py"], "", "enable-sleep-mode"),
        (["vllm/compilation/passes/fusion/allreduce_rms_fusion.py"], "", "compilation-config"),
        (["vllm/distributed/device_communicators/shm_object_storage.py"], "is invalid", "mm-processor-cache-type"),
        (["vllm/distributed/aux_output_connector/routed_experts.py"], "", "enable-return-routed-experts"),
        (["vllm/model_executor/determinism/batch_invariant.py"], "", "VLLM_BATCH_INVARIANT"),
        (["vllm/model_executor/model_loader/weight_cache/ipc_loader.py"], "", "load-format"),
        (["vllm/distributed/kv_events.py"], "", "kv-events-config"),
    ],
)
def test_the_smallest_component_comes_first(calls: list[str], said: str, first: str) -> None:
    assert switches_of([f"{SITE}/{file}" for file in calls], said)[0].options[0] == first


def test_calls_that_only_led_to_the_failure_turn_nothing_off() -> None:
    files = ["v1/worker/gpu/model_runner.py", "model_executor/models/a.py", "model_executor/layers/b.py"]
    assert switches_of([f"{SITE}/vllm/{file}" for file in files], "") == ()
