"""VD313: hours of the guard's records show a memory that grows and never comes back, against a pool that is in use."""

import shlex

from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Arithmetic, Evidence
from vllm_doctor.records.past import Growth
from vllm_doctor.records.reading import Unknown
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, gib, thing

_DAY = 24.0
_SOURCE = "the guard's records"


def judge(case: Case) -> Outcome:
    """Does the low end of any memory's pace lie above zero?"""
    past, unit = case.past, case.unit
    if isinstance(case.reading(Signal.PAST), Unknown):
        return Unseen(frozenset({Signal.PAST}))
    if past is None or not past.growths:
        return NotHere("no guard has kept hours of records of this run")
    grown = [one for one in past.growths if one.sure]
    if not grown:
        hours = max(one.hours for one in past.growths)
        return Clear(f"over {hours:.0f} h its memory shows no steady growth")
    worst = min(grown, key=lambda one: one.hours_left if one.hours_left is not None else float("inf"))
    left = worst.hours_left
    name = unit.name if unit is not None else "the service"
    return finding(
        RULE,
        title=f"{excerpt.word(worst.what)} grows by {worst.pace:.2f} GiB an hour for {worst.hours:.0f} h",
        severity=Severity.WILL_FAIL_UNDER_LOAD if left is not None and left <= _DAY else Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence(_SOURCE, one.what, _told(one)) for one in grown),
        arithmetic=_sums(worst),
        changes=(
            thing(
                ChangeKind.OS,
                name,
                Direction.REPAIR,
                "restart it in a quiet moment before the limit is reached, and report the growth with a bundle",
                command=f"vllm-doctor bundle && systemctl restart {shlex.quote(name)}",
            ),
        ),
        refute="the memory levels off below the limit within the same time again",
    )


def _sums(one: Growth) -> tuple[Arithmetic, ...]:
    sums = [
        gib("an hour", one.pace, f"median of slopes, between {one.low:.3f} and {one.high:.3f}", _SOURCE),
        gib("now", one.now, "the last record", _SOURCE),
    ]
    if one.limit is not None:
        sums.append(gib("limit", one.limit, "its limit (MemoryMax, or the GPU)", _SOURCE))
    if one.hours_left is not None:
        sums.append(Arithmetic("until the limit", round(one.hours_left, 1), "h", "(limit − now) / pace", _SOURCE))
    return tuple(sums)


def _told(one: Growth) -> str:
    limit = "" if one.limit is None else f" of {one.limit:.2f}"
    pace = f"{one.pace:+.3f} GiB an hour ({one.low:.3f} to {one.high:.3f})"
    return f"{pace} over {one.hours:.1f} h; {one.now:.2f}{limit} now"


RULE = rule("VD313", reads=frozenset({Signal.PAST, Signal.UNIT}), judge=judge)
