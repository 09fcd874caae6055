"""Keys and options that a part of the configuration refuses of itself, each beside one that is taken."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_adapters import QWEN_VL
from tests.plan.test_refused import of_the_launch as flags

DRAFTED = '--speculative-config {"method":"ngram","num_speculative_tokens":2,"max_model_len":8192}'


def made_up(keys):
    """Drafts of two tokens that are taken as often as the keys say."""
    drafts = '"method":"ngram","num_speculative_tokens":2,"rejection_sample_method":"synthetic"'
    return f"--speculative-config {{{drafts}{keys}}}"


RATES = made_up(',"synthetic_acceptance_rates":[0.9,0.9]')
LENGTH = made_up(',"synthetic_acceptance_length":3')


@pytest.mark.parametrize(
    ("config", "refused", "taken", "version"),
    [
        (
            LLAMA_8B,
            '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"both"}',
            '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}',
            "0.19.1",
        ),
        (
            LLAMA_8B,
            f"--max-model-len 4096 {DRAFTED}",
            f"--max-model-len 8192 {DRAFTED}",
            "0.33.0",
        ),
        (
            LLAMA_8B,
            "--ray-workers-use-nsight --distributed-executor-backend mp",
            "--ray-workers-use-nsight --distributed-executor-backend ray",
            "0.19.1",
        ),
        (
            QWEN_VL,
            "--mm-shm-cache-max-object-size-mb 256",
            "--mm-shm-cache-max-object-size-mb 256 --mm-processor-cache-type shm",
            "0.33.0",
        ),
        (
            LLAMA_8B,
            '--pooler-config {"pooling_type":"LAST","seq_pooling_type":"CLS"}',
            '--pooler-config {"seq_pooling_type":"CLS"}',
            "0.33.0",
        ),
        (LLAMA_8B, made_up(""), RATES, "0.33.0"),
        (
            LLAMA_8B,
            made_up(',"synthetic_acceptance_rates":[1,1],"synthetic_acceptance_length":2'),
            LENGTH,
            "0.33.0",
        ),
        (LLAMA_8B, made_up(',"synthetic_acceptance_rates":[0.9]'), RATES, "0.33.0"),
        (LLAMA_8B, made_up(',"synthetic_acceptance_rates":[1.1,0.9]'), RATES, "0.20.2"),
        (LLAMA_8B, made_up(',"synthetic_acceptance_rates":[0.8,0.9]'), RATES, "0.33.0"),
        (LLAMA_8B, made_up(',"synthetic_acceptance_length":3.1'), LENGTH, "0.33.0"),
        (LLAMA_8B, made_up(',"synthetic_acceptance_length":0.5'), LENGTH, "0.20.2"),
        (LLAMA_8B, '--pooler-config {"normalize":true}', '--pooler-config {"use_activation":true}', "0.33.0"),
    ],
)
def test_what_a_part_refuses(config, refused, taken, version):
    assert len(flags(config, refused, version)) == 1
    assert flags(config, taken, version) == []


def test_shared_tensors_need_spawned_workers():
    env = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    assert flags(QWEN_VL, "--mm-tensor-ipc torch_shm", "0.25.1") == ["--mm-tensor-ipc"]
    assert flags(QWEN_VL, "--mm-tensor-ipc torch_shm", "0.25.1", env) == []


def test_a_pooler_has_normalize_up_to_0_15_and_no_release_after_takes_it():
    assert flags(LLAMA_8B, '--pooler-config {"normalize":true}', "0.15.0") == []
    assert flags(LLAMA_8B, '--pooler-config {"normalize":true}', "0.25.1") == ["--pooler-config"]
