"""Whose device it is that the server computes on, and the maker's tool that lists who holds its memory."""

from vllm_doctor.knowledge.gpus import DeviceTool, device_tool
from vllm_doctor.log.match import read, says
from vllm_doctor.log.report_title import report_title
from vllm_doctor.rules.case import Case

_ALLOCATORS = {"hip": "rocm"}
# The platforms by the devices that vLLM names; `cuda` is the name of AMD's, too.
_OWN_NAMES = frozenset({"xpu", "npu", "hpu"})
# Platforms whose every step is a compiled program.
_COMPILED = frozenset({"tpu", "neuron"})
# Platforms of other packages, by the names of their entry points.
_PLUGINS = {"ascend": "npu", "hpu": "hpu", "metal": "mps", "neuron": "neuron", "optimum_neuron": "neuron", "tt": "tt"}
# What people call a platform.
_WORDS = {"gaudi": "hpu"}
# Lines that only the worker of one platform prints.
_LINES = {"ascend-room": "npu", "tt-cache": "tt"}
_DEVICES = {
    "device-oom-xla": "tpu",
    "device-oom-program": "tpu",
    "device-oom-neuron": "neuron",
    "device-oom-neuron-alloc": "neuron",
    "device-oom-neuron-code": "neuron",
    "device-oom-neuron-status": "neuron",
    "device-oom-habana": "hpu",
    "device-oom-metal": "mps",
    "device-oom-metal-buffer": "mps",
    "metal-no-kv": "mps",
    "device-oom-tt": "tt",
    "device-oom-tt-check": "tt",
    "device-oom-xla-total": "tpu",
    "device-oom-ascend": "npu",
    "device-oom-ascend-code": "npu",
    "device-oom-ascend-torch": "npu",
}


def platform(case: Case) -> str | None:
    """vLLM's platform as vLLM says it, else as the allocator that failed names itself, or as a report's title does."""
    return _said(case) or _titled(case)


def _titled(case: Case) -> str | None:
    title = report_title(case.run.lines) if case.run is not None else None
    told = read("platform-in-title", title.words) if title is not None else None
    named = next(iter((told or {}).values()), "")
    word = named.lower().rstrip("s")
    return _WORDS.get(word, word) or None


def _said(case: Case) -> str | None:
    run = case.run
    if run is None:
        return None
    if (hit := run.first("platform-name")) is not None:
        return hit.fields["platform"].lower()
    if (hit := run.first("platform-plugin")) is not None:
        return _PLUGINS.get(hit.fields["plugin"].lower(), hit.fields["plugin"].lower())
    if run.oom is not None:
        return _ALLOCATORS.get(run.oom.backend.lower(), run.oom.backend.lower())
    if (line := next((of for one, of in _LINES.items() if run.first(one) is not None), None)) is not None:
        return line
    if run.root is None:
        return None
    device = run.root.fields("free-below-wanted").get("device", "").partition(":")[0]
    if device in _OWN_NAMES:
        return device
    ids = run.root.ids
    return next((of for message, of in _DEVICES.items() if message in ids), None)


def maker_tool(case: Case) -> DeviceTool:
    """What the maker of this device gives for it; NVIDIA's tool where nothing names another platform."""
    return device_tool(platform(case))


def compiles_programs(case: Case) -> bool:
    """Does this platform capture no graphs? What its runner calls so compiles a program for each size of a step."""
    files = case.root.files if case.root is not None else ()
    return platform(case) in _COMPILED or any(says(file, "call-of-tpu") for file in files)


def modes_told(case: Case) -> bool:
    """Do the GPUs say in which compute mode they are? Then VD710 answers for it."""
    return any(gpu.compute_mode is not None for gpu in case.gpus or ())
