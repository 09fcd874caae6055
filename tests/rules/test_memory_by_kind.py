"""That memory ran out is known by the kind of the exception, with or without figures, on every backend."""

import pytest

from vllm_doctor.log.read.assemble import cut
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Phase
from vllm_doctor.rules.engine import judged

DEVICE = [
    "torch.OutOfMemoryError: CUDA out of memory.",
    "RuntimeError: CUDA out of memory.",
    "RuntimeError: CUDA driver error: out of memory",
    "CUDA driver error: out of memory",
    "Allocation on device",
    "torch.OutOfMemoryError: Allocation on device",
    "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
    "torch.AcceleratorError: CUDA error: out of memory",
    "torch.OutOfMemoryError: HIP out of memory.",
    "RuntimeError: HIP error: out of memory",
    "RuntimeError: Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Attempting to reserve 6.20G at the bottom of memory.",
    "RuntimeError: Failed to allocate 3GB (usage: tensors) on ND0:NC 1, current utilization: total 14.1GB",
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "RuntimeError: CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
    "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::734003200 (700)MB",
    "CUDA OUT OF MEMORY",
    "RuntimeError: Cuda Out of Memory",
    "cuda out of memory. tried to allocate 2.00 gib (gpu 0; 23.69 gib total capacity; 21.01 gib already allocated)",
    "torch.cuda.OutOfMemoryError",
    "RuntimeError: GPU ran out of memory",
    "ValueError: Insufficient GPU memory for the requested buffer",
    "ValueError: [metal::malloc] Attempting to allocate 300 bytes which is greater than the maximum buffer size of 200",
    "npu_driver.cc:2001 [driver interface] halMemAlloc failed: device_id=0, size=2147483648, type=2, drvRetCode=6",
    "ERROR  NRT:nrt_infodump  LOADER: Could not load the model status=4 message=Allocation Failure",
]
HOST = [
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: "
        "you tried to allocate 7340032000 bytes."
    ),
    "MemoryError: std::bad_alloc",
    "RuntimeError: cudaHostAlloc failed: out of memory",
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    "OSError: The paging file is too small for this operation to complete. (os error 1455)",
    "RuntimeError: level_zero backend failed with error: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)",
    "Memory limit of 32768 MiB exceeded with 33102 MiB used. Consider increasing the memory limit",
    "OutOfMemoryError: Container killed due to memory usage",
    "2026-04-02T10:00:00.123 container oom 3f1c0a5d (image=vllm/vllm-openai:v0.11.0, name=vllm)",
    "slurmstepd: error: Exceeded job memory limit at some point.",
    "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
    "=>> PBS: job killed: mem 67108864kb exceeded limit 62914560kb",
    "Out of memory: Killed process 4410 (cicc) total-vm:6612340kB, anon-rss:5892110kB, file-rss:0kB, shmem-rss:0kB",
    "Message: The node was low on resource: memory. Threshold quantity: 100Mi, available: 58740Ki.",
]
NEITHER = [
    "RuntimeError: Ran out of memory in memory space vmem is no such case: RESOURCE_EXHAUSTED: vmem. Used 20.00M",
    "triton.runtime.errors.OutOfResources: out of resource: tensor memory, Required: 640, Hardware limit: 512.",
    "E0203 10:00:00.1 12 rdma_context.cpp:180] Failed to register memory 0x7f0: Cannot allocate memory [12]",
    "Memory access fault by GPU node-2 (Agent handle: 0x5581) on address 0x7f10. Reason: Page not present.",
]


def _phase(*lines: str) -> Phase | None:
    log = cut([LogLine(number, text) for number, text in enumerate(lines, 1)], "log", 0, ())
    return judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).phase


@pytest.mark.parametrize("message", DEVICE)
def test_memory_of_the_device(message: str) -> None:
    """Neuron places what a step takes while it loads the compiled model."""
    loading = "NRT:" in message or "on ND0:NC" in message
    assert _phase(message) is (Phase.STARTUP_WEIGHTS if loading else Phase.RUNTIME_PREFILL_BURST)


@pytest.mark.parametrize("message", DEVICE)
def test_the_step_is_told_by_the_calls_where_no_figure_is_printed(message: str) -> None:
    frame = '  File "/opt/v/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 210, in {}'
    begun = "Traceback (most recent call last):"
    assert _phase(begun, frame.format("load_model"), message) is Phase.STARTUP_WEIGHTS
    assert _phase(begun, frame.format("determine_available_memory"), message) is Phase.STARTUP_PROFILE
    assert _phase(begun, frame.format("capture_model"), message) is Phase.STARTUP_CUDAGRAPH


@pytest.mark.parametrize("message", HOST)
def test_memory_of_the_host(message: str) -> None:
    assert _phase(message) is Phase.HOST_RAM


@pytest.mark.parametrize("message", NEITHER)
def test_what_only_has_the_word_is_no_shortage(message: str) -> None:
    assert _phase(message) in {None, Phase.NOT_MEMORY}
