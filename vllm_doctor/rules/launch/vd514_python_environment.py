"""VD514: a module is missing, of another version, or built for another one."""

import shlex
from pathlib import PurePosixPath

from vllm_doctor.knowledge.compat import table
from vllm_doctor.knowledge.distributions import listed
from vllm_doctor.knowledge.system_libraries import system_library
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.cuda_libraries import CUDA_LIBRARIES
from vllm_doctor.rules.gates.fallback import on_transformers_code
from vllm_doctor.rules.gates.named_fault import exception_line, severity, shown, text
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.kernel import KernelKind, kernel_kind, other_attention
from vllm_doctor.rules.remedies.missing_module import fitting, missing_module
from vllm_doctor.rules.remedies.refusal import packages
from vllm_doctor.rules.remedies.unfit_package import unfit_symbol
from vllm_doctor.rules.say import environment, finding, thing

_IDS = (
    "module-missing",
    "import-name",
    "symbol-undefined",
    "binary-incompatible",
    "ops-missing",
    "transformers-attribute",
    "libstdcxx",
    "glibc-old",
    "operator-missing",
    "operator-backend",
    "compiler-missing",
    "headers-missing",
    "nvcc-missing",
    "nvcc-unfound",
    "nvcc-not-there",
    "ninja-missing",
    "program-missing",
    "program-denied",
    "program-not-there",
    "nvcc-arch",
    "toolkit-headers",
    "compiler-too-new",
    "cuda-headers-missing",
    "toolkit-mismatch",
    "build-failed",
    "build-failed-command",
    "compiler-command",
    "extension-build-failed",
    "xformers-no-cuda",
    "compiler-crashed",
    "ops-name-missing",
)
# What compiles kernels while the server starts is no Python package.
_TOOLS = {
    "compiler-missing": "a C compiler (gcc, or CC set)",
    "headers-missing": "the headers of this Python (python3-dev)",
    "nvcc-not-there": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "nvcc-missing": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "nvcc-unfound": "the CUDA toolkit (nvcc, CUDA_HOME)",
    "ninja-missing": "ninja",
}
# A toolkit that is there, but does not fit what it is to compile; the last is what the build itself says of it.
_UNFIT = {
    "nvcc-arch": "a newer CUDA toolkit: nvcc is older than this GPU",
    "toolkit-headers": "nvcc and headers of one release: CUDA_HOME and the include path name different toolkits",
    "compiler-too-new": "an older gcc (CC, CXX, NVCC_CCBIN): this toolkit does not support a gcc as new as this one",
    "cuda-headers-missing": "the headers of the CUDA toolkit (cuda-toolkit, or its -dev packages), of nvcc's release",
    "toolkit-mismatch": "the CUDA toolkit that torch was built with (CUDA_HOME)",
    "build-failed": "the tools that compile kernels at start; the compiler's error stands below",
    "build-failed-command": "the tools that compile kernels at start; the compiler's error stands above",
    "compiler-command": "a compiler that works here (gcc, python3-dev, libcuda.so); its own error stands above",
    "extension-build-failed": "the tools that compile kernels at start; the same message holds the compiler's error",
    "compiler-crashed": "a newer CUDA toolkit, whose compiler does not crash on this code (or fewer jobs: MAX_JOBS)",
}
_PROGRAM = frozenset({"program-missing", "program-not-there"})
_ACTIVATE = thing(
    ChangeKind.PACKAGE,
    "python-env",
    Direction.REPAIR,
    ("no folder of PATH contains vLLM: activate its environment, or use the full path of the program"),
    command="ls -d /opt/*/bin/vllm ~/*/bin/vllm 2>/dev/null; systemctl cat UNIT | grep ExecStart",
)
_IN_IMAGE = thing(
    ChangeKind.OS,
    "container-command",
    Direction.CHANGE,
    "the image has no such program in its PATH: give the program's full path there, or "
    "python3 -m vllm.entrypoints.openai.api_server, or an image that has it, as vllm/vllm-openai",
    command="docker run --rm --entrypoint sh IMAGE -c 'command -v vllm python3; ls -d /opt/*/bin/vllm'",
)
_MAY_RUN = thing(
    ChangeKind.OS,
    "service-user",
    Direction.CHANGE,
    "run it as a user who may enter each folder of its path and run the file: in a pod the image's own user "
    "(securityContext.runAsUser, on OpenShift a constraint that allows it), on a host the owner of the environment",
    command="id; namei -l /opt/venv/bin/vllm   # every folder needs x for this user",
)
_ON_LINUX = thing(
    ChangeKind.OS,
    "operating-system",
    Direction.CHANGE,
    "vLLM is built for Linux: its compiled operators do not exist for Windows itself",
    command="wsl --install # then run the server inside WSL; or use a Linux host",
)
_REFUTE = "`python -m vllm.collect_env` works in the environment of the unit"
# What a module of the wrong version raises while it is being imported.
_AT_IMPORT = frozenset(
    {"TypeError", "AttributeError", "NameError", "SyntaxError", "ImportError", "ModuleNotFoundError"}
)


def judge(case: Case) -> Outcome:
    """Did an import fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = case.root
    if fault is None:
        return _warned(case) or NotHere("the log shows no failure that ended the run")
    missing = packages(case, fault) if not fault.ids - frozenset(_IDS) else ()
    known = fault.ids & frozenset((*_IDS, "cudart-missing"))
    if (torn := _torn(fault)) is not None and not fault.ids & EXHAUSTED:
        return finding(
            RULE,
            title=f"The installed package {torn} is incomplete: a file is missing",
            severity=severity(case, fault),
            confidence=Confidence.LIKELY,
            evidence=(exception_line(case, fault),),
            changes=(_whole_again(torn), _repair(case)),
            refute="the file is there, and another user than the service's reads it",
        )
    if fault.ids & EXHAUSTED or not (known or missing or _while_importing(fault)):
        return NotHere("no import failed")
    library = fault.fields("cudart-missing").get("library")
    if "libcuda-assert" in fault.ids or (library is not None and library.startswith(CUDA_LIBRARIES)):
        return Clear("a library of CUDA or of the driver is missing, not a package")
    fits = "transformers-attribute" in fault.ids
    if on_transformers_code(case, fault):
        return Clear("the architecture is not in this release: it ran on Transformers' code")
    if (home := _home(case, fault)) is not None:
        return finding(
            RULE,
            title="CUDA_HOME is not the folder of one CUDA toolkit",
            severity=severity(case, fault),
            evidence=shown(case, fault, *_IDS),
            changes=(home, *_uncompiled(case, fault)),
            refute=_REFUTE,
        )
    tool = next((_TOOLS[h.id] for h in fault.hits if h.id in _TOOLS), None)
    lacks = missing[0] if missing and not known else None
    module = missing_module(case, fault) if lacks is None else None
    symbol = unfit_symbol(case, fault) if lacks is None and module is None else None
    unfit = next((words for wanted, words in _UNFIT.items() if wanted in fault.ids), None) if tool is None else None
    brought = system_library(library) if library is not None and fault.ids == {"cudart-missing"} else None
    if library is not None and brought is not None:
        return finding(
            RULE,
            title=f"The system library {library} is not there",
            severity=severity(case, fault),
            evidence=shown(case, fault, "cudart-missing"),
            changes=(thing(ChangeKind.OS, "system-library", Direction.ADD, brought.why, command=brought.typed),),
            refute=f"`ldconfig -p | grep {shlex.quote(library)}` finds it in the environment of the unit",
        )
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS) if fault.ids & frozenset(_IDS) else (exception_line(case, fault),),
        title=_lacking(lacks)
        if lacks is not None
        else module.title
        if module is not None
        else symbol[0]
        if symbol is not None
        else _title(fault, tool, unfit),
        # Which of the two is too old, or whether the model is newer than both, the attribute does not tell.
        confidence=Confidence.LIKELY
        if fits or symbol is not None or "import-name" in fault.ids
        else Confidence.CONFIRMED,
        changes=(
            _ON_LINUX if any(says(file, "call-of-windows") for file in fault.files) else None,
            *missing,
            *(module.changes if module is not None else ()),
            *(symbol[1] if symbol is not None else ()),
            _tools(case, tool) if tool else None,
            thing(ChangeKind.OS, "build-tools", Direction.CHANGE, unfit, command=_COMPILERS) if unfit else None,
            _newer_system(fault),
            *(_uncompiled(case, fault) if unfit or tool else ()),
            thing(
                ChangeKind.PACKAGE,
                "transformers",
                Direction.CHANGE,
                "this vLLM release was built with these versions",
                to=fitting(case, "transformers"),
                command=f"pip install '{fitting(case, 'transformers')}'"
                if fitting(case, "transformers")
                else "pip show -v vllm",
            )
            if fits
            else None,
            None
            if (missing and not fault.ids) or (module is not None and module.changes) or "glibc-old" in fault.ids
            else _IN_IMAGE
            if fault.fields("program-missing").get("container")
            else _MAY_RUN
            if "program-denied" in fault.ids
            else _program(case)
            if fault.ids & _PROGRAM
            else _repair(case),
        ),
        refute=_installed(lacks) if lacks is not None else module.refute if module is not None else _REFUTE,
    )


def _installed(change: Change) -> str:
    return f"`pip install --dry-run {shlex.quote(str(change.after or change.name))}` there has nothing to install"


def _lacking(change: Change) -> str:
    """The title where vLLM itself names the package that it needs."""
    if change.direction is Direction.UPGRADE:
        return f"The package {change.name} is missing or too old"
    return f"The package {change.name} is not installed"


def _program(case: Case) -> Change:
    """Of a unit on its host the program's own path, part by part; of a log alone where vLLM may be."""
    unit, launch = case.unit, case.launch
    program = launch.argv[0] if launch is not None and launch.argv else ""
    if unit is None or not program.startswith("/"):
        return _ACTIVATE
    above = PurePosixPath(program).parents
    return thing(
        ChangeKind.PACKAGE,
        "program",
        Direction.REPAIR,
        f"the unit starts {program}: the last lines show the missing part of that path, and the names beside it",
        command=f"namei -l {shlex.quote(program)}; ls -l {shlex.quote(str(above[min(2, len(above) - 1)]))}",
    )


def _warned(case: Case) -> Finding | None:
    """vLLM's own operators could not be loaded, and the log does not get past that: what needs them fails next."""
    run = case.run
    hit = run.first("ops-import") if run is not None else None
    if run is None or hit is None or "undefined symbol" not in hit.fields["why"]:
        return None
    if any(stage is not StartupPhase.CONFIG for _, stage in run.miles):
        return None
    return finding(
        RULE,
        title="vLLM's compiled operators do not fit the torch beside them (an undefined symbol)",
        confidence=Confidence.LIKELY,
        evidence=(case.line(hit.index),),
        changes=(_repair(case),),
        refute=_REFUTE,
    )


def _home(case: Case, fault: Fault) -> Change | None:
    """A path of CUDA_HOME that holds more than one folder, or begins with what separates two."""
    fields = fault.fields("nvcc-not-there")
    path = fields.get("path") or fields.get("shell") or ""
    if ":" not in path:
        return None
    folder = next((part for part in path.split(":") if part), "").removesuffix("/bin/nvcc")
    why = "name a single folder, without a colon: the compiler call appends /bin/nvcc"
    return environment("CUDA_HOME", Direction.CHANGE, why, to=folder or None, before=case.env("CUDA_HOME"))


def _uncompiled(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What FlashInfer was to compile has a substitute that comes compiled: torch's sampler, another attention."""
    if not any(says(file, "call-flashinfer") for file in fault.files):
        return (_sampler(case, fault),)
    if kernel_kind(case, fault) is KernelKind.ATTENTION:
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


_COMPILERS = "nvcc --version; gcc --version; nvidia-smi --query-gpu=name,compute_cap --format=csv"
_COMMANDS = {
    "compiler-missing": "apt-get install -y gcc   # dnf install -y gcc",
    "headers-missing": "apt-get install -y python3-dev   # dnf install -y python3-devel",
    "ninja-missing": "apt-get install -y ninja-build   # dnf install -y ninja-build",
}


def _tools(case: Case, tool: str) -> Change:
    """A package of the distribution; the CUDA toolkit of the wheel's own release, which a role installs."""
    command = next((_COMMANDS[i] for i, what in _TOOLS.items() if what == tool and i in _COMMANDS), None)
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


def _repair(case: Case) -> Change:
    return thing(
        ChangeKind.PACKAGE,
        "python-env",
        Direction.REPAIR,
        "install the release from its lock file into a new environment, and add nothing by hand",
        to=f"vllm=={case.version}" if case.version is not None else None,
        command=_fresh(case),
    )


def _fresh(case: Case) -> str:
    wanted = f"vllm=={case.version}" if case.version is not None else "vllm==VERSION"
    return f"python3 -m venv /opt/vllm-new && /opt/vllm-new/bin/pip install {wanted}"


def _newer_system(fault: Fault) -> Change | None:
    """Nothing that is installed beside it makes a distribution's C library newer."""
    needed = fault.fields("glibc-old").get("version")
    if needed is None:
        return None
    why = f"this build runs where glibc is {needed} or newer: a newer distribution, or an image, which has its own"
    return thing(ChangeKind.OS, "distribution", Direction.UPGRADE, why, command="ldd --version | head -1")


def _title(fault: Fault, tool: str | None, unfit: str | None) -> str:
    if unfit:
        return f"vLLM cannot compile kernels: it needs {unfit}"
    if "program-denied" in fault.ids:
        return "The program may not be run by this user"
    if fault.ids & _PROGRAM:
        return "The program vllm was not found: no environment that contains it is active"
    if "xformers-no-cuda" in fault.ids:
        return "xFormers was built without CUDA: it has no attention for any GPU"
    if tool:
        return f"A tool to compile kernels is missing: {tool}"
    if "glibc-old" in fault.ids:
        return f"The system's C library is too old: GLIBC_{fault.fields('glibc-old')['version']} is needed"
    operator = fault.fields("operator-backend")
    if operator:
        library = operator["operator"].partition("::")[0]
        whose = "vLLM" if library.startswith("_") else library  # vLLM's own libraries of operators: _C, _moe_C
        return f"{whose} was built without code for {operator['backend']}"
    lacks = fault.fields("transformers-attribute")
    if lacks:
        return f"transformers does not fit this vLLM: {lacks['kind']} has no {lacks['name']}"
    return RULE.title


def _torn(fault: Fault) -> str | None:
    """The folder below site-packages in which a file is not there that the package itself opens."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind != "FileNotFoundError":
        return None
    told = read("file-of-a-package", root.message)
    if told is None or told["package"] == "nvidia":
        return None
    opened = any(says(f.file, "call-site-packages") and f"/{told['package']}/" in f.file for f in root.frames)
    return told["package"] if opened else None


def _whole_again(package: str) -> Change:
    why = (
        "the wheel was unpacked incompletely, or published without the file: install the package again, or "
        "another release of it"
    )
    known = listed(package)
    command = f"pip install --force-reinstall --no-deps {shlex.quote(package)}" if known is not None else "pip check"
    return thing(ChangeKind.PACKAGE, package, Direction.REPAIR, why, command=command)


def _while_importing(fault: Fault) -> bool:
    """Did a module raise while its top level ran?"""
    if fault.crash is None or not fault.crash.root.frames:
        return False
    root = fault.crash.root
    inner = root.frames[-1]
    return root.kind in _AT_IMPORT and inner.function == "<module>" and says(inner.file, "call-site-packages")


RULE = rule("VD514", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.UNIT, Signal.LAUNCH}), judge=judge)
