"""Whether another release of vLLM runs other code where this one failed, by the functions that the calls name.

Of 74 defects in vllm_doctor/knowledge/known_issues whose first release without them is known, that release changed a
function of the failing calls in 65; of 55 whose first release is known, that one had changed one of them in 50.
"""

from collections.abc import Iterable, Sequence

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.functions import CodePlace, FunctionHistory, history_of, last_releases
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.traceback import Frame
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.library import called_library, raised_by_hand
from vllm_doctor.rules.say import thing, upgrade

# The calls next to the failure: what is further out hands on what it was given.
_CALLS = 3
# A defect that came with a release is met in it or the next ones; from older code nobody goes back.
_RECENT = 3
_TORCH = "torch"


def newer(case: Case, fault: Fault, why: str) -> Change | None:
    """A newer vLLM, and what it changed where this one failed; None where it has the very code, or there is none.
    `why` stands where nothing is known of that."""
    told = _histories(case, fault)
    changed = _changed(told)
    if changed is not None:
        older = _older(case, told)
        way = "in which it failed" if changed is told[0] else "which led to the failure"
        before = f"; {older.after} has older code there" if older is not None else ""
        return upgrade(case, _what_changed(changed, way) + before)
    # What vLLM refuses in a sentence it may refuse by a table that stands elsewhere.
    return upgrade(case, why) if not told or raised_by_hand(fault) else None


def or_another_release(case: Case, fault: Fault, changes: Iterable[Change | None]) -> tuple[Change, ...]:
    """The changes; where there is none, a release that has other code where this one failed."""
    known = tuple(one for one in changes if one is not None)
    told = () if known else _histories(case, fault)
    changed = _changed(told)
    another = newer(case, fault, "") if changed is not None and not raised_by_hand(fault) else None
    another = another or _older(case, told)
    return (another,) if another is not None else known


def _changed(told: Sequence[FunctionHistory]) -> FunctionHistory | None:
    return next((one for one in told if one.changed is not None), None)


def _histories(case: Case, fault: Fault) -> Sequence[FunctionHistory]:
    """Of the calls next to the failure, the innermost first; none where one of them stands elsewhere: another build."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or case.version is None or called_library(fault) not in {None, _TORCH}:
        return ()
    # What a compiler runs is other code than that which it was made from.
    if any(says(frame.file, "call-of-compiler") for frame in root.frames):
        return ()
    nearest = [CodePlace(one.file, one.line, one.function) for one in _own(root.frames)[: -_CALLS - 1 : -1]]
    found = [one for place in nearest if (one := history_of(place, case.version)) is not None]
    return found if len(found) == len(nearest) else ()


def _own(frames: tuple[Frame, ...]) -> list[Frame]:
    return [one for one in frames if says(one.file, "call-of-vllm") and not one.function.startswith("<")]


def _what_changed(one: FunctionHistory, way: str) -> str:
    if one.gone:
        return f"from {one.changed} on this file has no `{one.name}`, {way}: other code does its work"
    return f"{one.changed} changed `{one.name}`, {way}: it may be fixed there"


def _older(case: Case, told: Sequence[FunctionHistory]) -> Change | None:
    """The release before the one that brought the code, where that is one of the last."""
    recent = last_releases(case.version, _RECENT) if case.version is not None else ()
    if len(case.version_by_code) > 1:
        recent = ()  # the release before may be the one that runs
    for one in told:
        if one.before is None or one.since is None or one.since not in recent or not _takes(case, one.before):
            continue
        way = "in which it failed" if one is told[0] else "which led to the failure"
        why = f"{one.since} brought this code of `{one.name}`, {way}; {one.before} has other code there"
        return thing(
            ChangeKind.PACKAGE,
            "vllm-version",
            Direction.DOWNGRADE,
            why,
            to=one.before,
            before=case.version_text,
            inventory="vllm_version",
        )
    return None


def _takes(case: Case, release: str) -> bool:
    """Has the release the model and all options of the launch?"""
    at = as_version(release)
    known = case.run.first("architecture") if case.run is not None else None
    if known is not None and not history("models", "architectures").exists(known.fields["architecture"], at):
        return False
    return all((fact := versions.flag(name, at)) is not None and fact.exists for name in case.flags if name != "model")
