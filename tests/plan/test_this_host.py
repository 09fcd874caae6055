"""What a host decides beside its card: Triton's assembler, and the memory that it shares with the card."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge, this_host

PTXAS = {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}


def depends(version, card, flags="", env=None):
    a, s, gpu = settings(LLAMA_8B, flags, version, card, env=env)
    told = [each.on for each in this_host.depends(s, gpu)]
    assert all(each in {d.on for d in judge(a, s, gpu).depends} for each in told)
    return told


@pytest.mark.parametrize(
    ("version", "card", "env", "asks"),
    [
        ("0.16.0", "NVIDIA GB10", None, True),
        ("0.17.0", "NVIDIA GB10", None, False),  # Triton 3.6 has a second assembler
        ("0.16.0", "NVIDIA GB10", PTXAS, False),
        ("0.16.0", "NVIDIA GeForce RTX 5090", None, False),  # 12.0, which CUDA 12.8 knows
        ("0.16.0", "NVIDIA H100 80GB HBM3", None, False),
    ],
)
def test_a_card_newer_than_cuda_12_8_needs_another_assembler(version, card, env, asks):
    assert ("Triton's assembler" in depends(version, card, "--gpu-memory-utilization 0.7", env)) is asks


@pytest.mark.parametrize(
    ("version", "card", "flags", "asks"),
    [
        ("0.33.0", "NVIDIA GB10", "", True),  # 0.92 of 119.7 GiB
        ("0.33.0", "NVIDIA GB10", "--gpu-memory-utilization 0.87", True),
        ("0.33.0", "NVIDIA GB10", "--gpu-memory-utilization 0.85", False),
        ("0.33.0", "NVIDIA GB10", "--kv-cache-memory-bytes 1000000000", False),  # asks for no share
        ("0.33.0", "NVIDIA H100 80GB HBM3", "", False),
    ],
)
def test_a_share_that_leaves_the_host_little_depends_on_what_the_host_holds(version, card, flags, asks):
    assert bool(depends(version, card, flags)) is asks
