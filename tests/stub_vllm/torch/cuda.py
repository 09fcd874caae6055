"""The cards, by libcuda.so.1, which is loaded when somebody asks."""

import ctypes
from contextlib import contextmanager


def asked(code):
    """RuntimeError, as torch raises it, for a call that failed."""
    if code:
        raise RuntimeError(f"CUDA error: {code}")


def library():
    return ctypes.CDLL("libcuda.so.1")


def is_available():
    return device_count() > 0


def device_count():
    count = ctypes.c_int()
    try:
        return 0 if library().cuInit(0) or library().cuDeviceGetCount(ctypes.byref(count)) else count.value
    except OSError:
        return 0


@contextmanager
def current(index):
    """The library with a context on this card."""
    cuda, context = library(), ctypes.c_void_p()
    asked(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, index))
    yield cuda
    asked(cuda.cuCtxDestroy_v2(context))


def synchronize(index):
    with current(index) as cuda:
        asked(cuda.cuCtxSynchronize())
