"""Triton's attention on Turing: which heads ask for more shared memory than the card has."""

import pytest

from tests.plan.models import GEMMA3_LIKE, LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge

WIDE = {**LLAMA_8B, "head_dim": 512}


def doubts(config, flags, version, card):
    a, s, gpu = settings(config, flags, version, card)
    return [one for one in judge(a, s, gpu).doubts if "shared memory" in one]


@pytest.mark.parametrize(
    ("config", "flags", "version", "card", "asked"),
    [
        (WIDE, "", "0.26.0", "Tesla T4", "98304"),
        (WIDE, "", "0.19.1", "RTX 2080 Ti", "98304"),
        (WIDE, "", "0.22.0", "Tesla T4", ""),  # FlashInfer takes heads of 512 there
        (WIDE, "--attention-backend TRITON_ATTN", "0.22.0", "Tesla T4", "98304"),
        (WIDE, "--attention-backend FLEX_ATTENTION", "0.26.0", "Tesla T4", ""),
        (WIDE, "", "0.26.0", "A10", ""),
        (WIDE, "", "0.19.0", "Tesla V100-SXM2-32GB", ""),  # has 96 KiB
        ({**GEMMA3_LIKE, "head_dim": 256}, "", "0.17.0", "Tesla T4", "81920"),  # float32, since float16 overflows
        (LLAMA_8B, "--dtype float32", "0.17.0", "Tesla T4", ""),
        ({**LLAMA_8B, "head_dim": 256}, "", "0.26.0", "Tesla T4", ""),
    ],
)
def test_the_bytes_are_told_where_turing_has_less(config, flags, version, card, asked):
    found = doubts(config, flags, version, card)
    assert len(found) == bool(asked)
    assert all(f"asks for {asked} bytes" in one for one in found)
