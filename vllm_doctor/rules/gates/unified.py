"""Whether GPU and host share one memory, by what names the card, else by a size that only such cards have."""

from vllm_doctor.knowledge.gpus import unified_by_name, unified_by_size
from vllm_doctor.rules.case import Case

# Where a text names such a card, or the board or the processor that it is a part of.
_NAMED = (
    "card-of-the-host",
    "board-of-the-host",
    "spark-of-the-host",
    "gb10-of-the-host",
    "orin-of-the-host",
    "thor-of-the-host",
    "apu-of-the-host",
    "apu-by-code",
)
# Why memory that is free for the kernel is not free for vLLM.
PAGES_OF_FILES = (
    "`free -g` lists files as buff/cache, often the weights of the last start; vLLM's check does not "
    "count this memory as free; `sync; echo 3 > /proc/sys/vm/drop_caches` frees the memory before a start"
)
# As vLLM names its platform, as torch its allocator.
_CUDA = frozenset({"cuda", "rocm", "hip"})


def shares_memory(case: Case) -> bool:
    """Has the card no memory of its own? False where nothing names it, and its size leaves it open."""
    name = _name(case)
    if _of_a_jetson(case):
        return True
    if name or case.total_gib is None:
        return unified_by_name(name)
    return _of_torchs_cuda(case) and unified_by_size(case.total_gib)


def _of_torchs_cuda(case: Case) -> bool:
    """Does the log say that the device is NVIDIA's or AMD's? Other makers' devices have sizes of their own."""
    run = case.run
    if run is None:
        return False
    if (hit := run.first("platform-name")) is not None:
        return hit.fields["platform"].lower() in _CUDA
    device = run.root.fields("free-below-wanted").get("device", "") if run.root is not None else ""
    return device.startswith("cuda") or (run.oom is not None and run.oom.backend.lower() in _CUDA)


def is_named(case: Case) -> bool:
    """Does anything name the card, or does the driver that only one kind of board has speak?"""
    return bool(_name(case)) or _of_a_jetson(case)


def _of_a_jetson(case: Case) -> bool:
    return case.run is not None and case.run.first("tegra-no-memory") is not None


def _name(case: Case) -> str:
    run = case.run
    return case.gpu_name or (hit.fields["card"] if run is not None and (hit := run.first(*_NAMED)) else "")
