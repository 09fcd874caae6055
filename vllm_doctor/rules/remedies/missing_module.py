"""A module that Python does not find, or that lacks a name: its distribution, and what installs the right one.

Python says "No module named 'a.b'" where a is there and b is not, and "'a' is not a package" where a file a.py stands
before the package (docs.python.org/3/reference/import.html). Only a distribution that is known comes into a command.
"""

import shlex
import sys
from pathlib import PurePosixPath
from typing import NamedTuple

from vllm_doctor.knowledge import distributions, versions
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.traceback import in_packages
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.machine_kind import machine_kind
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies.another_release import OfAnotherVllm
from vllm_doctor.rules.remedies.of_another_vllm import module_of_vllm, name_of_vllm
from vllm_doctor.rules.remedies.unfit_package import folder, importer, is_file, of_this_vllm, stands_beside
from vllm_doctor.rules.say import thing, upgrade

_OWN = "vllm"
_BUILT_WITH = "this vLLM release was built with these versions"
_NAMES_NONE = "this vLLM release asks for no release of it"
# How a requirement names the newest release that it takes.
_ENDS = ("<", "==", "~=")


class MissingModule(NamedTuple):
    """The title, what to change (empty: the whole environment is to be made anew), and what would show otherwise."""

    title: str
    changes: tuple[Change, ...]
    refute: str


# Packages of clients, and what they call the way to a server.
_ASKS_A_SERVER = {
    "litellm": "hosted_vllm/NAME (or openai/NAME) with api_base",
    "langchain_community": "VLLMOpenAI or ChatOpenAI with base_url",
    "llama_index": "OpenAILike with api_base",
}


def missing_module(case: Case, fault: Fault) -> MissingModule | None:
    """What the failed import says; None where it names no module."""
    if hides_its_import(fault):
        return _hidden_failure()
    if (package := left_as_none(fault)) is not None:
        return _not_found(case, fault, package, None)
    missing = fault.fields("module-missing")
    lacking = fault.fields("import-name") or fault.fields("module-attribute")
    if missing:
        return _not_found(case, fault, missing["module"], missing.get("hidden"))
    if not lacking.get("module"):
        return None
    own = read("module-in-own-folder", text(case, fault))
    if own is not None:
        return _hidden_by_file(own["module"], f"`python -I -c 'import {own['module']}'` fails alike")
    return _lacks_name(case, fault, lacking["module"], lacking["name"])


def hides_its_import(fault: Fault) -> bool:
    """A library that goes on where its import of vLLM failed meets the first name of it later: in a file of its own
    about vLLM, not in a script or a cell, whose writer may have left the import out."""
    root = fault.crash.root if fault.crash is not None and fault.crash.root.frames else None
    if root is None or not says(f"{root.kind}: {root.message}", "undefined-name-of-vllm"):
        return False
    file = root.frames[-1].file
    return not says(file, "call-of-vllm") and (bool(folder(file)) or says(file, "speaks-with-vllm"))


def left_as_none(fault: Fault) -> str | None:
    """The module that a library wanted and did not get: it caught that (`except ImportError: pyarrow = None`), and its
    own code then reads a name of None."""
    root = fault.crash.root if fault.crash is not None and fault.crash.root.frames else None
    told = read("python-none-attribute", f"{root.kind}: {root.message}") if root is not None else None
    if root is None or told is None or not folder(root.frames[-1].file):
        return None
    before, dot, _ = root.frames[-1].code.rpartition(f".{told['what']}")
    name = read("name-at-the-end", before) if dot else None
    return name["name"] if name is not None and distributions.distribution(name["name"]) is not None else None


def _hidden_failure() -> MissingModule:
    why = (
        "the program imports vLLM in a `try` and hides why that failed: this Python has no vLLM, or a library of it "
        "does not load, which this command shows"
    )
    change = thing(ChangeKind.PACKAGE, _OWN, Direction.ADD, why, command="python -c 'import vllm'")
    title = "The program could not import vLLM, and went on without it"
    return MissingModule(title, (change,), "`python -c 'import vllm'` works in the environment of the program")


def fitting(case: Case, package: str) -> str | None:
    """What this release's metadata asks of a package, as pip takes it; None where it asks nothing, or is not known."""
    asked = versions.requires(package, case.version) if case.version is not None else None
    if not asked:
        return None
    # Releases before 0.11.2 name no upper end for transformers, and were made for 4.x.
    if package == "transformers" and "<" not in asked and not says(asked, "asks-for-transformers-5"):
        asked += ",<5"
    return f"{package}{asked}"


def _own_environment() -> tuple[Change, ...]:
    """Another Python than the one that vLLM was installed for: of a shell, of a node, of a worker."""
    why = "a shell, a unit or a worker took another Python; with Ray every node needs the same environment"
    command = "python -c 'import sys; print(sys.executable)'; ls -d /opt/*/bin/vllm ~/*/bin/vllm 2>/dev/null"
    return (thing(ChangeKind.PACKAGE, "interpreter", Direction.CHANGE, why, command=command),)


def _hidden_by_file(hidden: str, refute: str) -> MissingModule:
    """A file of somebody's own bears the package's name and lies where Python looks first."""
    file = f"{hidden.replace('.', '/')}.py"
    change = thing(
        ChangeKind.OS,
        "hiding-file",
        Direction.REPAIR,
        f"Python takes this file for the package {hidden}: it lies in the folder from which the server starts",
        to=file,
        command=f"python -c 'import importlib.util as u; print(u.find_spec(\"{hidden}\").origin)'   # rename that file",
    )
    return MissingModule(f"A file {file} hides the package {hidden}", (change,), refute)


def _not_found(case: Case, fault: Fault, module: str, hidden: str | None) -> MissingModule:
    top = module.partition(".")[0]
    refute = f"`python -I -c 'import {module}'` works in the environment that starts vLLM"
    if hidden:
        return _hidden_by_file(hidden, refute)
    if module == _OWN:
        return _asked_to_run(case, fault, refute) or MissingModule(
            "The Python that runs this has no vLLM", _own_environment(), refute
        )
    if top == _OWN:
        told = module_of_vllm(case, fault, module)
        return _of_another_vllm(fault, f"module {module}", told, refute) or MissingModule(
            f"This vLLM has no module {module}", (), refute
        )
    if top in sys.stdlib_module_names:
        return MissingModule(f"This Python lacks its standard module {module}", (_python(case),), refute)
    package = distributions.distribution(module)
    if package is None and says(text(case, fault), "ray-cannot-unpickle"):
        return MissingModule(f"A Ray worker does not find the driver's module {module}", (_to_workers(module),), refute)
    if package is None:
        title = f"The Python module {module} is not installed"
        if top != module:
            title = f"The installed {top} has no module {module}"
        return MissingModule(title, (*_in_newer_wheels(case, module), *_of_others(fault, module)), refute)
    if top != module:
        title = f"{package} does not fit this vLLM: it has no module {module}"
        return MissingModule(title, (another(case, package),), refute)
    if not distributions.built_for(package, kind := machine_kind(case)):
        return MissingModule(f"{package} is not made for {kind}", (not_made_for(package, kind),), refute)
    needs = package in distributions.required()
    if case.version is not None:
        needs = versions.requires(package, case.version) is not None
    why = "vLLM requires it" if needs else "vLLM does not bring it along, and this launch needs it"
    to = fitting(case, package)
    command = f"pip install {shlex.quote(to or package)}"
    change = thing(ChangeKind.PACKAGE, package, Direction.ADD, why, to=to, command=command)
    return MissingModule(f"The package {package} is not installed", (change,), refute)


def _to_workers(module: str) -> Change:
    """Ray sends objects by the name of their module; one beside the driver's file is on its path alone."""
    why = (
        f"Ray sends an object of the module {module}, and the worker imports that module by its name: put its folder "
        "on PYTHONPATH where Ray and the server are started, or into the job's runtime_env (py_modules)"
    )
    return thing(
        ChangeKind.ENV,
        "PYTHONPATH",
        Direction.ADD,
        why,
        command=f"find / -name '{module.partition('.')[0]}*' -not -path '/proc/*' 2>/dev/null | head",
    )


def _asked_to_run(case: Case, fault: Fault, refute: str) -> MissingModule | None:
    """A client's library with a class or a name that runs vLLM within the client, beside one that asks a server. Its
    own line may stand above the traceback."""
    crashes = case.run.crashes[:1] if case.run is not None and fault.crash is None else ()
    who = importer(fault) or next((folder(c.root.frames[-1].file) for c in crashes if c.root.frames), None)
    instead = _ASKS_A_SERVER.get(who or "")
    if who is None or instead is None:
        return None
    why = f"this name of {who} makes an engine in the client's own process; {instead} asks a server that runs"
    change = thing(ChangeKind.OS, "program-settings", Direction.CHANGE, why, command=f"pip show {who}")
    return MissingModule(f"{who} is asked to run vLLM itself, not to ask a server", (change,), refute)


def _hidden_by_folder(module: str, name: str, refute: str) -> MissingModule:
    """Python names no file of such a package: it took a folder of that name for it, which has no code of its own."""
    top = module.partition(".")[0]
    why = (
        f"a folder named {top} lies where this starts (a checkout of it, most often), and Python takes it for the "
        "package: start elsewhere, or rename the folder; if the path is in site-packages, install the package again"
    )
    where = f"python -c 'import {top}; print(list({top}.__path__))'"
    change = thing(ChangeKind.OS, "hiding-file", Direction.REPAIR, why, to=f"the folder {top}", command=where)
    return MissingModule(f"A folder without code stands for {top}, which so lacks {name}", (change,), refute)


def _look_for_folder(module: str) -> Change:
    """Python takes a folder of that name without complaint: a package that lacks what it always had may be one."""
    why = (
        f"or a folder named {module} lies where this starts, and Python takes it for the package: it then prints None; "
        "start elsewhere, or rename the folder"
    )
    command = f"python -c 'import {module}; print({module}.__file__, {module}.__path__)'"
    return thing(ChangeKind.OS, "hiding-file", Direction.REPAIR, why, to=f"the folder {module}", command=command)


def _of_another_vllm(fault: Fault, what: str, told: OfAnotherVllm | None, refute: str) -> MissingModule | None:
    """Somebody else's code imports it, a plugin or a program that uses vLLM; or other releases are known to have it."""
    who, releases = importer(fault), told.changes if told is not None else ()
    if who is not None:
        title = f"{who} does not fit this vLLM, which has no {what}"
        return MissingModule(title, (of_this_vllm(who, told.place if told is not None else ""), *releases), refute)
    return MissingModule(told.title, releases, refute) if told is not None else None


def _lacks_name(case: Case, fault: Fault, module: str, name: str) -> MissingModule | None:
    top = module.partition(".")[0]
    refute = f"`python -I -c 'from {module} import {name}'` works in the environment that starts vLLM"
    if says(text(case, fault), "import-of-no-file"):
        return _hidden_by_folder(module, name, refute)
    if top == _OWN:
        return _of_another_vllm(fault, f"{name} in {module}", name_of_vllm(case, fault, module, name), refute)
    if top in sys.stdlib_module_names:
        return MissingModule(f"This Python does not fit this vLLM: {module} has no {name}", (_python(case),), refute)
    package = distributions.distribution(module)
    reader = stands_beside(fault)
    if package is None:
        if reader is None:
            return _of_another_release(case, fault, module, name, refute)
        return _of_two_others(fault, reader, top, refute) if reader != top else None
    if reader is not None and reader != package:
        title = f"{reader} and the installed {package} do not fit each other"
        return MissingModule(title, (_made_for(case, reader, package), another(case, package)), refute)
    if _of_the_same_package(fault, top):
        why = (
            "a module of the package asks another one of it for the name: files of two releases lie in one folder (an "
            "upgrade that was cut off, or a second copy), or this process imported the package before it was upgraded: "
            "install it again, and restart the process (or the notebook's kernel)"
        )
        command = f"pip install --force-reinstall --no-deps {package}"
        mixed = thing(ChangeKind.PACKAGE, package, Direction.REPAIR, why, command=command)
        return MissingModule(f"The files of {package} are of two releases: {module} has no {name}", (mixed,), refute)
    title = f"{package} does not fit this vLLM: {module} has no {name}"
    hidden = (_look_for_folder(module),) if "module-attribute" in fault.ids and "." not in module else ()
    return MissingModule(title, (another(case, package), *hidden), refute)


def _of_another_release(case: Case, fault: Fault, module: str, name: str, refute: str) -> MissingModule | None:
    """A package that no release of vLLM requires, and who reads it stands nowhere. One word may be one's own file."""
    top, dot, _ = module.partition(".")
    if (fault.crash is not None and fault.files) or not (dot or says(text(case, fault), "import-from-packages")):
        return None
    why = (
        f"vLLM does not bring {top}: the code that reads this name was written for another release of {top}, most "
        "often a newer one; install the release that it asks for"
    )
    command = f"pip show {shlex.quote(top)}; pip install -U {shlex.quote(top.replace('_', '-'))}; pip check"
    change = thing(ChangeKind.PACKAGE, "foreign-package", Direction.UPGRADE, why, to=top, command=command)
    return MissingModule(f"The installed {top} has no {name}", (change,), refute)


def _of_two_others(fault: Fault, reader: str | None, package: str, refute: str) -> MissingModule | None:
    """Two packages that no release of vLLM requires, of releases that were not made for each other."""
    if reader is None or is_file(reader) or any(says(file, "call-of-vllm") for file in fault.files):
        return None
    both = [shlex.quote(one.replace("_", "-")) for one in (reader, package)]
    why = (
        f"neither is vLLM's: install the release of {package} that {reader} asks for (pip check names it), of the same "
        "release where both are of one project"
    )
    command = f"pip install -U {' '.join(both)}; pip check"
    change = thing(ChangeKind.PACKAGE, "foreign-package", Direction.CHANGE, why, to=package, command=command)
    return MissingModule(f"{reader} and the installed {package} do not fit each other", (change,), refute)


def _of_the_same_package(fault: Fault, top: str) -> bool:
    """Is the module that asks for the name one of the same package?"""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    told = read("file-in-packages", in_packages(frames[-1].file)) if frames else None
    return told is not None and told["package"] == top


def _made_for(case: Case, reader: str, package: str) -> Change:
    """The importer's release is what gives way where vLLM itself says which release of the other package it takes."""
    asked = fitting(case, package)
    if fitting(case, reader) is not None or reader == package:
        return another(case, reader)
    why = f"its code asks for a name of another release of {package}: install its release for " + (
        f"{asked}, which this vLLM asks for" if asked else f"the {package} that this vLLM asks for"
    )
    command = f"pip show {shlex.quote(reader)} {shlex.quote(package)}; pip check"
    return thing(ChangeKind.PACKAGE, reader, Direction.CHANGE, why, command=command)


def another(case: Case, package: str) -> Change:
    """The release of a package that this vLLM was built with, or one of its time where it names none."""
    to = fitting(case, package)
    day = versions.out_on(case.version) if case.version is not None else None
    command = f"pip install {shlex.quote(to)}" if to else f"pip check; pip show -v vllm {shlex.quote(package)}"
    why = _BUILT_WITH if to is not None or package in distributions.required() else _NAMES_NONE
    if day is not None and not any(end in (to or "") for end in _ENDS):
        why = f"{_BUILT_WITH}, and names no newest one: take one" if to is not None else f"{_NAMES_NONE}: take one"
        why += f" that was out when this vLLM was ({day})"
        command = f"uv pip install --exclude-newer {day} {shlex.quote(to or package)}"
    return thing(ChangeKind.PACKAGE, package, Direction.CHANGE, why, to=to, command=command)


def _python(case: Case) -> Change:
    asked = versions.requires("python", case.version) if case.version is not None else None
    other = "this Python is incomplete, or vLLM needs another release of it"
    why = f"this vLLM release runs on Python {asked}" if asked else other
    return thing(ChangeKind.PACKAGE, "python", Direction.CHANGE, why, command="python3 --version; ls /usr/bin/python3*")


def not_made_for(package: str, kind: str | None) -> Change:
    """No command installs a package that nobody builds for this machine."""
    why = f"{package} has no build for {kind}; a quantization or an FP8 KV cache may be what needs it"
    return thing(ChangeKind.OS, "option-of-package", Direction.REMOVE, why, to=package, command="uname -m")


def _optional(module: str, file: str) -> Change:
    """vLLM's own code imports what no release of it requires: a new environment lacks it as well."""
    parts = PurePosixPath(file).parts
    inside = len(parts) - parts[::-1].index(_OWN) - 1 if _OWN in parts else 0
    why = (
        f"{'/'.join(parts[inside:])} imports it, and vLLM does not bring it along: install the package that has "
        "this module, as its own documentation says, or turn off the option that needs it"
    )
    command = f"grep -n {shlex.quote(module)} {shlex.quote(file)}   # what vLLM wants it for"
    return thing(ChangeKind.PACKAGE, "foreign-module", Direction.ADD, why, to=module, command=command)


def _in_newer_wheels(case: Case, module: str) -> tuple[Change, ...]:
    """A module that no index has under this name, and that vLLM's own wheel brings from some release on."""
    since = distributions.brought_since(module)
    if since is None or (case.version is not None and case.version >= versions.as_version(since)):
        return ()
    newer = upgrade(case, f"from {since} on vLLM's wheel has its own copy of {module}")
    if newer is not None:
        return (newer,)
    why = f"from {since} on vLLM's wheel has its own copy of {module}, which no package of that name replaces"
    return (thing(ChangeKind.PACKAGE, "vllm-version", Direction.UPGRADE, why, to=since),)


def _newer_copy(module: str, top: str) -> Change:
    """Python found the package, and in it no such module: the copy that it found is of another release."""
    why = (
        f"Python finds {top}, and that copy has no {module}: update the checkout (git pull) or the package that this "
        "prints, or take the example that belongs to it"
    )
    command = f"python -c 'import {top}; print({top}.__path__)'"
    return thing(ChangeKind.PACKAGE, "foreign-package", Direction.UPGRADE, why, to=top, command=command)


def _of_whoever_imports(module: str) -> Change:
    """The calls are not given, and a module's name need not be that of its package."""
    why = (
        "no release of vLLM requires it: a model's own code, a plugin or the program that uses vLLM imports it; "
        "install the package that its documentation names, in the environment that starts vLLM"
    )
    command = f"pip index versions {shlex.quote(module)}   # is it a package of this name?"
    return thing(ChangeKind.PACKAGE, "foreign-module", Direction.ADD, why, to=module, command=command)


def _of_others(fault: Fault, module: str) -> tuple[Change, ...]:
    """A module that no release of vLLM requires: who imports it needs it; its name alone is no package to install."""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    if frames and says(frames[-1].file, "call-of-vllm"):
        return (_optional(module, frames[-1].file),)
    top = module.partition(".")[0]
    if top != module:
        return (_newer_copy(module, top),)
    if not frames:
        return (_of_whoever_imports(module),)
    why = f"{frames[-1].file} imports it, and no release of vLLM requires it: install what that code asks for"
    folder = frames[-1].file.rpartition("/")[0] or "."
    command = f"grep -rn {shlex.quote(module)} {shlex.quote(folder)} --include=*.md --include=*.txt --include=*.py"
    return (thing(ChangeKind.PACKAGE, "foreign-module", Direction.ADD, why, to=module, command=command),)
