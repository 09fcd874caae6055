"""An exception that its parent could not build again: a worker raised it, and it was lost on the way.

multiprocessing sends an exception as its class and its arguments. A class that wants other arguments than it hands on
fails in the parent, which then tells of its own call alone: the class is all that is left of what failed. V1's engine
answers its client with the text alone (v1/engine/core.py): the calls of the client, which raises it again, did not
fail.
"""

import msgspec

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.traceback import Link

# pynvml makes its classes in functions, whose names stand in what Python says of them (pynvml.py).
_OF_NVML = "_extractNVMLErrorsAsClasses"
_NVML = "NVMLError"
# What Python says by itself, by its id in the catalogue, and the class of exception that says so.
_OF_PYTHON = {
    "python-attribute": "AttributeError",
    "python-none-attribute": "AttributeError",
    "python-keyword": "TypeError",
    "python-argument-missing": "TypeError",
    "python-argument-twice": "TypeError",
    "python-argument-count": "TypeError",
}


def as_raised(fault: Fault) -> Fault:
    """The fault, as the exception that was sent; as it is where none was."""
    crash = fault.crash
    if crash is not None and not fault.hits and (answered := read("method-of-engine", crash.root.message)) is not None:
        said = answered.get("said", "")
        links = tuple(Link(kind_of(said), said, (), k.at) if k is crash.root else k for k in crash.links)
        return msgspec.structs.replace(fault, crash=msgspec.structs.replace(crash, links=links)) if said else fault
    if crash is None or not crash.root.frames or not says(crash.root.frames[-1].code, "code-of-unpickling"):
        return fault
    told = read("class-not-rebuilt", crash.root.message)
    if told is None:
        return fault
    name = next(value for value in told.values() if value)
    kind = _NVML if name == _OF_NVML else name
    links = tuple(Link(kind, "", (), k.at) if k is crash.root else k for k in crash.links)
    return msgspec.structs.replace(fault, crash=msgspec.structs.replace(crash, links=links))


def kind_of(error: str) -> str:
    """The class of an exception of which its text alone is left: of a KeyError that is its key, in quotes."""
    from vllm_doctor.knowledge.said_by import kind_that_says

    own = next((kind for shape, kind in _OF_PYTHON.items() if says(f"{kind}: {error}", shape)), None)
    return own or ("KeyError" if error[:1] == "'" else kind_that_says(error) or "RuntimeError")
