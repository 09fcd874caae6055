"""Options that exclude or need each other, each beside a launch or a release that is taken."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_experts import MOE
from tests.plan.test_refused import of_the_launch as flags

CONNECTOR = '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}'
GROWS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
GUESSED = '--speculative-config {"method":"ngram","num_speculative_tokens":3}'


@pytest.mark.parametrize(
    ("config", "words", "flag", "taken"),
    [
        (
            LLAMA_8B,
            '--attention-backend FLASH_ATTN --attention-config {"backend":"FLASHINFER"}',
            "--attention-backend",
            "--attention-backend FLASH_ATTN",
        ),
        (
            LLAMA_8B,
            '--max-cudagraph-capture-size 8 --compilation-config {"max_cudagraph_capture_size":8}',
            "--max-cudagraph-capture-size",
            '--max-cudagraph-capture-size 8 --compilation-config {"mode":3}',
        ),
        (LLAMA_8B, f"--spec-tokens 2 {GUESSED}", "--spec-tokens", GUESSED),
        (
            MOE,
            "-dp 2 --data-parallel-hybrid-lb --data-parallel-external-lb --data-parallel-rank 0",
            "--data-parallel-hybrid-lb",
            "-dp 2 --data-parallel-external-lb --data-parallel-rank 0",
        ),
        (
            MOE,
            "-dp 2 --nnodes 2 --data-parallel-backend ray",
            "--data-parallel-backend",
            "-dp 2 --nnodes 2 --data-parallel-backend mp",
        ),
        (LLAMA_8B, "-tp 4 --nnodes 3", "--nnodes", "-tp 4 --nnodes 2"),
        (
            LLAMA_8B,
            "-tp 4 --nnodes 2 --distributed-executor-backend ray",
            "--nnodes",
            "-tp 4 --nnodes 2 --distributed-executor-backend mp",
        ),
        (LLAMA_8B, "-tp 4 --nnodes 2 --node-rank 2", "--node-rank", "-tp 4 --nnodes 2 --node-rank 1"),
        (
            MOE,
            "-dp 2 --data-parallel-external-lb",
            "--data-parallel-external-lb",
            "-dp 2 --nnodes 2 --data-parallel-external-lb",
        ),
        (
            MOE,
            "-dp 4 --data-parallel-rank 1 --data-parallel-size-local 2",
            "--data-parallel-size-local",
            "-dp 4 --data-parallel-rank 1 --data-parallel-size-local 1",
        ),
        (
            MOE,
            "-dp 4 --data-parallel-hybrid-lb",
            "--data-parallel-hybrid-lb",
            "-dp 4 --data-parallel-hybrid-lb --data-parallel-size-local 2",
        ),
        (LLAMA_8B, "-dp 2 --data-parallel-rank 1", "--data-parallel-rank", "-dp 2"),
        (LLAMA_8B, "--device-ids 0,0 -tp 2", "--device-ids", "--device-ids 0,1 -tp 2"),
        (LLAMA_8B, "--device-ids 0,GPU-5a -tp 2", "--device-ids", "--device-ids GPU-4f,GPU-5a -tp 2"),
        (MOE, "-dp 2 --data-parallel-rank 2", "--data-parallel-rank", "-dp 2 --data-parallel-rank 1"),
    ],
)
def test_what_excludes_or_needs_another_option(config, words, flag, taken):
    assert flags(config, words) == [flag]
    assert flags(config, taken) == []


def test_a_connector_pins_what_growing_segments_would_move():
    assert flags(LLAMA_8B, CONNECTOR, env=GROWS) == ["PYTORCH_CUDA_ALLOC_CONF"]
    assert flags(LLAMA_8B, f"{CONNECTOR} --enable-cumem-allocator", env=GROWS) == []
    assert flags(LLAMA_8B, CONNECTOR) == flags(LLAMA_8B, "", env=GROWS) == []
    assert flags(LLAMA_8B, CONNECTOR, "0.20.0", GROWS) == []


SLEEPS = "--enable-sleep-mode"


def test_sleep_mode_asserts_that_segments_do_not_grow():
    assert flags(LLAMA_8B, SLEEPS, "0.8.5", GROWS) == ["PYTORCH_CUDA_ALLOC_CONF"]
    assert flags(LLAMA_8B, SLEEPS, "0.20.2", GROWS) == flags(LLAMA_8B, SLEEPS, "0.8.5") == []


def test_reasoning_needs_its_parser_while_it_is_a_switch():
    assert flags(LLAMA_8B, "--enable-reasoning", "0.8.5") == ["--enable-reasoning"]
    assert flags(LLAMA_8B, "--enable-reasoning --reasoning-parser deepseek_r1", "0.8.5") == []


def test_nodes_are_asked_before_0_27_by_the_releases_own_assert():
    assert flags(LLAMA_8B, "-tp 4 --nnodes 3", "0.26.0") == ["--nnodes"]
    assert flags(LLAMA_8B, "-tp 4 --nnodes 2", "0.26.0") == []
