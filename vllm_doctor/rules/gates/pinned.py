"""Whether the call that found no memory asked for memory of the host that the GPU reads directly."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says

# V0's function that makes the cache of the GPU and of the host.
_CACHE = frozenset({"_allocate_kv_cache", "allocate_cpu_cache"})
# Frames in which CUDA's "out of memory" means the host's memory.
_PINNING = frozenset(
    {"pin_memory", "cudaHostRegister", "cudaHostAlloc", "_allocate_cpu_kv_cache", "allocate_cpu_cache"}
)


def pins(fault: Fault) -> bool:
    """Did one of the innermost calls pin memory of the host?"""
    return names_pinning(fault) or of_no_allocator(fault)


def names_pinning(fault: Fault) -> bool:
    """Does a call, or the answer that only pinning gets, say so itself?"""
    last = fault.crash.root.frames[-3:] if fault.crash is not None else ()
    named = any(f.function in _PINNING or says(f.code, "code-pins") or says(f.file, "call-pins") for f in last)
    return named or invalid(fault)


def of_no_allocator(fault: Fault) -> bool:
    """torch's allocator raises a class of its own where a GPU has no room (c10/cuda/CUDACachingAllocator.cpp); CUDA's
    bare word in the line of V0 that fills either cache is of the call that pins the host's."""
    last = fault.crash.root.frames[-1:] if fault.crash is not None else ()
    bare = "cuda-oom" in fault.ids and fault.crash is not None and fault.crash.root.name == "RuntimeError"
    return bare and any(f.function in _CACHE and says(f.file, "call-of-cache") for f in last)


def invalid(fault: Fault) -> bool:
    """More than can be pinned is an invalid argument to some drivers. What V0 fills when it makes the cache is either
    the GPU's, which has no such answer, or the host's."""
    if fault.crash is None or not says(fault.crash.root.message, "invalid-argument"):
        return False
    return any(f.function in _CACHE or says(f.code, "code-pins") for f in fault.crash.root.frames[-3:])
