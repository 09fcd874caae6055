"""The cache arithmetic beside vLLM's own classes, asked in an installed release: $VLLM_DOCTOR_VLLM_PYTHON names its
Python."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import asdict

from vllm_doctor.plan.terms.kv import Rules, Spec, pool

PYTHON = os.environ.get("VLLM_DOCTOR_VLLM_PYTHON")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="needs VLLM_DOCTOR_VLLM_PYTHON, the Python of an installed vLLM 0.32"
)


def cases():
    """Layer lists of every kind of model, in sizes that real ones have."""
    draw = random.Random(4)
    for _ in range(60):
        token = draw.choice([512, 1024, 2048, 4096])
        count = draw.randint(4, 64)
        kind = draw.choice(["full", "mla", "sliding", "mixed", "sizes", "hybrid"])
        if kind in {"full", "mla", "sliding"}:
            layers = [Spec(kind, 16, token, draw.choice([128, 1024, 4096]) if kind == "sliding" else 0)] * count
        elif kind == "mixed":
            layers = [
                Spec("sliding", 16, token, 1024) if i % draw.choice([2, 3, 6]) else Spec("full", 16, token)
                for i in range(count)
            ]
        elif kind == "sizes":
            layers = [Spec("sliding", 16, 2 * token, 1024) if i % 6 else Spec("full", 16, token) for i in range(count)]
        else:
            block = 16 * draw.randint(10, 60)
            state = block * token - draw.randint(0, 15 * token)
            layers = [
                Spec("full", block, token)
                if i % 4 == 3
                else Spec("mamba", block, 0, 0, state, draw.choice([0, 0, 2]), block * token)
                for i in range(count)
            ]
            spec = layers[0].spec_blocks
            layers = [
                Spec("mamba", block, 0, 0, state, spec, block * token) if s.kind == "mamba" else s for s in layers
            ]
        yield {
            "layers": [asdict(s) for s in layers],
            "available": draw.randint(4 << 30, 90 << 30),
            "length": draw.choice([2048, 8192, 131072]),
            "in_flight": draw.choice([2048, 16384]),
            "align": draw.choice([True, False]),
        }


def test_groups_blocks_needs_and_concurrency_agree():
    asked = list(cases())
    run = subprocess.run(
        [PYTHON, str(Path(__file__).with_name("vllm_pool.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "ANSWER " in run.stdout, run.stderr[-2000:]
    told = json.loads(run.stdout.split("ANSWER ", 1)[1])
    for case, theirs in zip(asked, told, strict=True):
        rules = Rules(in_flight=case["in_flight"], padding_ratio=1.5, align_states=case["align"])
        mine = pool([Spec(**s) for s in case["layers"]], rules)
        blocks = mine.blocks(case["available"])
        shown = {
            "groups": len(mine.groups),
            "blocks": blocks,
            "needed": mine.needed(case["length"]),
            "concurrency": mine.concurrency(blocks, case["length"]),
        }
        assert shown == pytest.approx(theirs), case
