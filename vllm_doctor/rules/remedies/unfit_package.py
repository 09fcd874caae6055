"""A package beside vLLM that was made for another vLLM or another torch: who imports, or whose file it is, tells.

Python names the importing file last above `cannot import name … from 'vllm…'`; the dynamic linker names the library
that lacks a symbol. A plugin's own code is cured by the plugin's release, and no new environment of vLLM does that.
"""

import shlex
from pathlib import PurePosixPath

from vllm_doctor.knowledge.distributions import distribution
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.traceback import Link, in_packages
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import environment, thing

_OWN = "vllm"
# Their libraries come with torch, each of one release of CUDA.
_OF_TORCH = frozenset({"torch", "nvidia", "torchvision", "torchaudio"})
_AITER = "aiter"
FITS_NO_TORCH = "vLLM's compiled operators do not fit the torch beside them (an undefined symbol)"


def importer(fault: Fault) -> str | None:
    """Who imports what this vLLM does not have: a package, or a program by its file; None where vLLM itself does."""
    frames = (
        [f for f in fault.crash.root.frames if not says(f.file, "call-of-no-file")] if fault.crash is not None else []
    )
    if not frames or says(frames[-1].file, "call-of-vllm"):
        return None
    return whose_file(frames[-1].file)


def whose_file(file: str) -> str:
    """Whose a file is: a package's, also in its own checkout, else a program's that is called as its file."""
    found = None if folder(file) else read("call-of-plugin", file) or read("call-of-driver", file)
    return found["package"] if found is not None else folder(file) or PurePosixPath(file).name


def stands_beside(fault: Fault) -> str | None:
    """The package whose own file failed, where it is neither vLLM's nor one that comes with torch."""
    told = importer(fault)
    package = told if told is not None and not is_file(told) else None
    return None if package is None or package in _OF_TORCH else distribution(package) or package


def reader_of_transformers(fault: Fault) -> str | None:
    """The package whose own code read what an object of transformers does not have; None where it was vLLM's."""
    reader = stands_beside(fault) if fault.ids == {"transformers-attribute"} else None
    return reader if reader not in {"transformers", "tokenizers"} else None


def beside_vllm(root: Link) -> str | None:
    """The plugin, trainer or platform among the calls: the innermost."""
    for frame in reversed(root.frames):
        found = (
            read("call-of-plugin", frame.file)
            or read("call-of-driver", frame.file)
            or read("call-of-adaptor", frame.file)
        )
        if found is not None and found["package"] != "vllm":
            return found["package"]
    return None


def is_file(name: str) -> bool:
    """Is a program called as its file?"""
    return PurePosixPath(name).suffix == ".py"


def folder(file: str) -> str:
    """The folder below site-packages in which a file lies; empty where it lies in none."""
    told = read("file-in-packages", in_packages(file))
    return told["package"] if told is not None else ""


def _top_level(file: str) -> str:
    """A compiled module that lies beside the packages: its name up to the first dot."""
    path = PurePosixPath(file)
    return path.name.partition(".")[0] if path.parent.name in {"site-packages", "dist-packages"} else ""


def of_this_vllm(package: str, place: str = "") -> Change:
    """The importer's release for this vLLM; of a file alone its own lines. `place` says where the name is."""
    if is_file(package):
        why = (
            f"it was written for another vLLM: {place or 'take its copy for this release, or write what this one has'}"
        )
        command = f"grep -n vllm {shlex.quote(package)}; pip show vllm"
        return thing(ChangeKind.OS, "program-code", Direction.CHANGE, why, to=package, command=command)
    why = (
        "its code takes from vLLM what this release does not have: install the release that its documentation lists "
        "for this vLLM, or the vLLM that it was written for"
    )
    return thing(ChangeKind.PACKAGE, package, Direction.CHANGE, why, command=f"pip show vllm {shlex.quote(package)}")


def unfit_symbol(case: Case, fault: Fault) -> tuple[str, tuple[Change | None, ...]] | None:
    """The title and the changes where a compiled file lacks a symbol; None where it is vLLM's own, or unknown."""
    file = fault.fields("symbol-undefined").get("file", "")
    package = folder(file) or _top_level(file)
    if package in _OF_TORCH:
        why = "a library of another CUDA is found before the one beside torch: without it torch finds its own"
        return "A library of another CUDA is loaded in place of torch's own", (
            environment("LD_LIBRARY_PATH", Direction.REMOVE, why, before=case.env("LD_LIBRARY_PATH")),
        )
    if package == _OWN or PurePosixPath(file).parent.name == _OWN:
        return _own_symbol(fault.fields("symbol-undefined").get("symbol", ""))
    if not package:
        return None
    why = "built for another torch than the one beside it: install its build for this torch, or build it again here"
    known = distribution(package)
    command = f"pip install --force-reinstall --no-deps {shlex.quote(known)}" if known is not None else "pip check"
    again = thing(ChangeKind.PACKAGE, known or package, Direction.REPAIR, why, command=command)
    plain = environment("VLLM_ROCM_USE_AITER", Direction.SET, "vLLM then runs its own kernels", to="0")
    return f"The compiled code of {known or package} does not fit the torch beside it", (
        again,
        plain if package == _AITER and case.has_env("VLLM_ROCM_USE_AITER") is not None else None,
    )


def _own_symbol(symbol: str) -> tuple[str, tuple[Change | None, ...]] | None:
    """The same of vLLM's own compiled file: it lacks a function of torch's, or one of its own that was not built in."""
    told = read("symbol-of-a-function", symbol)
    if told is None:
        return (FITS_NO_TORCH, ()) if says(symbol, "symbol-of-torch") else None
    name = told["name"][: int(told["length"])]
    why = "this build left the file out that has the function: build again from a clean folder, or install the wheel"
    return f"This build of vLLM lacks a function: {name}", (
        thing(ChangeKind.OS, "source-build", Direction.CHANGE, why, command="pip install vllm"),
    )
