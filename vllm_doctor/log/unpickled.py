"""An exception that its parent could not build again: a worker raised it, and it was lost on the way.

multiprocessing sends an exception as its class and its arguments. A class that wants other arguments than it hands on
fails in the parent, which then tells of its own call alone: the class is all that is left of what failed.
"""

import msgspec

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.traceback import Link

# pynvml makes its classes in functions, whose names stand in what Python says of them (pynvml.py).
_OF_NVML = "_extractNVMLErrorsAsClasses"
_NVML = "NVMLError"


def as_raised(fault: Fault) -> Fault:
    """The fault, as the exception that was sent; as it is where none was."""
    crash = fault.crash
    if crash is None or not crash.root.frames or not says(crash.root.frames[-1].code, "code-of-unpickling"):
        return fault
    told = read("class-not-rebuilt", crash.root.message)
    if told is None:
        return fault
    name = next(value for value in told.values() if value)
    kind = _NVML if name == _OF_NVML else name
    links = tuple(Link(kind, "", (), k.at) if k is crash.root else k for k in crash.links)
    return msgspec.structs.replace(fault, crash=msgspec.structs.replace(crash, links=links))
