"""Of which kind the kernel is that failed, by the calls of its traceback.

CUDA tells of a fault at a later call, so the innermost call that vLLM itself made is evidence and no proof.
"""

from enum import StrEnum

from vllm_doctor.knowledge.functions import files_of
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, read, says
from vllm_doctor.log.traceback import Crash, in_packages
from vllm_doctor.rules.case import Case


class KernelKind(StrEnum):
    """Kinds of kernel that a setting chooses."""

    TUNING = "the search for the fastest kernel (Inductor)"
    AUTOTUNER = "FlashInfer's search for its fastest kernel"
    SAMPLER = "the sampler"
    ALL_REDUCE = "an all-reduce"
    EXPERTS = "the experts (MoE)"
    STATE = "the state of a linear attention or Mamba layer"
    DRAFT = "the draft model"
    ATTENTION = "attention"
    MATRIX = "a quantized matrix product"
    GRAPH = "a CUDA graph"
    COMPILED = "code that torch.compile made"


# In this order within one file name; the innermost call that is of any kind decides.
_FILES: tuple[tuple[KernelKind, str], ...] = (
    (KernelKind.TUNING, "call-tuning"),
    (KernelKind.AUTOTUNER, "call-autotuner"),
    (KernelKind.SAMPLER, "call-sampler"),
    (KernelKind.ALL_REDUCE, "call-all-reduce"),
    (KernelKind.EXPERTS, "call-experts"),
    (KernelKind.STATE, "call-state"),
    (KernelKind.DRAFT, "call-draft"),
    (KernelKind.ATTENTION, "call-attention"),
    (KernelKind.MATRIX, "call-matrix"),
    (KernelKind.GRAPH, "call-graph"),
    (KernelKind.COMPILED, "call-compiled"),
)

# torch's own call of an operator, and the one that asked for it.
_OPERATOR = 2


def kernel_kind(case: Case, fault: Fault) -> KernelKind | None:
    """Of which kind the innermost call is that can be told; None where no call is of any."""
    files = called(case, fault)
    found = next((k for file in reversed(files) for k, mark in _FILES if says(file, mark)), None)
    if found in {KernelKind.COMPILED, KernelKind.TUNING}:
        # Flex attention is compiled code by nature, and what is tried out runs inside of what was compiled.
        flex = any(says(file, "call-flex-attention") for file in files)
        tuning = any(says(file, "call-tuning") for file in files)
        return KernelKind.ATTENTION if flex else KernelKind.TUNING if tuning else found
    if found is None and any(says(name, "function-product") for name in fault.functions):
        return KernelKind.MATRIX  # the operator alone, whose layer's calls are cut off
    return found


def called(case: Case, fault: Fault) -> tuple[str, ...]:
    """The files of the fault's calls, outermost first; where it has none, those beside it."""
    files = _files(fault.crash) or _files(crash_beside(case, fault))
    return (*_headless(case, fault), *map(in_packages, files), *operators(fault), *_named(case, fault))


def _headless(case: Case, fault: Fault) -> tuple[str, ...]:
    """The file of the function that is called in the line above a traceback that begins in its midst: the line that
    named its caller was cut off, and its code stayed. None where several files of vLLM's have one of that name."""
    run, first = case.run, fault.crash.first if fault.crash is not None and fault.files else 0
    if run is None or first == 0:
        return ()
    above, line = run.lines[first - 1], run.lines[first]
    same = (above.process, above.pid, above.module) == (line.process, line.pid, line.module)
    code = read("call-in-code", above.text) if same and above.text[:2] == "  " else None
    files = files_of(code["what"]) if code is not None else ()
    return (f"/vllm/{files[0]}",) if len({file.rpartition("/")[2] for file in files}) == 1 else ()


def crash_beside(case: Case, fault: Fault) -> Crash | None:
    """The next traceback with calls, of a failure without any: a compiler speaks before its exception comes, and a
    report's title names one whose traceback below is cut off."""
    run = case.run
    if run is None:
        return None
    crashes = (*run.crashes, *(one.crash for one in run.cut_short if one.crash is not None))
    return next((c for c in crashes if c.first > fault.last and any(link.frames for link in c.links)), None)


def operators(fault: Fault) -> tuple[str, ...]:
    """The operators that the innermost calls name in their code, written as files of their own: what torch compiled
    calls them without any file of vLLM's between."""
    frames = fault.crash.root.frames[-_OPERATOR:] if fault.crash is not None else ()
    named = (said for frame in frames for said in each("operator-of-torch", frame.code))
    return tuple(f"/torch/ops/{said['space']}/{said['what']}" for said in named)


def _files(crash: Crash | None) -> tuple[str, ...]:
    """Its calls' files without those of a decorator, which only calls what failed."""
    frames = (frame for link in crash.links for frame in link.frames) if crash is not None else ()
    return tuple(frame.file for frame in frames if not says(f"{frame.file} {frame.function}", "call-that-wraps"))


def _named(case: Case, fault: Fault) -> tuple[str, ...]:
    """The sources of native code that the failure's own line names: where it was noticed, farther in than any call. Of
    calls that were cut away the last one's code may stand above it, with the extension whose operator it calls."""
    run, at = case.run, fault.crash.root.at if fault.crash is not None else fault.index
    if run is None or at is None or at >= len(run.lines):
        return ()
    sources = tuple(said["file"] for said in each("native-source", run.lines[at].text))
    bare = fault.crash is None or not any(link.frames for link in fault.crash.links)
    above = run.lines[at - 1].text if bare and at > 0 else ""
    return (*(said["file"] for said in each("operator-called", above)), *sources)


def log_lines(case: Case) -> list[str]:
    """The texts of the run's lines; none where there is no log."""
    return [line.text for line in case.run.lines] if case.run is not None else []
