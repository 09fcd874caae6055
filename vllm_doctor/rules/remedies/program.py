"""A program or plugin whose own code drives vLLM, and failed on what this release of vLLM gives it."""

import shlex
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import PurePosixPath
from posixpath import commonpath

import msgspec
from msgspec import structs

from vllm_doctor.knowledge import api, versions
from vllm_doctor.knowledge.distributions import distribution, listed, required
from vllm_doctor.knowledge.layers import layer_of
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.sentence_call import told_by_words
from vllm_doctor.log.traceback import Link
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.another_release import another_copy
from vllm_doctor.rules.remedies.library import ACCESS
from vllm_doctor.rules.remedies.own_words import changes_of_state, own_words
from vllm_doctor.rules.remedies.refusal import packages_named
from vllm_doctor.rules.remedies.sentence import as_it_stands
from vllm_doctor.rules.remedies.unfit_package import folder, is_file, of_this_vllm, whose_file
from vllm_doctor.rules.say import thing

# What Python raises where an object, a function or a module of another release is not as the caller knows it.
_OF_ANOTHER_RELEASE = frozenset({"AttributeError", "TypeError", "ImportError"})


# What a program raises where it refuses its own settings, with a sentence.
_REFUSES = frozenset({"AssertionError", "ValueError", "NotImplementedError", "KeyError"})


# What Python raises where a program's code did not expect its own state.
_BROKEN = frozenset({"UnboundLocalError", "NameError", "IndexError", "ZeroDivisionError", "RecursionError"})


_OF_TORCH = frozenset({"torch", "triton", "nvidia", "transformers"})
# They pass on what failed elsewhere.
_CARRIERS = frozenset({"ray", "xoscar"})
# So many of the innermost files tell the folder that a program is.
_FILES = 2


class ForeignProgram(msgspec.Struct, frozen=True):
    """The package that failed, the problem, and what cures it."""

    name: str
    title: str
    changes: tuple[Change, ...]


def program(case: Case, fault: Fault) -> ForeignProgram | None:
    """The package, where its innermost call is of the part of it that speaks with vLLM; None otherwise."""
    root = _who_asked(fault.crash.root) if fault.crash is not None and fault.crash.root.frames else None
    if root is not None and _passes_on(root):
        return None
    if root is not None and root.kind in _REFUSES and root.message.strip():
        return _own_check(root)
    if root is not None and (root.kind in _BROKEN or (root.kind == "RuntimeError" and root.frames[-1].by_hand)):
        return _own_defect(case, fault, root)
    if root is None or root.kind not in _OF_ANOTHER_RELEASE:
        return None
    file = _of_no_standard_library(root)
    found = read("call-of-adaptor", file) or _of_a_checkout(file) or _uses_vllm(root)
    if found is None:
        # an object of its own that is not as its code expects, where vLLM neither made it nor was called
        return _script(case, root) or _own_defect(case, fault, root) or _not_made(case, fault, root)
    if found["package"] in {"vllm", "torch", "transformers"}:
        return None
    name = found["package"]
    ours = f"vLLM {case.version_text}" if case.version_text else "the installed vLLM"
    newer = (
        of_this_vllm(name)
        if is_file(name)
        else _newer(
            name, f"its code was written for another release than {ours}: install a release that names this vLLM"
        )
    )
    older = thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.CHANGE,
        f"or the release of vLLM that this {name} was written for: its requirements or its documentation name it",
        command=f"pip show -v {name.replace('_', '-')} | grep -i requires"
        if _listed(name)
        else "pip list | grep -i vllm",
    )
    key = _key_of_engine(root)
    with_it = _release_with(case, root, key) if key is not None else None
    changes = (with_it, newer) if with_it is not None else (newer, older)
    return ForeignProgram(name, f"{name} and this release of vLLM do not fit each other", changes)


def _listed(name: str) -> bool:
    """Is it a package that a person can install by this name?"""
    return listed(name.replace("_", "-")) is not None or listed(name) is not None


def _newer(name: str, why: str) -> Change:
    package, known = name.replace("_", "-"), _listed(name)
    return thing(
        ChangeKind.PACKAGE,
        package if known else "foreign-package",
        Direction.UPGRADE,
        why,
        to=None if known else name,
        command=f"pip install -U {package}; pip check" if known else "pip check",
    )


def _passes_on(root: Link) -> bool:
    """Does a program raise again, under a class of its own choice, what another part said?"""
    code = root.frames[-1].code if root.frames else ""
    return says(code, "raises-what-it-was-given") and layer_of((f"{root.kind}: {root.message}",), ()) is not None


def _who_asked(root: Link) -> Link:
    """The exception without the calls in which an object says that it lacks a name: who asked for it failed."""
    asked = [*takewhile(lambda frame: frame.function not in ACCESS, root.frames)]
    return structs.replace(root, frames=tuple(asked)) if asked else root


def _of_no_standard_library(root: Link) -> str:
    """The innermost file that is not Python's own: a context manager or an event loop only passes a call on."""
    files = [frame.file for frame in root.frames]
    return next((file for file in reversed(files) if not says(file, "call-of-standard-library")), files[-1])


def _of_a_checkout(file: str) -> dict[str, str] | None:
    """A trainer that runs from its own checkout, in the part of it that speaks with vLLM."""
    found = read("call-of-driver", file)
    return found if found is not None and says(file, "speaks-with-vllm") else None


def _script(case: Case, root: Link) -> ForeignProgram | None:
    """A script that gives an argument to `LLM(…)`, which hands it on to EngineArgs, or to SamplingParams."""
    key = _key_of_engine(root) or _key_of_record(root)
    files = (f.file for f in reversed(root.frames) if not says(f.file, "call-of-no-file"))
    caller = next((file for file in files if not says(file, "call-of-vllm")), "")
    if key is None or root.kind != "TypeError" or not caller or folder(caller):
        return None
    name = PurePosixPath(caller).name
    why = f"the argument is of the call in {name}; without it vLLM takes its default"
    if _key_of_record(root) is not None:
        why += "; SamplingParams has its own names (min_tokens, max_tokens), which other libraries do not share"
    grep = f"grep -n {key} {shlex.quote(name)}"
    without = thing(ChangeKind.OS, "program-settings", Direction.REMOVE, why, command=grep)
    release = _release_with(case, root, key) or thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.CHANGE,
        "or the script belongs to another release: take it from the tag of the installed one",
        before=case.version_text,
        command="pip show vllm",
    )
    changes = (without, release) if _key_of_engine(root) is None else (release, without)
    title = f"{name} passes an argument that this vLLM lacks: {key}"
    if api.has("arguments", _refuser(root), key, case.version):
        title = f"Another vLLM than {case.version_text} runs: that one takes the argument {key}"
    return ForeignProgram(name, title, changes)


def _refuser(root: Link) -> str:
    """Who refuses an argument; Python before 3.10 names none."""
    told = read("call-lacks", root.message)
    return told["owner"] if told is not None else "EngineArgs.__init__"


def _key_of_engine(root: Link) -> str | None:
    """Python before 3.10 names no class: then the line itself does."""
    told = read("engine-argument-unknown", root.message)
    if told is None and says(root.frames[-1].code, "makes-engine-arguments"):
        told = read("argument-of-no-class", root.message)
    return told["key"] if told is not None else None


def _key_of_record(root: Link) -> str | None:
    """msgspec's words for a field that a record does not have: SamplingParams is one."""
    told = read("argument-of-no-record", root.message)
    return told["key"] if told is not None else None


def _release_with(case: Case, root: Link, key: str) -> Change | None:
    """The releases that have an argument of the engine: as it is known of the class, else as of an option."""
    owner = _refuser(root)
    if api.has("arguments", owner, key, case.version):
        return another_copy(case, f"the argument {key}")
    if api.has("arguments", "AsyncEngineArgs.__init__", key, case.version):
        return None  # of an engine that serves alone
    of_class = api.span("arguments", owner, key, case.version)
    if of_class is not None:
        newer = case.version is not None and case.version < as_version(of_class.first)
        return thing(
            ChangeKind.PACKAGE,
            "vllm-version",
            Direction.CHANGE,
            f"{key} is an argument of vLLM {of_class.told}: the program belongs to one of them, or is taken from the "
            "tag of the installed release",
            to=of_class.first if newer or not of_class.ended else of_class.last,
            before=case.version_text,
            command="pip show vllm",
        )
    fact = versions.flag(key, case.release)
    if fact is None or not fact.first:
        return None
    last = versions.parse_version(fact.last) if fact.last else None
    gone = last is not None and last < case.release
    return thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.CHANGE,
        f"vLLM {fact.first} to {fact.last} have {key}: the script belongs to one of them, or is taken from the tag of "
        "the installed release",
        to=fact.last if gone else fact.first,
        before=case.version_text,
        command="pip show vllm",
    )


def _uses_vllm(root: Link) -> dict[str, str] | None:
    """Any program whose call fails on an object that vLLM gave it: its own package, else its file."""
    file = _of_no_standard_library(root)
    if _own_argument(root) is not None:
        return None
    if says(file, "names-itself-after-vllm") and not folder(file) and says(root.message, "of-another-release"):
        name = whose_file(file)  # an adaptor that runs from its own checkout
        return {"package": _project(file) if is_file(name) else name}
    if not says(root.message, "lacks-of-vllm"):
        return None
    if says(file, "call-of-vllm"):
        return _whose_argument(root) if root.kind == "TypeError" else None
    return {"package": whose_file(file)}


def _own_argument(root: Link) -> dict[str, str] | None:
    """An argument that a method of a class does not take which no release of vLLM has; and that class."""
    told = read("call-lacks", root.message)
    name, dot, _ = told["owner"].partition(".") if told is not None else ("", "", "")
    return {"owner": name, "key": told["name"]} if told is not None and dot and not api.is_class(name) else None


def _project(file: str) -> str:
    """What a checkout calls itself: the folder of a package in one of the same name, or that has copies of others."""
    parts = PurePosixPath(file).parts
    twice = (outer for outer, inner in pairwise(parts) if outer == inner)
    copies = (outer for outer, inner in pairwise(parts) if inner == "third_party")
    return (*twice, *copies, parts[-1])[0]


def _whose_argument(root: Link) -> dict[str, str] | None:
    """`LLM(…)` hands what it is given on to EngineArgs: the argument is of the trainer or platform that called it."""
    caller = next((f.file for f in reversed(root.frames) if not says(f.file, "call-of-vllm")), "")
    return read("call-of-driver", caller) or read("call-of-adaptor", caller)


def _own_check(root: Link) -> ForeignProgram | None:
    """A trainer or a platform around vLLM that refused its own settings, before vLLM was asked."""
    found = read("call-of-driver", root.frames[-1].file)
    if found is None:
        return None
    name = found["package"]
    if root.kind == "NotImplementedError" or says(root.message, "lacks-support"):
        why = f"its own code has no case for what the message names: a newer release of {name} may have one"
        return ForeignProgram(name, f"{name} has no case for what its own check names", (_newer(name, why),))
    why = f"the check is of {name}, not of vLLM: the setting that its message names stands in its own configuration"
    command = f"pip show {name.replace('_', '-')}   # the configuration and the documentation of this release"
    change = thing(ChangeKind.OS, "program-settings", Direction.CHANGE, why, command=command)
    return ForeignProgram(name, f"{name} refuses its own settings", (change,))


def _not_made(case: Case, fault: Fault, root: Link) -> ForeignProgram | None:
    """A program's own file that reads of an object what its class has not, or gives a class of its own what that does
    not take: its settings, or its release, say so."""
    file, inner = root.frames[-1].file, fault.crash.root.frames[-1] if fault.crash is not None else root.frames[-1]
    title = own_words(case, fault, None) if inner.function in ACCESS and not fault.ids else ""
    told = _own_argument(root)
    if not (title or told) or folder(file) or says(file, "call-of-no-file") or says(file, "call-of-vllm"):
        return None
    name = PurePosixPath(file).name
    why = f"a setting of the program makes what {name} reads there, or its release and that of its library do not fit"
    if told is not None:
        title = f"The program's own {told['owner']} does not take the argument {told['key']}"
        why = f"{told['owner']} is no class of vLLM's: its configuration sets {told['key']} for another release of it"
    grep = f"grep -n -B3 {shlex.quote(root.frames[-1].code)} {shlex.quote(name)}"
    change = thing(ChangeKind.OS, "program-settings", Direction.CHANGE, why, command=grep)
    return ForeignProgram(name, title, (change,))


def _own_defect(case: Case, fault: Fault, root: Link) -> ForeignProgram | None:
    """A trainer, a platform or a plugin beside vLLM whose own code failed: no setting of vLLM is at fault."""
    file = root.frames[-1].file
    # What a plugin raises itself is about the machine; what Python raises in it is the plugin's.
    found = read("call-of-driver", file) or (read("call-of-plugin", file) if root.kind in _BROKEN else None)
    told = found["package"] if found is not None else _elsewhere(fault, root)
    if told is None:
        return None
    name = told.replace("_", "-")
    why = f"the failing line is of {name}, not of vLLM: a newer release may have a fix, and its project takes reports"
    title = (
        own_words(case, fault, None)
        or as_it_stands(case, fault, name)
        or f"{name} failed in its own code, outside vLLM"
    )
    return ForeignProgram(
        name, title, (*packages_named(case, root.message), *changes_of_state(case, fault), _newer(name, why))
    )


def _elsewhere(fault: Fault, root: Link) -> str | None:
    """Any other program, in a package or a checkout, whose code did not expect its own state, without a call of vLLM's.
    A library that vLLM requires is none: vLLM called it, in lines that are cut off."""
    files = [frame.file for frame in root.frames if not says(frame.file, "call-of-no-file")]
    if fault.ids or not files or root.kind not in _BROKEN | _OF_ANOTHER_RELEASE or root.frames[-1].by_hand:
        return None
    if any(says(file, "call-of-vllm") for file in fault.files) or told_by_words(root):
        return None
    package = folder(files[-1])
    if package:
        return None if (distribution(package) or package) in required() | _OF_TORCH | _CARRIERS else package
    return _checkout(files)


def _checkout(files: Sequence[str]) -> str | None:
    """The package that a program's files have in common, where it runs from its own folder."""
    own = [f for f in files if f.endswith(".py") and not says(f, "call-of-standard-library") and not folder(f)]
    inner = [*dict.fromkeys(reversed(own))][:_FILES]
    if len(inner) < _FILES or not all(PurePosixPath(file).is_absolute() for file in inner):
        return None
    name = PurePosixPath(commonpath(inner)).name
    return name if name.isidentifier() and "_" in name else None
