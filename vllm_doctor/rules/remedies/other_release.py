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
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.library import called_library, raised_by_hand
from vllm_doctor.rules.remedies.runs_behind import with_its_feature
from vllm_doctor.rules.say import release_to, upgrade

# The calls next to the failure: what is further out hands on what it was given.
_CALLS = 3
# A defect that came with a release is met in it or the next ones; from older code nobody goes back.
_RECENT = 3
_TORCH = "torch"


def newer(case: Case, fault: Fault, why: str) -> Change | None:
    """A newer vLLM, and what it changed where this one failed; None where it has the very code, or there is none.
    `why` stands where nothing is known of that."""
    told = _histories(case, fault)
    # What vLLM refuses in a sentence it may refuse by a table that stands elsewhere.
    unknown = not told or raised_by_hand(fault)
    return _newer(case, told) if _changed(told) is not None else upgrade(case, why) if unknown else None


def newer_on_the_way(case: Case, fault: Fault) -> Change | None:
    """A newer release that changed one of the calls shown, of a traceback that ends before the one that failed."""
    changed = _changed(_histories(case, fault))
    if changed is None:
        return None
    way = f"{changed.changed} changed `{changed.name}`, one of the last calls that are shown: it may be fixed there"
    return upgrade(case, way)


def or_another_release(case: Case, fault: Fault, changes: Iterable[Change | None]) -> tuple[Change, ...]:
    """The changes; where none is of the launch, what turns off that for which the failing code ran; where there is
    none, a release that has other code there."""
    known = with_its_feature(case, fault, [one for one in changes if one is not None])
    histories = () if known else _histories(case, fault)
    another = (_newer(case, histories) if not raised_by_hand(fault) else None) or _older(case, histories)
    return (another,) if another is not None else known


def _newer(case: Case, told: Sequence[FunctionHistory]) -> Change | None:
    """The newest release, and which one changed the code; None where none did."""
    changed = _changed(told)
    if changed is None:
        return None
    way = _way(changed, told)
    why = f"{changed.changed} changed `{changed.name}`, {way}: it may be fixed there"
    if changed.gone:
        why = f"from {changed.changed} on this file has no `{changed.name}`, {way}: other code does its work"
    older = _older(case, told)
    return upgrade(case, why + (f"; {older.after} has older code there" if older is not None else ""))


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


def _way(one: FunctionHistory, told: Sequence[FunctionHistory]) -> str:
    return "in which it failed" if one is told[0] else "which led to the failure"


def _older(case: Case, told: Sequence[FunctionHistory]) -> Change | None:
    """The release before the one that brought the code, where that is one of the last."""
    # A plugin is made for one release; of several that it can be the release before may be the one that runs.
    if case.version is None or case.plugin is not None or len(case.version_by_code) > 1:
        return None
    recent = last_releases(case.version, _RECENT)
    for one in told:
        if one.before is None or one.since is None or one.since not in recent or not _takes(case, one.before):
            continue
        why = f"{one.since} brought this code of `{one.name}`, {_way(one, told)}; {one.before} has other code there"
        return release_to(case, one.before, Direction.DOWNGRADE, why)
    return None


def _takes(case: Case, release: str) -> bool:
    """Has the release the model and all options of the launch?"""
    at = as_version(release)
    known = case.run.first("architecture") if case.run is not None else None
    if known is not None and not history("models", "architectures").exists(known.fields["architecture"], at):
        return False
    return all((fact := versions.flag(name, at)) is not None and fact.exists for name in case.flags if name != "model")
