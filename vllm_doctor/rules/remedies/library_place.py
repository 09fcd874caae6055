"""A library's own refusal, by what the place in its code does for vLLM, and by the variable that its sentence names.

Such a sentence speaks of a file, a setting or a request in the library's words; another release of vLLM refuses it too.
"""

import shlex

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.cuda_statuses import worded
from vllm_doctor.knowledge.distributions import listed
from vllm_doctor.knowledge.layers import Layer, layer_of
from vllm_doctor.knowledge.library_places import LibraryPlace, library_place_of
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, read, says
from vllm_doctor.log.sentence_call import kind_raised, told_by_words
from vllm_doctor.log.traceback import Link, in_packages
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.redact.raised import reads_requests
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies import library
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.in_time import in_time
from vllm_doctor.rules.remedies.missing_module import fitting
from vllm_doctor.rules.remedies.sentence import begins, first_words, problem
from vllm_doctor.rules.say import environment, thing

# What Python raises by itself in code that did not expect its own state: by hand alone it is about a value.
_OF_PYTHON = frozenset({"TypeError", "KeyError", "AttributeError", "IndexError", "AssertionError"})
_VARIABLES, _PACKAGES, _READ = 2, 1, 1000
_INSTALL = "the message itself asks for this package"
_NAMED = "the message is about this variable: give it a value that the message accepts, or unset it"
_ASKED = "the message itself names this value"


def library_place(case: Case, fault: Fault) -> LibraryPlace | None:
    """Where in a library the failure stands; None in vLLM's own code, and where nobody has read the place."""
    root = fault.crash.root if fault.crash is not None and fault.crash.root.frames else None
    inner = library.innermost(fault)
    if root is None or inner is None or says(inner.file, "call-of-vllm"):
        return None
    kind = kind_raised(root)
    found = library_place_of(inner.file, inner.function, kind, serving=_serving(case, fault, root))
    if found is None or (kind in _OF_PYTHON and not inner.by_hand):
        return None
    if not found.kinds and not inner.by_hand:
        return None
    return None if _named_by_its_words(root) else found


def _serving(case: Case, fault: Fault, root: Link) -> bool | None:
    """Was the server up? None where a line was quoted alone, with nothing of a start above it."""
    run = case.run
    if run is not None and (run.up_at(fault) or fault is run.refused):
        return True
    alone = run is None or not any(at < fault.index for at, _ in run.miles)
    return None if alone and told_by_words(root) else False


def _named_by_its_words(root: Link) -> bool:
    """Has the part an answer to these very words? They say more than the file in which they stand; a class alone, or
    an answer to whatever is said, does not."""
    bare = f"{root.kind}: "
    words = bare + root.message
    part = layer_of((worded(words),), [in_packages(frame.file) for frame in root.frames])
    answers = part.answers if part is not None else ()
    return any(one.title and one.said and applies(one, words) and not applies(one, bare) for one in answers)


def changes_of_library_place(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The packages and variables that a library's sentence names, and what the place reads."""
    here = library_place(case, fault)
    return (
        *packages_and_variables(case, fault),
        *(changes_of(case, in_time(case, fault, here.answers), text(case, fault)) if here is not None else ()),
    )


def title_of_library_place(case: Case, fault: Fault, part: Layer | None) -> str:
    """The library's own sentence where it says more than the place and may be shown whole; empty without a place."""
    here = library_place(case, fault)
    if here is None or part is None:
        return ""
    told = (problem(case, fault, part) or begins(case, fault, part.voice)) if here.stated else ""
    return told if told and HIDDEN not in first_words(case, fault) else here.title


def packages_and_variables(case: Case, fault: Fault) -> tuple[Change, ...]:
    """What a library's own sentence names beside the options of vLLM: packages to install, and variables."""
    return (*packages(case, fault), *variables(case, fault))


def asked_in_words(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The same of whoever raised it: where nothing else is known of a failure, what its sentence asks for is."""
    return (*packages(case, fault, whoever=True), *variables(case, fault, whoever=True))


def packages(case: Case, fault: Fault, *, whoever: bool = False) -> tuple[Change, ...]:
    """Packages that a library's own sentence asks for, of those that may be named in a command."""
    own, said = library.called_library(fault), _own_words(fault, whoever=whoever)
    made: dict[str, Change] = {}
    for found in each("package-to-install", said):
        name, extra = listed(found["name"]), found.get("extra")
        if name is None or (name == own and not extra):
            continue
        to = f"{name}[{extra}]" if extra else fitting(case, name)
        command = f"pip install {shlex.quote(to or name)}"
        made.setdefault(name, thing(ChangeKind.PACKAGE, name, Direction.ADD, _INSTALL, to=to, command=command))
    return tuple(made.values())[:_PACKAGES]


def variables(case: Case, fault: Fault, *, whoever: bool = False) -> tuple[Change, ...]:
    """Environment variables that a library's own sentence names: what it reads beside the options of vLLM."""
    said = _own_words(fault, whoever=whoever)
    asked = read("variable-to-set", said)
    if asked is not None:
        return (environment(asked["name"], Direction.SET, _ASKED, to=asked["value"]),)
    names = dict.fromkeys(found["name"] for found in each("variable-named", said))
    return tuple(
        environment(name, Direction.CHANGE, _NAMED, before=case.env(name), command=f"env | grep {name}")
        for name in list(names)[:_VARIABLES]
    )


def _own_words(fault: Fault, *, whoever: bool) -> str:
    """What a library itself wrote of a failure; empty where no library raised it, or the words may be a client's."""
    crash = fault.crash
    if crash is None or reads_requests(crash):
        return ""
    own = library.called_library(fault) is not None and library.raised_by_hand(fault)
    return crash.root.message[:_READ] if own or whoever else ""
