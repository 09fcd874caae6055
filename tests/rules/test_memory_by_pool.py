"""Whichever pool beside weights, profile run and KV cache finds no memory, the answer is its cause and its own lever.

`logs/memory_pools.json` has the calls of each (sleep and wake-up, a trainer's new weights, buffers of KV connectors,
offloaded weights, adapters, memory of the CPU engine, segments in /dev/shm, custom all-reduce), as the sources of its
release have them; of trainers and LMCache, as theirs have them. They are composed with the messages that such an
allocation ends in and with what stands before a line, whole and with only the innermost calls left. `least` is the
number of calls below which a text does not tell any more what asked for the memory.
"""

import json
from pathlib import Path
from typing import TypedDict

import pytest

from tests.rules.test_memory_by_stage import HEADS, MESSAGES
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import judged


class Pool(TypedDict):
    """What asks for memory in one release."""

    release: str
    stage: str
    message: str
    least: int
    causes: list[str]
    changes: list[str]
    calls: list[tuple[str, str, str]]


POOLS: list[Pool] = json.loads(Path(__file__).with_name("logs").joinpath("memory_pools.json").read_text("utf-8"))
ALLOCATOR = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: not enough memory: you tried to "
    "allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)"
)
SAID = {
    "device": (
        *MESSAGES.values(),
        f"torch.OutOfMemoryError: {MESSAGES['figures'].partition(': ')[2].replace('CUDA', 'HIP')}",
        (
            "RuntimeError: NPU out of memory. Tried to allocate 1.18 GiB (NPU 0; 60.97 GiB total capacity; 57.61 GiB "
            "already allocated; 58.01 GiB current active; 613.56 MiB free; 58.90 GiB reserved in total by PyTorch)"
        ),
    ),
    "pinned": (
        "RuntimeError: CUDA error: out of memory",
        "torch.AcceleratorError: CUDA error: out of memory",
        ALLOCATOR,
    ),
    "host": ("MemoryError", ALLOCATOR),
    "sleep mode": ("RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",),
    "runtime": (
        "RuntimeError: CUDART error: out of memory",
        "RuntimeError: Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'out of memory'",
    ),
    "segment": ("OSError: [Errno 28] No space left on device", "OSError: [Errno 14] Bad address"),
}


def _answer(pool: Pool, message: str, head: str, kept: int | None) -> Finding | None:
    lines = ["Traceback (most recent call last):"] if kept is None else []
    for file, function, code in pool["calls"][-kept if kept else 0 :]:
        lines += [f'  File "/opt/v/lib/python3.12/site-packages/{file}", line 210, in {function}', f"    {code}"]
    log = log_of_lines([head + line for line in (*lines, message)], "log")
    found = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings
    return found[0] if found else None


@pytest.mark.parametrize("kept", [None, 3, 2, 1])
@pytest.mark.parametrize("pool", POOLS, ids=lambda one: f"{one['release']}-{one['stage']}")
def test_the_pool_decides(pool: Pool, kept: int | None) -> None:
    if kept is not None and kept < pool["least"]:
        pytest.skip("so few calls do not tell which pool it was")
    for message in SAID[pool["message"]]:
        for where, head in HEADS.items():
            found = _answer(pool, message, head, kept)
            assert found is not None, (message, where)
            assert found.cause.value in pool["causes"], (message, where, found.code)
            assert found.changes, (message, where, found.code)
            assert found.changes[0].name in pool["changes"], (message, where, found.code)
