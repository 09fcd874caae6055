"""Which layer a failure belongs to that no rule knows, and what cures that layer's failures in general."""

from collections.abc import Callable, Sequence

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.layers import Answer, Layer, applies, layer_of
from vllm_doctor.knowledge.versions import FlagFact, Version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies.kernel import kind, other_kernel
from vllm_doctor.rules.remedies.requested_change import typed
from vllm_doctor.rules.say import environment, set_flag, thing, upgrade

# What Python raises where code did not expect its own state: no refusal of a value, so a defect of the release.
_DEFECTS = frozenset(
    {"AssertionError", "IndexError", "AttributeError", "UnboundLocalError", "KeyError", "TypeError", "NameError"}
    | {"ZeroDivisionError", "StopIteration", "RecursionError", "InvalidStateError"}
)
_CHANGES = 3


def layer(case: Case, fault: Fault) -> Layer | None:
    """The part that failed; None where neither its words nor its calls tell."""
    if fault.crash is None:
        return layer_of((text(case, fault)[:2000],), ())
    said = [f"{link.kind}: {link.message[:2000]}" for link in fault.crash.links]
    return layer_of(said, [f.file.replace("\\", "/") for f in fault.crash.root.frames])


def cures(case: Case, fault: Fault, part: Layer) -> tuple[Change, ...]:
    """What cures failures of this part, as far as the release has it."""
    offered: list[Change | None] = [*changes_of(case, part.answers, text(case, fault))]
    if part.kernels and not _of_python(fault) and kind(case, fault) is not None:
        offered += other_kernel(case, fault)
    if _defect(fault):
        why = "vLLM's own code did not expect this: a defect of the release; a newer one may have it mended"
        offered.append(upgrade(case, why))
    once: dict[tuple[ChangeKind, str], Change] = {}
    for change in offered:
        if change is not None:
            once.setdefault((change.kind, change.name), change)
    return tuple(once.values())[:_CHANGES]


def changes_of(case: Case, answers: Sequence[Answer], said: str) -> tuple[Change, ...]:
    """The answers whose sentence is in `said`, as changes that this release has."""
    made = (_change(case, a) for a in answers if applies(a, said))
    return tuple(change for change in made if change is not None)[:_CHANGES]


def _change(case: Case, answer: Answer) -> Change | None:
    match answer.kind:
        case "upgrade":
            return upgrade(case, answer.why)
        case "env":
            name = answer.options[0]
            ours = name.startswith("VLLM_") and case.has_env(name) is None
            if (ours and not _of_some_release(case, versions.env, name)) or answer.to == (case.env(name) or ""):
                return None
            return environment(name, answer.direction, answer.why, to=answer.to, command=answer.command)
        case "os" | "package":
            of = ChangeKind.OS if answer.kind == "os" else ChangeKind.PACKAGE
            return thing(of, answer.options[0], answer.direction, answer.why, to=answer.to, command=answer.command)
        case "flag":
            return _flag(case, answer)


def _flag(case: Case, answer: Answer) -> Change | None:
    name = next((o for o in answer.options if case.has_flag(o) is not None), "")
    if name:
        return set_flag(case, name, typed(answer.to), answer.direction, answer.why)
    name = next((o for o in answer.options if _of_some_release(case, versions.flag, o)), "")
    if not name or answer.direction is Direction.REMOVE:
        return None
    why = f"{answer.why} (in the releases that have this option; the log does not tell its release)"
    review = Applicability.NEEDS_REVIEW
    return Change(ChangeKind.FLAG, name, None, typed(answer.to), answer.direction, review, None, {}, why)


def _of_some_release(case: Case, known: Callable[[str, Version | str], FlagFact | None], name: str) -> bool:
    """Is the release unknown, and does an older one have it than the newest?"""
    return case.version is None and known(name, versions.newest_known()) is not None


def _of_python(fault: Fault) -> bool:
    """Did Python fail before any kernel ran?"""
    return fault.crash is not None and fault.crash.root.kind in _DEFECTS


def _defect(fault: Fault) -> bool:
    """Did code of vLLM fail on its own state?"""
    if fault.crash is None or not fault.crash.root.frames:
        return False
    root = fault.crash.root
    refusal = says(root.message, "refusal")  # a sentence that says what is not supported was foreseen
    return root.kind in _DEFECTS and not refusal and says(root.frames[-1].file, "call-of-vllm")
