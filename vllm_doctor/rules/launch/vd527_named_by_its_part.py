"""VD527: a failure that the part of vLLM which failed names by its own sentence, with what cures it."""

from vllm_doctor.knowledge.layers import Layer, layer_of
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.faults_of_run import IMPORTS
from vllm_doctor.log.match import says
from vllm_doctor.log.traceback import in_packages
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import exception_line, severity
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.gates.refusals_with_rules import ITEM_POOLS
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answered_refusal import of_answer
from vllm_doctor.rules.remedies.asked_already import asked_already
from vllm_doctor.rules.remedies.client_input import JUDGED, other_input
from vllm_doctor.rules.remedies.decided import decided, stays
from vllm_doctor.rules.remedies.kernel_kind import operators
from vllm_doctor.rules.remedies.layer import answer_of, component, cures, first_of_each, layer, unforeseen
from vllm_doctor.rules.remedies.library import (
    built_with,
    called_library,
    called_otherwise,
    does_not_fit,
    raised_by_hand,
)
from vllm_doctor.rules.remedies.library_place import title_of_library_place
from vllm_doctor.rules.remedies.mentioned import mentioned
from vllm_doctor.rules.remedies.of_another_vllm import lacks_of_vllm
from vllm_doctor.rules.remedies.other_release import newer, or_another_release
from vllm_doctor.rules.remedies.own_words import changes_of_state, own_words
from vllm_doctor.rules.remedies.program import program
from vllm_doctor.rules.remedies.refusal import asked, by_place, refused_by_vllm
from vllm_doctor.rules.remedies.sentence import begins, first_words, problem
from vllm_doctor.rules.remedies.unfit_package import reader_of_transformers
from vllm_doctor.rules.say import finding

# Lines of a part's own that are said before any traceback, and that no other rule is about.
_LINES = frozenset(
    {
        "cuda-check-ended",
        "engine-iteration-timeout",
        "engine-loop-died",
        "engine-no-heartbeat",
        "habana-fatal",
        "neuron-compile-failed",
        "npu-kernel-late",
        "ucx-broken",
    }
)
# pydantic's heading above what a library's own check of a field says.
_QUOTES = frozenset({"validation-error"})
# What is not installed is no refusal of a value.
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "MemoryError"})
_TAKES = (
    "a newer release may support what the message names: each release supports more models, kernels and combinations"
)

_REFUTE = "the change is made, and the same call fails with the same message"


def judge(case: Case) -> Outcome:
    """Does the first failure's part have a name for what it said?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None or root.ids & (EXHAUSTED | IMPORTS) or (root.crash is None and not root.ids & _LINES):
        return NotHere("there is no traceback of a failure that is not memory")
    if reader_of_transformers(root) is not None:
        return Clear("another package read what an object of transformers does not have, which VD514 names")
    if root.crash is not None and any(says(root.crash.root.message, pool) for pool in ITEM_POOLS):
        return Clear("an item of a prompt is larger than a pool, and VD207 says by how much")
    if (others := _of_another_program(case, root)) is not None:
        return others
    part = layer(case, root)
    if part is None and (bare := _of_bare_state(case, root)) is not None:
        return bare
    answer = answer_of(case, root)
    checked = _bare_check(case, root, part)
    if (unfit := _of_library(case, root, part, answered=answer is not None)) is not None:
        return unfit
    broken = _broken(case, root, part)
    refuses = _refused(case, root, part) if part is not None else ""
    stated = problem(case, root, part, definite=True) if refuses and part is not None else ""
    substitute = component(case, root) if not root.ids else ""
    of_place = title_of_library_place(case, root, part) if root.ids <= _QUOTES else ""
    by_its_calls = (stated and substitute and stated) or substitute or broken or refuses or _operator(root, part)
    title = checked or of_place or (answer.title if answer is not None else by_its_calls)
    if part is None or not title:
        return Clear("the message and the calls of the failure name no part of vLLM that the doctor knows")
    if part.id != "requests" and case.run.client is not None:
        return NotHere("a client of the server wrote this")
    if of_place:
        changes = cures(case, root, part)
    elif title == refuses and not substitute:
        changes = _of_refusal(case, root, part)
    else:
        changes = _of_its_words(case, root, part, broken=title == broken)
    return finding(
        RULE,
        title=title,
        detail=first_words(case, root) if title in {broken, refuses, stated, of_place} else "",
        severity=Severity.DEGRADED if part.id == "requests" else severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=_evidence(case, root),
        changes=_that_help(case, root, changes),
        refute=_REFUTE,
        layer=part.id,
        then=part.next,
    )


def _evidence(case: Case, root: Fault) -> tuple[Evidence, ...]:
    return (exception_line(case, root) if root.crash is not None else case.line(root.index),)


def _of_another_program(case: Case, root: Fault) -> Finding | None:
    """A program around vLLM, or written for another vLLM. Which release has what the program takes says more than that
    its own is another one."""
    foreign, lacks = program(case, root), lacks_of_vllm(case, root)
    if foreign is None and lacks is None:
        return None
    own, of_vllm = foreign.changes if foreign is not None else (), lacks.changes if lacks is not None else ()
    whose = f", with the same release of {foreign.name}" if foreign is not None else ""
    return finding(
        RULE,
        title=foreign.title if foreign is not None else lacks.title if lacks is not None else "",
        detail=lacks.title if foreign is not None and lacks is not None else "",
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=_evidence(case, root),
        changes=first_of_each((*own[:1], *of_vllm, *own[1:])),
        refute=f"the same code works with this release of vLLM elsewhere{whose}",
    )


def _of_bare_state(case: Case, root: Fault) -> Finding | None:
    """A state that the program did not expect, in calls that are no part's, with what turns off the code of it."""
    bare = _cured_state(case, root)
    if bare is None:
        return None
    title, changes = bare
    return finding(
        RULE,
        title=title,
        detail=first_words(case, root),
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=_evidence(case, root),
        changes=changes,
        refute=_REFUTE,
    )


def _of_library(case: Case, root: Fault, part: Layer | None, *, answered: bool) -> Finding | None:
    """A library that was called otherwise than it takes, or that is of another time than this release."""
    called = called_otherwise(root)
    name = called or (None if answered else does_not_fit(root))
    if name is None:
        return None
    others = cures(case, root, part) if part is not None else ()
    return finding(
        RULE,
        title=f"{name} and this release of vLLM do not fit each other",
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=_evidence(case, root),
        changes=first_of_each((built_with(case, name, called=called is not None), *others)),
        refute=f"the installed {name} is one of those that this release of vLLM was built with",
        layer=part.id if part is not None else "",
        then=part.next if part is not None else "",
    )


def _of_its_words(case: Case, root: Fault, part: Layer, *, broken: bool) -> tuple[Change, ...]:
    """What the state, the message and the test above it ask for, then what cures the part."""
    return first_of_each(
        (
            *_of_state(case, root, broken),
            *_asked(case, root, part),
            *decided(case, root),
            *_in_its_words(case, root, cures(case, root, part)),
        )
    )


def _operator(root: Fault, part: Layer | None) -> str:
    """The problem where torch itself called an operator, which failed: the operator has a name."""
    called = operators(root) if part is not None and part.kernels and not root.ids else ()
    return f"The operator {called[-1].rpartition('/')[2]} fails" if called else ""


def _that_help(case: Case, root: Fault, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Without a newer release where that refuses the same value by the same test; where nothing is left, another."""
    kept = tuple(c for c in changes if c.direction is not Direction.UPGRADE) if stays(case, root) else changes
    return or_another_release(case, root, kept)


def _broken(case: Case, root: Fault, part: Layer | None) -> str:
    """The problem where nobody wrote a sentence: what Python or torch said, else that this part's own code failed."""
    if root.ids or part is None:
        return ""
    told = own_words(case, root, part)
    return told or (part.broken if unforeseen(root) else "")


def _cured_state(case: Case, root: Fault) -> tuple[str, tuple[Change, ...]] | None:
    """What Python or torch said without its calls, where its kind alone tells what cures it: the quoted last line."""
    bare = root.crash is not None and not root.crash.root.frames
    changes = changes_of_state(case, root) if bare and not root.ids else ()
    title = own_words(case, root, None) if changes else ""
    return (title, changes) if title else None


def _bare_check(case: Case, root: Fault, part: Layer | None) -> str:
    """A check without a sentence is its own best name, whoever's code it is in."""
    bare = root.crash is not None and root.crash.root.kind == "AssertionError" and not root.crash.root.message.strip()
    return own_words(case, root, part) if bare and not root.ids else ""


def _of_state(case: Case, root: Fault, told: bool) -> tuple[Change, ...]:
    return changes_of_state(case, root) if told else ()


def _in_its_words(case: Case, root: Fault, cures: tuple[Change, ...]) -> tuple[Change | None, ...]:
    """Where the request is all that can be set right: what vLLM itself answered about it comes first."""
    return (*of_answer(case, root), *cures) if cures[:1] and cures[0].name == "client-input" else cures


def _asked(case: Case, root: Fault, part: Layer) -> tuple[Change, ...]:
    """What a kernel's own check asks for; of a list of kernels each asks for what suits it alone."""
    several = root.crash is not None and says(root.crash.root.message, "no-kernel-of-several")
    return asked(case, root) if part.kernels and not several else ()


def _refused(case: Case, root: Fault, part: Layer) -> str:
    """The problem where somebody refuses in a sentence: vLLM, or a library, which few parts have no other word for."""
    if not _refuses(case, root, part):
        return ""
    vague = part.refuses or (part.library if called_library(root) is not None else "")
    return problem(case, root, part) or (begins(case, root, part.voice) if vague else "") or vague


def _refuses(case: Case, root: Fault, part: Layer) -> bool:
    """Did vLLM, or a library of this part, write a sentence on what it does not take, which no rule knows?"""
    crash = root.crash
    if root.ids or crash is None or not crash.root.frames or not crash.root.message.strip():
        return False
    if crash.root.kind in _MISSING:
        return False
    inner = crash.root.frames[-1]
    if called_library(root) is not None:
        return raised_by_hand(root) and layer_of((), (in_packages(inner.file),)) in {None, part}
    # torch's operators fail in a line of vLLM's that calls them, with a sentence of their own.
    own = inner.by_hand if inner.code else crash.root.kind != "RuntimeError"
    return own and refused_by_vllm(case, root)


def _of_refusal(case: Case, root: Fault, part: Layer) -> tuple[Change, ...]:
    """What the sentence asks for, the option that the refusing file obeys, the part's cures; else what it judged."""
    exact = asked(case, root)
    tested = () if exact else decided(case, root)
    # A value of config.json that this release's code does not know: newer releases know more of them.
    later = newer(case, root, _TAKES) if case.version is not None and any(c.name == "model" for c in tested) else None
    told = first_of_each(
        (
            *exact,
            *(asked_already(case, root) if not exact else ()),
            *tested,
            later,
            *mentioned(case, root, used=True),
            by_place(case, root),
            *cures(case, root, part),
        )
    )
    if told or called_library(root) is not None:
        return told  # what a library refuses, a newer vLLM with the same library refuses too
    if part.id not in JUDGED:
        return first_of_each((newer(case, root, _TAKES),))
    of_parameters = root.crash is not None and says(root.crash.root.frames[-1].file, "call-of-parameters")
    if case.run is None or not (case.run.up_at(root) or of_parameters):
        return ()  # no client has asked for anything yet
    return (other_input(),)


RULE = rule("VD527", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
