"""An exception of C++ that nobody caught: its class and its reason say more than the abort that follows."""

from typing import NamedTuple

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.cuda_statuses import worded
from vllm_doctor.knowledge.layers import layer_of
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.say import environment, thing, upgrade

# libstdc++ writes the reason below the class, each in a line; other processes may write between.
_REASON, _BELOW = "what():", 6
# The classes of the standard library that tell what a value was.
_SIZES = frozenset({"std::length_error", "std::bad_array_new_length"})
_TITLES = {
    "std::out_of_range": "Native code read past the end of a table",
    "std::bad_function_call": "Native code called a function that was never set",
    "std::bad_cast": "Native code got an object of another class than it expects",
    "std::future_error": "Native code waited for a result of a thread that has ended",
}


class Uncaught(NamedTuple):
    """The line of the exception, that of its reason where there is one, the problem, and what to do."""

    lines: tuple[int, ...]
    title: str
    changes: tuple[Change | None, ...]


def uncaught(case: Case, run: AnalysedRun) -> Uncaught | None:
    """None where no process ended with one."""
    hit = run.first("cpp-exception")
    if hit is None:
        return None
    at = _reason(run, hit)
    why = run.lines[at].text.partition(_REASON)[2].strip() if at is not None else ""
    return Uncaught((hit.index, *((at,) if at is not None else ())), *_told(case, hit.fields["what"], why))


def _reason(run: AnalysedRun, hit: Hit) -> int | None:
    below = range(hit.index, min(len(run.lines), hit.index + _BELOW))
    return next((i for i in below if _REASON in run.lines[i].text), None)


def _told(case: Case, kind: str, why: str) -> tuple[str, tuple[Change | None, ...]]:
    newer = upgrade(case, "native code did not expect this: a defect that a newer release may be free of")
    dump = environment(
        "PYTHONFAULTHANDLER",
        Direction.SET,
        "Python then writes the calls of the next crash: judge that log",
        to="1",
        command="coredumpctl info   # the calls of this one, where the host keeps core dumps",
    )
    if kind == "std::system_error" and says(why, "thread-refused"):
        limit = thing(
            ChangeKind.OS,
            "TasksMax",
            Direction.RAISE,
            "the unit, the container or the user has reached its limit of threads (TasksMax, pids.max, ulimit -u)",
            command="cat /sys/fs/cgroup/system.slice/UNIT/pids.max; ulimit -u",
        )
        return "No more processes or threads may be started", (limit,)
    if kind in _SIZES:
        return "Native code asked for an array of an impossible size", (newer, dump)
    if kind in _TITLES:
        return _TITLES[kind], (newer, dump)
    return _of_its_part(case, kind, why, dump) or (_by_reason(kind, why), (dump, newer))


def _of_its_part(case: Case, kind: str, why: str, dump: Change) -> tuple[str, tuple[Change | None, ...]] | None:
    """The part that knows this reason, as it would where Python had passed the exception on."""
    said = worded(f"{kind}: {why}")
    part = layer_of((said,), ()) if why else None
    changes = changes_of(case, part.answers, said) if part is not None else ()
    if part is None or not changes:
        return None
    named = next((answer.title for answer in part.answers if answer.title and applies(answer, said)), "")
    return named or _by_reason(kind, why), (*changes[:2], dump)


def _by_reason(kind: str, why: str) -> str:
    """The exception's own reason, as far as a title holds it; else its class."""
    told = excerpt.said(why) if why and why != kind else ""
    whole = f"Native code ended: {told}"
    if told and len(whole) <= excerpt.TITLE:
        return whole
    if told:
        return whole[: excerpt.TITLE - 2].rsplit(" ", 1)[0] + " …"
    return f"Native code ended with an exception that nobody caught: {kind}"[: excerpt.TITLE]
