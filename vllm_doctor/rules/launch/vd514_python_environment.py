"""VD514: a module is missing, of another version, or built for another one."""

import shlex
from pathlib import PurePosixPath
from typing import NamedTuple

from vllm_doctor.knowledge import api
from vllm_doctor.knowledge.distributions import distribution
from vllm_doctor.knowledge.system_libraries import system_library
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, read, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.cuda_libraries import CUDA_LIBRARIES
from vllm_doctor.rules.gates.fallback import on_transformers_code
from vllm_doctor.rules.gates.machine_kind import machine_kind
from vllm_doctor.rules.gates.named_fault import exception_line, severity, shown
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.gates.refusals_with_rules import HUB
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.build_tools import (
    COMPILERS,
    TOOLS,
    UNFIT,
    built_again,
    compiler_line,
    missing_tool,
    refused_source,
    refused_torch,
    told_of_build,
    toolkit_folder,
    uncompiled,
)
from vllm_doctor.rules.remedies.missing_module import (
    MissingModule,
    another,
    hides_its_import,
    left_as_none,
    missing_module,
    not_made_for,
)
from vllm_doctor.rules.remedies.named_library import named_library
from vllm_doctor.rules.remedies.other_release import newer
from vllm_doctor.rules.remedies.python_environment import (
    CAUSES,
    IN_IMAGE,
    MAY_RUN,
    ON_LINUX,
    fresh_environment,
    install_before,
    loaded_first,
    newer_system,
    program_of_unit,
    whole_again,
    xformers_of_cuda,
)
from vllm_doctor.rules.remedies.refusal import packages, unbuilt
from vllm_doctor.rules.remedies.runs_behind import without_its_feature
from vllm_doctor.rules.remedies.unfit_package import FITS_NO_TORCH, reader_of_transformers, unfit_symbol
from vllm_doctor.rules.say import finding, set_flag, thing, upgrade

_IDS = (
    "module-missing",
    "import-name",
    "module-attribute",
    "symbol-undefined",
    "binary-incompatible",
    "numpy-module-api",
    "ops-missing",
    "transformers-attribute",
    "libstdcxx",
    "glibc-old",
    "static-tls",
    "operator-missing",
    "operator-backend",
    "compiler-missing",
    "compiler-not-there",
    "compiler-unfound",
    "headers-missing",
    "headers-unfound",
    "nvcc-missing",
    "nvcc-unfound",
    "nvcc-not-there",
    "ninja-missing",
    "program-missing",
    "program-denied",
    "program-not-there",
    "nvcc-arch",
    "nvcc-option",
    "toolkit-headers",
    "compiler-too-new",
    "cuda-headers-missing",
    "toolkit-mismatch",
    "build-failed",
    "build-step-failed",
    "extra-missing",
    "cpu-instructions-missing",
    "cmake-failed",
    "build-failed-command",
    "compiler-command",
    "extension-build-failed",
    "xformers-no-cuda",
    "compiler-crashed",
    "ops-name-missing",
)


# What every language model's configuration has: one that lacks it keeps it in a part of its own (text_config).
_OF_EVERY_MODEL = frozenset(
    {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
    | {"intermediate_size", "max_position_embeddings", "rms_norm_eps", "head_dim", "hidden_act"}
)
_NESTED = "the configuration keeps it in a part (text_config), which this release of vLLM does not read for this model"
# What `packages` reads out of the message itself.
_NAMES_PACKAGES = frozenset({"extra-missing"})
_PLAIN_CACHE = "kernels for a KV cache of the model's own type are others than those for FP8"
_PROGRAM = frozenset({"program-missing", "program-not-there"})
_NOT_THERE = _PROGRAM | {"module-missing"}
# No new environment makes the distribution's C library newer, or its fixed room for libraries larger.
_OF_THE_SYSTEM = frozenset({"glibc-old", "static-tls"})


_REFUTE = "the same start fails alike in a new environment, with this release and what it installs alone"
# What a module of the wrong version raises while it is being imported.
_AT_IMPORT = frozenset(
    {"TypeError", "AttributeError", "NameError", "SyntaxError", "ImportError", "ModuleNotFoundError"}
)


def _torn_package(case: Case, fault: Fault) -> Finding | None:
    """A file of an installed package is not there."""
    if (torn := _torn(fault)) is None or fault.ids & EXHAUSTED:
        return None
    return finding(
        RULE,
        title=f"The installed package {torn} is incomplete: a file is missing",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(exception_line(case, fault),),
        changes=(whole_again(torn), fresh_environment(case)),
        refute="the file exists, and a user other than the service's can read it",
    )


def _not_installed(case: Case, fault: Fault) -> Finding | None:
    """An installer says above that it failed: what is missing is what it left out."""
    failed = None
    if fault.ids & _NOT_THERE and not fault.ids & EXHAUSTED:
        failed = install_before(case, fault)
    elif fault.ids & frozenset(HUB):
        failed = install_before(case, fault, within=CAUSES)
    if failed is None:
        return None
    return finding(
        RULE,
        title=failed.title,
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(failed.line, *shown(case, fault, *_IDS)),
        changes=failed.changes,
        refute=_REFUTE,
    )


def _not_there(case: Case, fault: Fault) -> Finding | None:
    """A library is not where somebody said that it is."""
    change = named_library(case, fault)
    if change is None:
        return None
    name = PurePosixPath(fault.fields("library-not-there")["file"]).name
    return finding(
        RULE,
        title=f"The library {name} is not where it is looked for",
        severity=severity(case, fault),
        evidence=shown(case, fault, "library-not-there"),
        changes=(change,),
        refute="the process that fails can read the file under that very path",
    )


def _of_files(case: Case, fault: Fault) -> Finding | None:
    """A file, or all that an installation brings, is not there."""
    return _torn_package(case, fault) or _not_installed(case, fault) or _not_there(case, fault)


def _of_reader(case: Case, fault: Fault) -> Finding | None:
    """Another package read what an object of transformers does not have."""
    reader = reader_of_transformers(fault)
    if reader is None:
        return None
    return finding(
        RULE,
        title=f"{reader} reads what the installed tokenizer does not have"
        if says(fault.fields("transformers-attribute")["kind"], "class-of-a-tokenizer")
        else f"{reader} and the installed transformers do not fit each other",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(another(case, reader), another(case, "transformers")),
        refute=_REFUTE,
    )


def _of_vllms_class(case: Case, fault: Fault) -> Finding | None:
    """The class that lacks it is vLLM's own: no release of transformers brings it."""
    lacks = fault.fields("transformers-attribute")
    if not lacks or not says(lacks["kind"], "class-of-a-tokenizer") or not api.is_class(lacks["kind"]):
        return None
    why = "vLLM's own class lacks what its other code reads of it: a defect of the release; a newer one may have it"
    plain = "the model's own tokenizer in place of this class, where its files have one (tokenizer.json)"
    return finding(
        RULE,
        title=f"vLLM's own {lacks['kind']} has no {lacks['name']}",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(newer(case, fault, why), set_flag(case, "tokenizer-mode", "hf", Direction.CHANGE, plain)),
        refute="the same start works with another release of transformers beside this vLLM",
    )


def _of_feature(case: Case, fault: Fault) -> Finding | None:
    """What the launch asks for reads a field that this kind of model has not: another transformers brings none."""
    lacks = fault.fields("transformers-attribute")
    off = without_its_feature(case, fault, calls=1) if lacks.get("kind", "").endswith("Config") else ()
    if not off:
        return None
    reader = f"--{off[0].name}" if off[0].kind is ChangeKind.FLAG else off[0].name
    return finding(
        RULE,
        title=f"{reader} reads {lacks['name']}, which {lacks['kind']} does not have",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(*off, another(case, "transformers")),
        refute="the same start without it fails alike",
    )


def _of_toolkit(case: Case, fault: Fault) -> Finding | None:
    """CUDA_HOME names a folder in which a part of the toolkit is not."""
    home = toolkit_folder(case, fault)
    if home is None:
        return None
    return finding(
        RULE,
        title="CUDA_HOME is not the folder of one CUDA toolkit",
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(home, *uncompiled(case, fault)),
        refute=_REFUTE,
    )


def _of_source(case: Case, fault: Fault) -> Finding | None:
    """A library's own source does not compile for this launch."""
    refused = refused_source(case, fault)
    if refused is None:
        return None
    return finding(
        RULE,
        title=f"A kernel of {refused} does not compile for this launch",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(*compiler_line(case, fault), *shown(case, fault, *_IDS)),
        changes=(
            *uncompiled(case, fault),
            set_flag(case, "kv-cache-dtype", "auto", Direction.CHANGE, _PLAIN_CACHE)
            if str(case.effective("kv-cache-dtype")).startswith("fp8")
            else None,
            upgrade(case, f"a newer release brings a newer {refused}"),
        ),
        refute="the same kernel compiles with another CUDA toolkit (nvcc) on this host",
    )


def _of_system_library(case: Case, fault: Fault, library: str | None) -> Finding | None:
    """A library of the system, which no package of Python brings."""
    brought = system_library(library) if library is not None and fault.ids == {"cudart-missing"} else None
    if library is None or brought is None:
        return None
    return finding(
        RULE,
        title=f"The system library {library} is not there",
        severity=severity(case, fault),
        evidence=shown(case, fault, "cudart-missing"),
        changes=(thing(ChangeKind.OS, "system-library", Direction.ADD, brought.why, command=brought.typed),),
        refute=f"`ldconfig -p | grep {shlex.quote(library)}` finds it in the environment that starts vLLM",
    )


def judge(case: Case) -> Outcome:
    """Did an import fail?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = case.root
    if fault is None:
        return _warned(case) or NotHere("the log shows no failure that ended the run")
    fault, missing = _in_truth(case, fault)
    lacks_build = unbuilt(case, fault) if not fault.ids - frozenset(_IDS) else None
    known = (fault.ids & frozenset((*_IDS, "cudart-missing"))) - _NAMES_PACKAGES
    if (of_install := _of_files(case, fault)) is not None:
        return of_install
    guarded = hides_its_import(fault) or left_as_none(fault) is not None
    if fault.ids & EXHAUSTED or not (known or missing or lacks_build or guarded or _while_importing(fault)):
        return NotHere("no import failed")
    library = fault.fields("cudart-missing").get("library")
    if "libcuda-assert" in fault.ids or (library is not None and library.startswith(CUDA_LIBRARIES)):
        return Clear("a library of CUDA or of the driver is missing, not a package")
    if (of_code := _of_reader(case, fault) or _of_vllms_class(case, fault)) is not None:
        return of_code
    if on_transformers_code(case, fault):
        return Clear("the architecture is not in this release: it ran on Transformers' code")
    if (of_feature := _of_feature(case, fault)) is not None:
        return of_feature
    if (unmade := _of_toolkit(case, fault) or _of_source(case, fault)) is not None:
        return unmade
    if lacks_build is not None:
        return _not_built(case, fault, lacks_build)
    if (of_system := _of_system_library(case, fault, library)) is not None:
        return of_system
    read = _read(case, fault, missing, alone=not known)
    if read.module is None and fault.fields("module-attribute").get("module", "vllm").partition(".")[0] != "vllm":
        return NotHere("a module lacks a name, and nobody knows whose module it is")
    # Which of the two is too old, or whether the model is newer than both, the attribute does not tell.
    fits_nothing = read.symbol is not None and read.symbol[0] != FITS_NO_TORCH
    told_in_part = fault.ids & {"transformers-attribute", "import-name", "module-attribute"}
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=(
            *compiler_line(case, fault),
            *(shown(case, fault, *_IDS) if fault.ids & frozenset(_IDS) else (exception_line(case, fault),)),
        ),
        title=_title_of(case, fault, read),
        confidence=Confidence.LIKELY
        if guarded or read.headers or fits_nothing or told_in_part
        else Confidence.CONFIRMED,
        changes=_changes(case, fault, read),
        refute=_installed(read.lacks)
        if read.lacks is not None
        else read.module.refute
        if read.module is not None
        else _REFUTE,
    )


def _not_built(case: Case, fault: Fault, package: str) -> Finding:
    """A package that nobody builds for this machine."""
    return finding(
        RULE,
        title=f"{package} is not made for {machine_kind(case)}",
        severity=severity(case, fault),
        evidence=(exception_line(case, fault),),
        changes=(not_made_for(package, machine_kind(case)),),
        refute=f"`pip download --no-deps {package}` finds a build of it on this machine",
    )


class _Read(NamedTuple):
    """What the failed import tells: the package that it names (`missing`, and `lacks` where nothing else is known), a
    module, a symbol of a library, the tool or the words for what does not fit to compile with, torch's own headers."""

    missing: tuple[Change, ...]
    lacks: Change | None
    module: MissingModule | None
    symbol: tuple[str, tuple[Change | None, ...]] | None
    tool: str | None
    unfit: str | None
    headers: bool


def _read(case: Case, fault: Fault, missing: tuple[Change, ...], *, alone: bool) -> _Read:
    """Each is asked where those before it told nothing; `alone`: the failure is known by the package's name only."""
    lacks = missing[0] if missing and alone else None
    module = missing_module(case, fault) if lacks is None else None
    symbol = unfit_symbol(case, fault) if lacks is None and module is None else None
    tool = next((TOOLS[h.id] for h in told_of_build(case, fault) if h.id in TOOLS), None)
    headers = refused_torch(case, fault)
    unfit = next((words for wanted, words in UNFIT.items() if wanted in fault.ids), None)
    unfit = None if tool is not None else UNFIT["toolkit-mismatch"] if headers else unfit
    return _Read(missing, lacks, module, symbol, tool, unfit, headers)


def _title_of(case: Case, fault: Fault, read: _Read) -> str:
    if read.lacks is not None:
        return _lacking(read.lacks)
    if read.module is not None:
        return read.module.title
    if read.symbol is not None:
        return read.symbol[0]
    if "ops-missing" in fault.ids and _unbound(case) is not None:
        return FITS_NO_TORCH
    return _title(fault, read.tool, read.unfit)


def _changes(case: Case, fault: Fault, read: _Read) -> tuple[Change | None, ...]:
    """What is missing by name, then what does not fit, last the whole environment."""
    missing, module, unfit = read.missing, read.module, read.unfit
    attribute = fault.fields("transformers-attribute").get("name")
    return (
        # A build for Windows that got as far as a check of vLLM's own lacks that package alone.
        ON_LINUX if not missing and any(says(file, "call-of-windows") for file in fault.files) else None,
        *missing,
        *(module.changes if module is not None else ()),
        *(read.symbol[1] if read.symbol is not None else ()),
        missing_tool(case, read.tool) if read.tool else None,
        thing(ChangeKind.OS, "build-tools", Direction.CHANGE, unfit, command=COMPILERS) if unfit else None,
        built_again(case, fault),
        xformers_of_cuda(fault),
        newer_system(fault),
        loaded_first(fault),
        upgrade(case, _NESTED) if attribute in _OF_EVERY_MODEL else None,
        *(uncompiled(case, fault) if unfit or read.tool else ()),
        another(case, "transformers") if "transformers-attribute" in fault.ids else None,
        _whole(case, fault, read),
    )


def _whole(case: Case, fault: Fault, read: _Read) -> Change | None:
    """The environment made anew, or the way to the program in it; None where the name of what is missing says it."""
    named = (read.missing and not fault.ids) or (read.module is not None and read.module.changes)
    if named or fault.ids & _OF_THE_SYSTEM:
        return None
    if fault.fields("program-missing").get("container"):
        return IN_IMAGE
    if "program-denied" in fault.ids:
        return MAY_RUN
    return program_of_unit(case) if fault.ids & _PROGRAM else fresh_environment(case)


def _in_truth(case: Case, fault: Fault) -> tuple[Fault, tuple[Change, ...]]:
    """The failure and the package that it asks for. A library that asks for one name of a package in a `try` calls it
    not installed where it lacks that name alone: the import that failed is then what counts."""
    missing = packages(case, fault) if not fault.ids - frozenset(_IDS) else ()
    named = next((change.name.partition("[")[0] for change in missing), None)
    imports = (f for f in case.run.faults if "import-name" in f.ids) if case.run is not None and named else ()
    truly = next((f for f in imports if distribution(f.fields("import-name").get("module", "")) == named), None)
    return (fault, missing) if truly is None else (truly, ())


def _installed(change: Change) -> str:
    return f"`pip install --dry-run {shlex.quote(str(change.after or change.name))}` there has nothing to install"


def _lacking(change: Change) -> str:
    """The title where vLLM itself names the package that it needs."""
    if change.direction is Direction.UPGRADE:
        return f"The package {change.name} is missing or too old"
    return f"The package {change.name} is not installed"


def _unbound(case: Case) -> Hit | None:
    """vLLM's warning that its compiled operators miss a symbol: it goes on until something needs them."""
    hit = case.run.first("ops-import") if case.run is not None else None
    return hit if hit is not None and says(hit.fields["why"], "symbol-undefined") else None


def _warned(case: Case) -> Finding | None:
    """vLLM's own operators could not be loaded, and the log does not get past that: what needs them fails next."""
    run, hit = case.run, _unbound(case)
    if run is None or hit is None:
        return None
    if any(stage is not StartupPhase.CONFIG for _, stage in run.miles):
        return None
    return finding(
        RULE,
        title=FITS_NO_TORCH,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hit.index),),
        changes=(fresh_environment(case),),
        refute=_REFUTE,
    )


def _title(fault: Fault, tool: str | None, unfit: str | None) -> str:
    if unfit and fault.ids & {"cmake-failed", "cpu-instructions-missing"}:
        return f"CMake cannot prepare the build of vLLM: it needs {unfit}"
    if "ops-missing" in fault.ids:
        return "vLLM's compiled operators were not loaded"
    if "build-step-failed" in fault.ids:
        return "A compiler failed while vLLM was built from its source"
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
    if "static-tls" in fault.ids:
        return "A library was loaded too late to find room for its thread-local data"
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


def _while_importing(fault: Fault) -> bool:
    """Did a module raise while its top level ran?"""
    if fault.crash is None or not fault.crash.root.frames:
        return False
    root = fault.crash.root
    inner = root.frames[-1]
    return root.kind in _AT_IMPORT and inner.function == "<module>" and says(inner.file, "call-site-packages")


RULE = rule("VD514", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.UNIT, Signal.LAUNCH}), judge=judge)
