"""A name of vLLM's that a program takes and this release has not: which releases have it, by Python's own words.

`cannot import name`, `has no attribute`, `got an unexpected keyword argument`, `missing 1 required … argument`, `takes
2 positional arguments` and `abstract method` name the object and what it lacks; the table knows when it came and went
(knowledge/api).
"""

from vllm_doctor.knowledge import api, versions
from vllm_doctor.knowledge.api import Lifetime
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, read, says
from vllm_doctor.log.traceback import Link
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.another_release import OfAnotherVllm, another_copy, release_before
from vllm_doctor.rules.remedies.plugin_lacks import asks_more, lacks_abstract, lacks_by_name, of_no_vllm, subclass_lacks
from vllm_doctor.rules.remedies.unfit_package import beside_vllm, folder, of_this_vllm
from vllm_doctor.rules.say import environment, thing, upgrade_to

_RAISED = frozenset({"TypeError", "AttributeError"})
# vLLM calls a worker's method by the name that a program gives (utils: run_method).
_BY_NAME = "run_method"


def lacks_of_vllm(case: Case, fault: Fault) -> OfAnotherVllm | None:
    """By a method, an attribute or an argument of a class or a function of vLLM's, or what a subclass of it lacks."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind not in _RAISED:
        return None
    if (told := read("object-lacks", root.message)) is not None:
        return _member(case, fault, told["owner"], told["name"])
    if (told := read("call-lacks", root.message)) is not None:
        return _argument(case, fault, told["owner"], told["name"])
    if (told := read("call-needs", root.message)) is not None:
        if _of_vllm_itself(fault):
            return asks_more(root, told["owner"])
        return _required(case, told["owner"], _names(told["names"]))
    if (told := read("python-argument-count", f"{root.kind}: {root.message}")) is not None:
        return asks_more(root, told["what"]) if _of_vllm_itself(fault) else _count(case, told["what"])
    if (told := read("class-lacks", root.message)) is not None:
        return lacks_abstract(case, root, told["owner"], _names(told["names"]))
    told = read("argument-of-no-record", root.message) or read("argument-of-no-class", root.message)
    made = read("makes-a-record", _call(case, root)) if told is not None and not _of_vllm_itself(fault) else None
    return _argument(case, fault, f"{made['owner']}.__init__", told["key"]) if told is not None and made else None


def _call(case: Case, root: Link) -> str:
    """The line of code that failed; of a traceback whose calls were cut off it stands above the exception."""
    if root.frames or case.run is None or not root.at:
        return root.frames[-1].code if root.frames else ""
    return case.run.lines[root.at - 1].text


def module_of_vllm(case: Case, fault: Fault, module: str) -> OfAnotherVllm | None:
    """By a module."""
    if _of_vllm_itself(fault):
        return None
    frames = fault.crash.root.frames if fault.crash is not None else ()
    line = read("imports-names", frames[-1].code) if frames else None
    asked = _names(line["names"]) if line is not None else []
    places = [place for name in asked for place in api.moved(name, case.version)]
    return _answer(case, module, api.module(module, case.version), list(dict.fromkeys(places)))


def name_of_vllm(case: Case, fault: Fault, module: str, name: str) -> OfAnotherVllm | None:
    """By a name of a module."""
    if _of_vllm_itself(fault):
        return None
    places = [place for place in api.moved(name, case.version) if place != module]
    return _answer(case, f"{name} in {module}", api.span("names", module, name, case.version), places)


def _of_vllm_itself(fault: Fault) -> bool:
    """Is the line that failed vLLM's own?"""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return bool(frames) and says(frames[-1].file, "call-of-vllm") and folder(frames[-1].file) in {"", "vllm"}


def _names(told: str) -> list[str]:
    return [one["name"] for one in each("name-of-a-list", told)]


def _member(case: Case, fault: Fault, owner: str, name: str) -> OfAnotherVllm | None:
    root = fault.crash.root if fault.crash is not None else None
    what = f"{owner}.{name}"
    if root is None:
        return None
    if not _of_vllm_itself(fault):
        found = _answer(case, what, api.span("members", owner, name, case.version))
        of_v0 = _of_v0(case, root, what) if api.has("v0", owner, name, case.version) else None
        # of a configuration, a tokenizer or a processor it is Transformers that lacks it
        return found or of_v0 or (None if says(owner, "class-of-transformers") else of_no_vllm(root, owner, name))
    if root.frames[-1].function == _BY_NAME and api.is_class(owner):
        return lacks_by_name(root, owner, name)
    who = beside_vllm(root)
    if who is None or not api.has_method(owner, name, case.version) or api.has("v0", owner, name, case.version):
        return None
    title = f"This {owner} is not vLLM's own: that of {case.version_text} has {name}"
    return OfAnotherVllm(title, (of_this_vllm(who), another_copy(case, what)))


def _of_v0(case: Case, root: Link, what: str) -> OfAnotherVllm | None:
    """Of two classes of that name in one release the V0 engine's alone has it."""
    version = case.version
    if version is None or versions.engine(version, use_v1=False) != "V0" or case.env("VLLM_USE_V1") == "0":
        return None
    why = f"the V0 engine's class has {what}, and the V1 engine's, which ran, has not"
    who = beside_vllm(root)
    back = environment("VLLM_USE_V1", Direction.SET, why, to="0", before=case.env("VLLM_USE_V1"))
    return OfAnotherVllm(
        f"{what} is of the V0 engine alone", (back, *((of_this_vllm(who),) if who is not None else ()))
    )


def _argument(case: Case, fault: Fault, owner: str, name: str) -> OfAnotherVllm | None:
    what = f"{owner.removesuffix('.__init__')}({name}=…)"
    record = owner.removesuffix(".__init__") if owner.endswith(".__init__") else None
    found = api.span("arguments", owner, name, case.version)
    root = fault.crash.root if fault.crash is not None else None
    if not _of_vllm_itself(fault):
        answer = _answer(case, what, found)
        return answer or (of_no_vllm(root, record, name) if root is not None and record is not None else None)
    if root is None or case.version is None or says(root.frames[-1].code, "makes-engine-arguments"):
        return None  # LLM(…) hands on what a program gives it
    cls, _, method = owner.partition(".")
    if method and not api.is_class(cls):
        who, came = beside_vllm(root), api.passed(method, name, case.version)
        return subclass_lacks(case, who, cls, f"the argument {name} of {method}", came) if who is not None else None
    plain = record or method or owner
    if found is not None and f"{plain}(" in root.frames[-1].code and not says(root.frames[-1].code, "call-spreads"):
        has = another_copy(case, f"no {what}, which is of {found.told}")
        return OfAnotherVllm(f"vLLM's own call does not fit vLLM's own {plain}", (has,))
    return None


def _required(case: Case, owner: str, names: list[str]) -> OfAnotherVllm | None:
    found = [(name, one) for name in names if (one := api.since("required", owner, name, case.version)) is not None]
    if not found:
        return None
    name, came = max(found, key=lambda one: as_version(one[1].since))
    what = f"{owner.removesuffix('.__init__')} needs the argument {name}"
    return OfAnotherVllm(f"{what} since vLLM {came.since}", (release_before(case, came),))


def _count(case: Case, owner: str) -> OfAnotherVllm | None:
    """Which arguments went last: a call by place then gives too many."""
    gone = api.went("arguments", owner, case.version)
    if gone is None:
        return None
    title = f"{owner.removesuffix('.__init__')} takes no argument {gone.name} since vLLM {gone.came.since}"
    return OfAnotherVllm(title, (release_before(case, gone.came),))


def _answer(case: Case, what: str, found: Lifetime | None, now: list[str] | None = None) -> OfAnotherVllm | None:
    if found is None:
        return None
    title = f"{what} is of vLLM {found.told}"
    here = f"vLLM {case.version_text} has what it asks for" if case.version is not None else "later releases have it"
    place = f"{here} in {' and '.join(now)}" if now else ""
    if not found.ended:
        newer = upgrade_to(case, as_version(found.first), "the program was written for a vLLM that has it")
        return OfAnotherVllm(title, (newer,)) if newer is not None else None
    told = f"; {place}" if place else ""
    older = thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.CHANGE,
        f"the program was written for one of these releases{told}: take the program's release for the installed vLLM, "
        "or this vLLM for it",
        to=found.last,
        before=case.version_text,
        command="pip show vllm",
    )
    return OfAnotherVllm(title, (older,), place)
