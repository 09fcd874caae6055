"""Whether another release of vLLM runs other code where this one failed, by the functions that the calls name.

Of 74 defects in vllm_doctor/knowledge/known_issues whose first release without them is known, that release changed a
function of the failing calls in 65; of 55 whose first release is known, that one had changed one of them in 50.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

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


def of_other_releases(case: Case, fault: Fault, offered: Iterable[Change | None]) -> tuple[Change, ...]:
    """The same changes, a newer vLLM with what it changed, or without it where it changed nothing. Where no release is
    among them: the one before the code that failed came; where nothing is, a newer one that changed it."""
    changes = tuple(one for one in offered if one is not None)
    told = list(_histories(case, fault))
    if not told or case.version is None:
        return changes
    # What vLLM refuses in a sentence it may refuse by a table that stands elsewhere.
    refuses = raised_by_hand(fault)
    changed = next((one for one in told if one.changed is not None), None)
    older = _older(case, told)
    if changed is not None:
        why = _newer(changed)
        before = f"; {older.after} has older code there" if older is not None else ""
        changes = tuple(replace(one, why=why + before) if _is_newer(one) else one for one in changes)
        newer = upgrade(case, why + before) if not changes and not refuses else None
        changes = (*changes, newer) if newer is not None else changes
    elif not refuses:
        changes = tuple(one for one in changes if not _is_newer(one))
    return (*changes, older) if older is not None and not any(map(_is_release, changes)) else changes


def _histories(case: Case, fault: Fault) -> Iterator[FunctionHistory]:
    """Of the calls next to the failure, the innermost first."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or case.version is None or called_library(fault) not in {None, _TORCH}:
        return
    # What a compiler runs is other code than that which it was made from.
    if any(says(frame.file, "call-of-compiler") for frame in root.frames):
        return
    for frame in _own(root.frames)[-1 : -_CALLS - 1 : -1]:
        if (found := history_of(CodePlace(frame.file, frame.line, frame.function), case.version)) is not None:
            yield found


def _own(frames: tuple[Frame, ...]) -> list[Frame]:
    return [one for one in frames if says(one.file, "call-of-vllm")]


def _newer(one: FunctionHistory) -> str:
    if one.gone:
        return f"from {one.changed} on this file has no `{one.name}`, in which it failed: other code does its work"
    return f"{one.changed} changed `{one.name}`, in which it failed: it may be fixed there"


def _older(case: Case, told: list[FunctionHistory]) -> Change | None:
    """The release before the one that brought the code, where that is one of the last."""
    recent = last_releases(case.version, _RECENT) if case.version is not None else ()
    if len(case.version_by_code) > 1:
        recent = ()  # the release before may be the one that runs
    for one in told:
        if one.before is None or one.since is None or one.since not in recent or not _takes(case, one.before):
            continue
        why = f"{one.since} brought this code of `{one.name}`, in which it failed; {one.before} has other code there"
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


def _is_newer(change: Change) -> bool:
    return _is_release(change) and change.direction is Direction.UPGRADE


def _is_release(change: Change) -> bool:
    return change.name == "vllm-version"
