"""What ends a start while the model is made or its weights are loaded, by the code of one release: each with a launch
beside it that differs in one thing, or in the release, and is taken."""

import pytest

from tests.plan.models import GEMMA3_LIKE, GPT_OSS_20B, LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge

CHUNKS = {"chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144}
QWEN = {**LLAMA_8B, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
LONG = {**QWEN, "dual_chunk_attention_config": CHUNKS}
LLAMA4 = {**LLAMA_8B, "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text"}
BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}
PACKED = {**LLAMA_8B, "quantization_config": BITS}
AWQ = {
    **LLAMA_8B,
    "torch_dtype": "float16",
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
}
BOTH = "--load-format bitsandbytes --quantization bitsandbytes"
LMCACHE = '--kv-transfer-config {"kv_connector":"LMCacheConnector","kv_role":"kv_both"}'
LMCACHE_V1 = LMCACHE.replace("Connector", "ConnectorV1").replace("kv_ConnectorV1", "kv_connector")
FLASHINFER = {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
DUAL = {"VLLM_ATTENTION_BACKEND": "DUAL_CHUNK_FLASH_ATTN", "VLLM_USE_V1": "0"}


def told(config, flags, version, env=None):
    a, s, gpu = settings(config, flags, version, env=env)
    return {one.flag for one in (*s.refusals, *judge(a, s, gpu).refusals)}


@pytest.mark.parametrize(
    ("config", "flags", "version", "env", "flag"),
    [
        (LONG, "", "0.10.1.1", {}, "dual_chunk_attention_config"),
        (LONG, "", "0.33.0", {}, "dual_chunk_attention_config"),
        (GPT_OSS_20B, "", "0.10.1", {"VLLM_USE_V1": "0"}, "VLLM_USE_V1"),
        (LLAMA4, "", "0.8.3", {"VLLM_USE_V1": "0"}, "VLLM_USE_V1"),
        (PACKED, "", "0.6.6", {}, "--load-format"),
        (PACKED, "--load-format auto", "0.8.3", {}, "--load-format"),
        (AWQ, "", "0.2.1.post1", {}, "--quantization"),
        (GEMMA3_LIKE, "", "0.9.1", FLASHINFER, "VLLM_ATTENTION_BACKEND"),
        (GEMMA3_LIKE, "--cpu-offload-gb 8", "0.19.1", {}, "--cpu-offload-gb"),
        (LLAMA_8B, LMCACHE, "0.8.5", {}, "--kv-transfer-config"),
    ],
)
def test_this_ends_the_start(config, flags, version, env, flag):
    assert flag in told(config, flags, version, env)


@pytest.mark.parametrize(
    ("config", "flags", "version", "env"),
    [
        (QWEN, "", "0.10.1.1", {}),
        (LONG, "", "0.8.5", {}),  # no class reads the key
        (LONG, "", "0.10.1.1", DUAL),
        (GPT_OSS_20B, "", "0.10.1", {}),
        (LLAMA4, "", "0.8.3", {}),
        (LLAMA4, "", "0.8.4", {"VLLM_USE_V1": "0"}),
        (PACKED, BOTH, "0.6.6", {}),
        (PACKED, "", "0.8.4", {}),  # sets the option itself
        (AWQ, "--quantization awq", "0.2.1.post1", {}),
        (AWQ, "", "0.2.3", {}),
        (GEMMA3_LIKE, "", "0.9.1", {}),
        (GEMMA3_LIKE, "", "0.10.1", FLASHINFER),
        (LLAMA_8B, "", "0.9.1", FLASHINFER),
        (GEMMA3_LIKE, "--cpu-offload-gb 8", "0.20.0", {}),
        (LLAMA_8B, "--cpu-offload-gb 8", "0.19.1", {}),
        (LLAMA_8B, LMCACHE, "0.8.4", {}),  # which takes the first engine for it
        (LLAMA_8B, LMCACHE_V1, "0.8.5", {}),
    ],
)
def test_this_does_not(config, flags, version, env):
    assert told(config, flags, version, env) == set()
