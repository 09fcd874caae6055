"""A library that vLLM calls, whose own code failed: another release of it than vLLM was built with is ruled out first.

Which releases vLLM was built with stands in its wheel's metadata. torch and what is compiled for it (Triton, NVIDIA's
packages) are left out: they come with the wheel's own torch, and VD514 tells where they do not fit.
"""

import shlex

from vllm_doctor.knowledge import distributions
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.sentence_call import told_by_words
from vllm_doctor.log.traceback import Frame, in_packages
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.missing_module import fitting
from vllm_doctor.rules.say import thing

_OF_THE_WHEEL = ("torch", "triton", "nvidia", "vllm", "xformers", "ray")
# How an object says that it lacks a name: who asked for it failed, not the library that holds the object.
ACCESS = frozenset({"__getattr__", "__getattribute__", "__getitem__", "__missing__"})
# What Python says by itself, where a function or an object of another release is not as its caller knows it.
_OF_ANOTHER_RELEASE = frozenset({"AttributeError", "TypeError"})


def innermost(fault: Fault) -> Frame | None:
    """The call that failed, without the ways in which objects answer."""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return next((f for f in reversed(frames) if f.function not in ACCESS), frames[-1] if frames else None)


def library(fault: Fault) -> str | None:
    """The distribution whose own code failed, where vLLM called it; None of one that nobody has read the name of."""
    name = called_library(fault)
    return name if name is not None and not name.startswith(_OF_THE_WHEEL) else None


def called_library(fault: Fault) -> str | None:
    """The same, torch and what comes with it included."""
    inner = innermost(fault)
    if inner is None or fault.crash is None:
        return None
    told = read("file-in-packages", in_packages(inner.file))
    root = fault.crash.root
    by_vllm = told_by_words(root) or any(says(frame.file, "call-of-vllm") for frame in root.frames)
    name = distributions.distribution(told["package"]) if told is not None and by_vllm else None
    return name if name != "vllm" else None


def raised_by_hand(fault: Fault) -> bool:
    """Does the failing line itself raise or assert? What it says was foreseen."""
    inner = innermost(fault)
    return inner is not None and inner.by_hand


def called_otherwise(fault: Fault) -> str | None:
    """The library whose function vLLM's own failing line calls by the library's name, with arguments that it does not
    take: another release of it is installed than this vLLM calls."""
    inner, root = innermost(fault), fault.crash.root if fault.crash is not None else None
    if inner is None or root is None or not says(inner.file, "call-of-vllm"):
        return None
    failed, called = read("call-that-failed", root.message), read("call-of-a-module", inner.code)
    if failed is None or called is None or called["call"] != failed["call"]:
        return None
    name = distributions.distribution(called["module"])
    return name if name is not None and not name.startswith(_OF_THE_WHEEL) else None


def does_not_fit(fault: Fault) -> str | None:
    """The library whose functions or objects are not as its own code, or vLLM, knows them."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind not in _OF_ANOTHER_RELEASE or raised_by_hand(fault):
        return None
    return library(fault) if says(root.message, "of-another-release") else None


def built_with(case: Case, name: str, *, called: bool = False) -> Change:
    """The releases of a library that this vLLM was built with; `called` where its caller failed, and not its code."""
    to = fitting(case, name)
    why = (
        f"this vLLM calls {name} otherwise than the installed release takes: install the one that it was built with"
        if called
        else f"the failing code is {name}'s own: first check that its release is the one that vLLM was built with"
    )
    command = f"pip install {shlex.quote(to)}" if to else f"pip check; pip show -v vllm {name}"
    return thing(ChangeKind.PACKAGE, name, Direction.CHANGE, why, to=to, command=command)
