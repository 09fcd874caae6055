"""What compiles kernels while the server starts: the tool that is missing or does not fit, and how to do without it."""

from collections.abc import Sequence

from vllm_doctor.knowledge.compat import table
from vllm_doctor.knowledge.distributions import distribution
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, read, says
from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies.attention_backend import other_attention
from vllm_doctor.rules.remedies.kernel_kind import KernelKind, kernel_kind
from vllm_doctor.rules.say import environment, thing

# What compiles kernels while the server starts is no Python package.
TOOLS = {
    "compiler-missing": "a C compiler (gcc, or CC set)",
    "compiler-not-there": "a C and C++ compiler (gcc, g++, or CC and CXX set)",
    "compiler-unfound": "a C and C++ compiler (gcc, g++, or CC and CXX set)",
    "headers-missing": "the headers of this Python (python3-dev)",
    "headers-unfound": "the headers of this Python (python3-dev)",
    "nvcc-not-there": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "nvcc-missing": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "nvcc-unfound": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "ninja-missing": "ninja",
}
# A toolkit that is there, but does not fit what it is to compile; the last is what the build itself says of it.
UNFIT = {
    "nvcc-arch": "a newer CUDA toolkit: nvcc is older than this GPU",
    "nvcc-option": "a newer CUDA toolkit: nvcc does not know an option that this code is compiled with",
    "toolkit-headers": "nvcc and headers of one release: CUDA_HOME and the include path name different toolkits",
    "compiler-too-new": "an older gcc (CC, CXX, NVCC_CCBIN): this toolkit does not support a gcc as new as this one",
    "cuda-headers-missing": "the headers of the CUDA toolkit (cuda-toolkit, or its -dev packages), of nvcc's release",
    "toolkit-mismatch": "the CUDA toolkit that torch was built with (CUDA_HOME)",
    "cpu-instructions-missing": "a processor whose instructions vLLM's CPU backend is written for, and Linux on x86",
    "cmake-failed": "the tool that CMake names below; or install the wheel of this release in place of a build",
    "build-failed": "the tools that compile kernels at start; the compiler's error stands below",
    "build-failed-command": "the tools that compile kernels at start; the compiler's error stands above",
    "compiler-command": "a compiler that works here (gcc, python3-dev, libcuda.so); its own error stands above",
    "extension-build-failed": "the tools that compile kernels at start; the same message holds the compiler's error",
    "compiler-crashed": "a newer CUDA toolkit, whose compiler does not crash on this code (or fewer jobs: MAX_JOBS)",
}

# Lines below CMake's own in which the reason stands.
_REASON = 12


# Jobs at which a build seldom runs out of memory: nvcc takes several GiB for each.
_FEW = 4


def built_again(case: Case, fault: Fault) -> Change | None:
    """A build of many files at once is most often ended by the kernel, for its memory; the variable is setup.py's. An
    error in the code or in a header is met by every number of jobs."""
    if "build-step-failed" not in fault.ids:
        return None
    said = compiler_line(case, fault)
    if said and not says(said[0].excerpt, "compiler-ended"):
        why = (
            "the compiler's line names what this source and this host's toolkit lack of each other; a wheel is compiled"
        )
        return thing(ChangeKind.OS, "source-build", Direction.CHANGE, why, command="pip install vllm")
    jobs = fault.fields("build-step-failed").get("jobs")
    few = min(_FEW, max(1, int(jobs) // 2)) if jobs else _FEW
    at_once = f" ({jobs} ran at once)" if jobs else ""
    why = f"each job takes several GiB of memory{at_once}; where the lines above name an error in the code, that counts"
    command = f"MAX_JOBS={few} pip install -e .   # or take the release's wheel: pip install vllm"
    return thing(ChangeKind.OS, "build-jobs", Direction.LOWER, why, to=str(few), command=command)


# Programs that pass on what a compiler wrote, below their own line or above it; and lines in which that is looked for.
_PASS_ON = frozenset(
    {"build-failed", "build-failed-command", "build-step-failed", "compiler-command", "extension-build-failed"}
)
_FAR = 300


def compiler_line(case: Case, fault: Fault) -> tuple[Evidence, ...]:
    """The compiler's own line, where what failed is only the program that called it."""
    if case.run is None or not fault.ids & _PASS_ON:
        return ()
    lines, own = case.run.lines, {hit.index for hit in fault.hits}
    below = range(fault.index, min(fault.last + _FAR, len(lines)))
    near = (*below, *reversed(range(max(0, fault.index - _FAR), fault.index)))
    at = next((i for i in near if i not in own and says(lines[i].text, "compiler-says-error")), None)
    return (case.line(at),) if at is not None else ()


def refused_torch(case: Case, fault: Fault) -> bool:
    """Does the compiler stop in torch's own headers? They ask for the CUDA that torch was built with."""
    return any(says(line.excerpt, "compiler-refuses-torch") for line in compiler_line(case, fault))


def refused_source(case: Case, fault: Fault) -> str | None:
    """The package whose own code a compiler refused: the tools are there, and another kernel is what helps."""
    lines = compiler_line(case, fault)
    told = read("compiler-refuses-source", lines[0].excerpt) if lines else None
    return (distribution(told["package"]) or told["package"]) if told is not None else None


def told_of_build(case: Case, fault: Fault) -> Sequence[Hit]:
    """The fault's messages; CMake says where it failed first, and why in the lines below."""
    if case.run is None or "cmake-failed" not in fault.ids:
        return fault.hits
    return (*fault.hits, *(h for h in case.run.hits if fault.index < h.index <= fault.index + _REASON))


def toolkit_folder(case: Case, fault: Fault) -> Change | None:
    """A path of CUDA_HOME that holds more than one folder, or begins with what separates two."""
    fields = fault.fields("nvcc-not-there")
    path = fields.get("path") or fields.get("shell") or ""
    if ":" not in path:
        return None
    folder = next((part for part in path.split(":") if part), "").removesuffix("/bin/nvcc")
    why = "name a single folder, without a colon: the compiler call appends /bin/nvcc"
    return environment("CUDA_HOME", Direction.CHANGE, why, to=folder or None, before=case.env("CUDA_HOME"))


def uncompiled(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What FlashInfer was to compile has a substitute that comes compiled: torch's sampler, another attention."""
    if not any(says(file, "call-flashinfer") for file in fault.files):
        return (_sampler(case, fault),)
    named = any(says(told.excerpt, "call-attention") for told in compiler_line(case, fault))
    if named or kernel_kind(case, fault) is KernelKind.ATTENTION:
        why = "this backend's kernels come compiled, and FlashInfer's are compiled at the start"
        return (other_attention(case, fault, why, not_triton=True),)
    return (_sampler(case, fault),)


def _sampler(case: Case, fault: Fault) -> Change | None:
    """Where it was the sampler that was to be compiled: torch's own needs no compiler."""
    if not any(says(said, "names-sampling") for said in (text(case, fault), *fault.files)):
        return None
    name = "VLLM_USE_FLASHINFER_SAMPLER"
    why = "uses torch's sampler instead of FlashInfer's, which needs no compiler"
    return environment(name, Direction.SET, why, to="0") if case.has_env(name) is not None else None


COMPILERS = "nvcc --version; gcc --version; nvidia-smi --query-gpu=name,compute_cap --format=csv"
_COMMANDS = {
    "compiler-missing": "apt-get install -y gcc   # dnf install -y gcc",
    "compiler-not-there": "apt-get install -y build-essential   # dnf install -y gcc-c++",
    "compiler-unfound": "apt-get install -y build-essential   # dnf install -y gcc-c++",
    "headers-missing": "apt-get install -y python3-dev   # dnf install -y python3-devel",
    "headers-unfound": "apt-get install -y python3-dev   # dnf install -y python3-devel; of the venv's own release",
    "ninja-missing": "apt-get install -y ninja-build   # dnf install -y ninja-build",
}


def missing_tool(case: Case, tool: str) -> Change:
    """A package of the distribution; the CUDA toolkit of the wheel's own release, which a role installs."""
    command = next((_COMMANDS[i] for i, what in TOOLS.items() if what == tool and i in _COMMANDS), None)
    if command is not None:
        return thing(ChangeKind.OS, "build-tools", Direction.ADD, tool, command=command)
    wheel = table().wheel(str(case.version)) if case.version is not None else None
    fit = [t for t in table().toolkits() if wheel is not None and t.startswith(f"{wheel.cuda}.")]
    to = fit[-1] if fit else None
    why = f"{tool}; of the CUDA of this wheel, {wheel.cuda}" if wheel is not None else tool
    command = None if to else "python -c 'import torch; print(torch.version.cuda)'   # that release of the toolkit"
    return thing(
        ChangeKind.OS, "build-tools", Direction.ADD, why, to=to, inventory="cuda_toolkit_version", command=command
    )
