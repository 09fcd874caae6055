#!/usr/bin/python3
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Compute on every GPU of this host and look at the result. One JSON object on standard output; standard library only.

usage: python3 -I gpu_proof.py driver [SECONDS]   a kernel through the driver's own library, which compiles it
       python -I gpu_proof.py torch [SECONDS]     the same sum through the torch of the Python that runs this

`outcome` is ok, failed, or not run; `why` says what stood in the way. The work is done in a child with a deadline,
because a broken driver answers by hanging: such a child is killed and not waited for.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from collections.abc import Iterable

SECONDS = 90  # torch alone needs 20 s from a cold disk; eight contexts another 10 s
COUNT = 1024  # numbers on each GPU: result[i] = 3 * i + 7

# Written for the oldest generation that vLLM ran on, so that every driver has to compile it: that is what fails first
# where the driver's library and its module are not of one release.
KERNEL = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry proof(.param .u64 numbers)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [numbers];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    mad.lo.u32 %r5, %r5, 3, 7;
    st.global.u32 [%rd4], %r5;
    ret;
}
\0"""


class ProofError(Exception):
    """A call did not do what it was asked for; the text says which and how."""


def asked(library: ctypes.CDLL, name: str, *words: object) -> None:
    """Call a function of the driver's library; ProofError with CUDA's own name for the error."""
    code = getattr(library, name)(*words)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        raise ProofError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")


def right(numbers: Iterable[int]) -> None:
    """Look at what came back."""
    wrong = [index for index, number in enumerate(numbers) if number != 3 * index + 7]
    if wrong:
        raise ProofError(f"{len(wrong)} of {COUNT} results are wrong, the first at {wrong[0]}")


def by_driver() -> dict[str, object]:
    """Launch the kernel on each GPU that CUDA shows."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ProofError(str(error)) from error
    asked(cuda, "cuInit", 0)
    count, version = ctypes.c_int(), ctypes.c_int()
    asked(cuda, "cuDeviceGetCount", ctypes.byref(count))
    asked(cuda, "cuDriverGetVersion", ctypes.byref(version))
    for index in range(count.value):
        try:
            launched(cuda, index)
        except ProofError as error:
            raise ProofError(f"GPU {index}: {error}") from error
    return {"gpus": count.value, "cuda": version.value}


def launched(cuda: ctypes.CDLL, index: int) -> None:
    """Send numbers to one GPU, let it compute, read them back."""
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    place, numbers = ctypes.c_uint64(), (ctypes.c_uint32 * COUNT)(*range(COUNT))
    asked(cuda, "cuDeviceGet", ctypes.byref(device), index)
    asked(cuda, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
    asked(cuda, "cuModuleLoadData", ctypes.byref(module), KERNEL)
    asked(cuda, "cuModuleGetFunction", ctypes.byref(function), module, b"proof")
    asked(cuda, "cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(ctypes.sizeof(numbers)))
    asked(cuda, "cuMemcpyHtoD_v2", place, numbers, ctypes.c_size_t(ctypes.sizeof(numbers)))
    words = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(place), ctypes.c_void_p))
    asked(cuda, "cuLaunchKernel", function, COUNT // 256, 1, 1, 256, 1, 1, 0, None, words, None)
    asked(cuda, "cuCtxSynchronize")
    asked(cuda, "cuMemcpyDtoH_v2", numbers, place, ctypes.c_size_t(ctypes.sizeof(numbers)))
    asked(cuda, "cuCtxDestroy_v2", context)
    right(numbers)


def by_torch() -> dict[str, object]:
    """Compute the same on each GPU that torch shows."""
    import torch

    if not torch.cuda.is_available():
        raise ProofError("torch.cuda.is_available() is false")
    for index in range(torch.cuda.device_count()):
        numbers = torch.arange(COUNT, dtype=torch.int32, device=f"cuda:{index}") * 3 + 7
        torch.cuda.synchronize(index)
        right(numbers.tolist())
    return {"gpus": torch.cuda.device_count(), "torch": torch.__version__, "cuda": torch.version.cuda}


def child(way: str, pipe: int) -> None:
    """Do the work and write the answer; never returns."""
    try:
        answer = {"outcome": "ok", **{"driver": by_driver, "torch": by_torch}[way]()}
    except ModuleNotFoundError as error:
        answer = {"outcome": "not run", "why": f"this Python has no {error.name}"}
    except Exception as error:  # noqa: BLE001  whatever torch throws is the finding
        answer = {
            "outcome": "failed",
            "why": f"{type(error).__name__ + ': ' if not isinstance(error, ProofError) else ''}{error}",
        }
    os.write(pipe, json.dumps(answer).encode())
    os._exit(0)


def proof(way: str, seconds: float = SECONDS) -> dict[str, object]:
    """The child's answer, or why there is none."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(way, writing)
    os.close(writing)
    if not select.select([reading], [], [], seconds)[0]:
        os.kill(pid, signal.SIGKILL)
        return {"outcome": "failed", "why": f"no answer within {seconds:g} s: the driver hangs"}
    told = os.read(reading, 65536)
    if told:
        return dict(json.loads(told))
    status = os.waitpid(pid, 0)[1]
    return {
        "outcome": "failed",
        "why": f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended without an answer",
    }


if __name__ == "__main__":
    print(json.dumps(proof(sys.argv[1], *map(float, sys.argv[2:]))))
