"""What every rule about a failed start asks first."""

from collections.abc import Sequence

import msgspec

from vllm_doctor.knowledge.hub import billions
from vllm_doctor.launch.pasted import calls_engine, made_by_calls
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import first, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.log.traceback import packages_folder
from vllm_doctor.records.finding import Arithmetic
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.unified import shares_memory
from vllm_doctor.rules.outcome import NotHere, Unseen
from vllm_doctor.rules.say import gib

# A name rounds its count, and leaves out encoders and embeddings; a draft model may lie beside it.
_FAR, _EXTRAS_GIB = 1.3, 4.0
# As --dtype and the engine's configuration write four bytes.
FOUR_BYTES = frozenset({"float", "float32", "torch.float32"})
# torch prints hundredths of a GiB, and the driver gives pages of 2 MiB: figures that are nearer than this are the same.
_SAME = 16 << 20
# What is taken before the KV cache stands: afterwards a smaller pool helps, whoever refuses.
_BEFORE_KV = frozenset(
    {StartupPhase.DEVICE, StartupPhase.WEIGHTS, StartupPhase.PROFILE, StartupPhase.PROFILE_ENCODER, StartupPhase.CONFIG}
)
# Lines of XLA's list of what a program needs.
_LISTED = 14
# Innermost calls: below a program's own ones are torch's.
_INNER = 6
# Messages by which the memory of the GPU says that it is exhausted.
EXHAUSTED = frozenset(
    {
        "torch-oom",
        "cuda-oom",
        "cublas-alloc",
        "cublas-create",
        "nccl-oom",
        "nccl-calloc",
        "triton-oom",
        "cumem-oom",
        "oom-nvml",
        "device-oom",
        "device-oom-class",
        "device-oom-async",
        "device-oom-code",
        "device-oom-resources",
        "device-oom-name",
        "device-oom-words",
        "device-oom-retyped",
        "device-oom-capitals",
        "device-oom-bare",
        "device-oom-own-words",
        "device-oom-metal",
        "device-oom-metal-buffer",
        "device-oom-blocks",
        "device-oom-tt",
        "device-oom-tt-check",
        "device-oom-xla-total",
        "device-oom-ascend-driver",
        "device-oom-allocation",
        "device-oom-xla",
        "device-oom-neuron",
        "device-oom-library",
        "device-oom-habana",
        "device-oom-call",
        "device-oom-ascend",
        "device-oom-ascend-code",
        "device-oom-ascend-torch",
        "device-oom-program",
        "device-oom-neuron-alloc",
        "device-oom-dxg",
        "device-oom-neuron-code",
        "device-oom-neuron-status",
        "told-memory",
    }
)


class Oom(msgspec.Struct, frozen=True):
    """The first fault is exhausted GPU memory; `torch` are its figures where torch wrote it."""

    run: AnalysedRun
    fault: Fault
    torch: TorchOom | None

    @property
    def unplaced(self) -> bool:
        """Does nothing tell in which step it ran out?"""
        return self.fault.startup_phase is StartupPhase.CONFIG


def exhausted(case: Case, *stages: StartupPhase) -> Oom | NotHere | Unseen:
    """The fault, if it is exhausted GPU memory in one of these stages."""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = run.root
    if root is None:
        return NotHere("the log shows no failure that ended the run")
    if not root.ids & EXHAUSTED:
        return NotHere("the first failure is not an allocation of GPU memory")
    if stages and root.startup_phase not in stages:
        return NotHere(f"memory ran out in the phase {root.startup_phase.value}")
    if stages and trains(root):
        return NotHere("code that computes gradients asked for it, which no step of a server does")
    if stages and own_pass(run, root):
        return NotHere("the program that made the engine asked for it in its own code")
    if stages and root.startup_phase in _BEFORE_KV and refused_by_far(run.oom):
        return NotHere("the driver refused memory that it calls free: neither weights nor a pass were too large")
    return Oom(run, root, run.oom)


def trains(fault: Fault) -> bool:
    """Did a training step ask for the memory: are its calls in the traceback, and vLLM's in no frame?"""
    theirs = any(says(file, "call-of-training") for file in fault.files)
    return theirs and not any(says(file, "call-of-vllm") for file in fault.files)


def own_pass(run: AnalysedRun, fault: Fault) -> bool:
    """Did a program that makes its engine itself ask for the memory in its own code: are its files in the traceback,
    and vLLM's, a plugin's or a driver's in no frame?"""
    files = fault.files
    if not files or not any(_of_program(file) for file in files[-_INNER:]):
        return False
    if any(says(f, "call-of-vllm", "call-of-plugin", "call-of-diffusion", "call-of-driver") for f in files):
        return False
    return fault.crash is not None and calls_engine([line.text for line in run.lines])


def of_a_program(files: Sequence[str]) -> bool:
    """Are the calls of a failure all of somebody's own code and of Python's library?"""
    return bool(files) and not any(packages_folder(file) or says(file, "call-of-vllm") for file in files)


def _of_program(file: str) -> bool:
    """Is this a file of somebody's own, which no package manager installed and Python does not bring?"""
    return "/" in file and not packages_folder(file) and not says(file, "call-of-standard-library")


def refused_though_free(torch: TorchOom | None) -> bool:
    """Did an allocation fail that is smaller than what the driver calls free? It counts memory as free that it does not
    give this process: of a host that shares it, above a limit of pages, or of another machine's share."""
    return torch is not None and torch.free is not None and torch.free - torch.asked > _SAME and torch.asked > 0


def refused_by_far(torch: TorchOom | None) -> bool:
    """Was so much more free than was asked for that no race, rounding or piece explains it?"""
    if torch is None or torch.free is None or torch.total is None or not refused_though_free(torch):
        return False
    return torch.free - torch.asked > max(GIB, torch.total // 20)


def refused_at_first(torch: TorchOom | None) -> bool:
    """Did Intel's driver, of which older releases of torch print no free memory, refuse the very first tensor, which
    the card would hold many times, or at least once?"""
    if torch is None or torch.backend != "XPU" or torch.free is not None or torch.total is None:
        return False
    return torch.allocated == 0 and torch.asked < torch.total


def sums(torch: TorchOom | None) -> tuple[Arithmetic, ...]:
    """torch's own figures as arithmetic, in GiB."""
    if torch is None:
        return ()
    told = "XLA's message" if torch.backend == "TPU" else "torch's message"
    if torch.program and torch.total is not None:
        return (gib("missing", torch.asked / GIB, f"needed − {torch.total / GIB:.2f}", told),)
    found = [gib("asked for", torch.asked / GIB, "one allocation", told)]
    if torch.free is not None:
        found.append(gib("free", torch.free / GIB, "on the whole GPU", told))
        if torch.asked > torch.free:
            found.append(gib("missing", (torch.asked - torch.free) / GIB, "asked for − free", told))
    if torch.allocated is not None:
        found.append(gib("in use by torch", torch.allocated / GIB, "allocated by PyTorch", "torch's message"))
    if torch.unused is not None:
        found.append(gib("held unused by torch", torch.unused / GIB, "reserved but unallocated", "torch's message"))
    return tuple(found)


def tenants(case: Case, torch: TorchOom | None) -> int | None:
    """Bytes that others hold, where giving them back would have served the request; else None.

    A tenth of the card or 2 GiB is more than contexts of the same service take. Where the GPU has the host's memory,
    what no process of the GPU holds is the host's own: its programs, and the pages of files.
    """
    if torch is None or torch.total is None or torch.free is None or (not torch.others and shares_memory(case)):
        return None
    held = torch.held_by_others
    # CANN and its communication hold a few GiB of an NPU, of which its wording names no process.
    least = torch.total // 10 if torch.backend == "NPU" and torch.mine is None else min(2 * GIB, torch.total // 10)
    if held is None or held < least or refused_though_free(torch):
        return None
    return held if torch.free + held >= torch.asked else None


def beyond_weights(case: Case, oom: Oom) -> tuple[float, float] | None:
    """GiB that torch held while weights were loaded, and the most that this model's weights can be (as its name counts
    them): where the first is far more, something else of this process is in it. None where not, and of a server: its
    engine is made in a process that does nothing else."""
    if oom.run.first("server-version", "banner-version", "args-namespace", "args-non-default") is not None:
        return None
    held = oom.torch.allocated if oom.torch is not None else None
    size = _largest(case, oom) if held is not None else None
    if held is None or size is None or oom.fault.startup_phase is not StartupPhase.WEIGHTS:
        return None
    most = size * 1e9 * most_bytes(case, oom) / GIB
    return (held / GIB, most) if held / GIB > _FAR * most + _EXTRAS_GIB else None


def has_words(oom: Oom, row: str) -> bool:
    """Has a failure without calls these words beside it, of somebody who tells of it?"""
    return not oom.fault.files and says("\n".join(oom.run.told(oom.fault.index)[0]), row)


def told_whose(oom: Oom) -> bool:
    """Does torch's message, as far as it was pasted, say that this process holds the memory itself? Without it nobody
    can say that it is not another process that fills the card."""
    return oom.torch is not None and oom.torch.tells_whose


def _largest(case: Case, oom: Oom) -> float | None:
    """Billions of parameters of the model that was loaded: of several that the program makes engines of, the largest;
    None where a name does not say it."""
    named = [billions(model) for model in engines_made(oom) or (case.model or "",)]
    sizes = [size for size in named if size is not None]
    return max(sizes) if sizes and len(sizes) == len(named) else None


def engines_made(oom: Oom) -> tuple[str, ...]:
    """The models of which the program that stands beside the log makes an engine each; empty where it makes one."""
    made = made_by_calls([line.text for line in oom.run.lines])
    return tuple(launch.model for launch in made if launch.model is not None) if len(made) > 1 else ()


def most_bytes(case: Case, oom: Oom) -> int:
    """Bytes that a weight takes at the most: vLLM makes 16 bits of a checkpoint in 32 unless it is told to keep them,
    and somebody may have told it so where neither the launch nor the engine's own line is seen."""
    told = case.effective("dtype")
    seen = case.launched or engines_made(oom) or oom.run.first("engine-configured") is not None
    return 4 if told in FOUR_BYTES or (told is None and not seen) else 2


def held_by_arguments(oom: Oom) -> bool:
    """XLA lists what a program needs: what it is handed over, the weights above all, takes the memory by itself."""
    sizes, total = program_sizes(oom), oom.torch.total if oom.torch is not None else None
    return sizes is not None and total is not None and sizes[0] > total / GIB


def program_sizes(oom: Oom) -> tuple[float, float] | None:
    """GiB that a program of XLA is handed over, and that it takes beside; None where XLA does not list them."""
    near = [line.text for line in oom.run.lines[oom.fault.index : oom.fault.last + _LISTED]]
    used, handed = first(near, "xla-used"), first(near, "xla-arguments")
    if used is None or handed is None:
        return None
    return float(handed["size"]), max(0.0, float(used["used"]) - float(handed["size"]))
