"""The ramp on a live service: one trial after another, each judged before the next, and always the way back.

The order that keeps it safe: nothing is changed before the guard is armed; a trial is written down before it is tried;
whatever ends the ramp (an end, an error, Ctrl-C), what served before is put back and answers before we leave.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from vllm_doctor.operate.tune import state as tune_state
from vllm_doctor.operate.tune.decide import Allowed, Limits, Measured, Stop, TrialSetting, best, following
from vllm_doctor.operate.tune.load_generator import LoadResult, percentile
from vllm_doctor.operate.tune.unit import OutOfTime, TuneNotDone
from vllm_doctor.operate.tune.watch import ScrapePeaks

Clock = Callable[[], float]


class Service(Protocol):
    """The service under trial; what the ramp does to it and asks of it. Every call may raise NotDone."""

    def guard(self, seconds: int) -> None:
        """Arm what ends the trials if we cannot."""

    def apply(self, setting: TrialSetting) -> None:
        """Restart the service with this setting."""

    def ready(self, within_s: float) -> str | None:
        """Wait until it answers; why it does not."""

    def measure(self, at_once: int, within_s: float) -> tuple[LoadResult, ScrapePeaks]:
        """Put the load on it and watch. Raises OutOfTime where `within_s` seconds do not do."""

    def alive(self) -> str | None:
        """Why it is not the same healthy process as before the load, or None."""

    def explain(self) -> str | None:
        """The doctor's word on why it failed, if it has one."""

    def restore(self) -> bool:
        """End the trial: what was there before serves again. False where no trial was under way."""


class Ramp(msgspec.Struct, frozen=True):
    """What is to be done. Times are in seconds; `budget_s` bounds the whole, a step that has begun included, and the
    way back not counted."""

    start: TrialSetting
    limits: Limits
    allowed: Allowed
    budget_s: float
    ready_s: float
    state: Path
    key: str
    as_it_stands: bool = True


class RampEnd(msgspec.Struct, frozen=True):
    """How the ramp ended. `restored` is False when what served before does not answer again: then `why` says so."""

    rows: tuple[Measured, ...]
    best: Measured | None
    why: str
    complete: bool
    restored: bool = True
    resumed: int = 0


def ramp(what: Ramp, host: Service, say: Callable[[str], None], clock: Clock = time.monotonic) -> RampEnd:
    """Climb until a stop. KeyboardInterrupt goes on to the caller after the service was put back."""
    state = tune_state.load(what.state, what.key)
    resumed = len(state.rows)
    if resumed:
        say(f"continues from {resumed} rows that an earlier run measured ({what.state})")
    why, complete, restored = "", False, True
    try:
        state, why, complete = _climb(what, state, host, say, clock)
    except TuneNotDone as problem:
        state, why = _kept(what), str(problem)
    except KeyboardInterrupt:
        # Cut off by a person, not by the setting: it may be tried again.
        tune_state.save(what.state, _kept(what))
        raise
    finally:
        left = _put_back(host, what.ready_s, say)
        if left is not None:
            say(left)
            restored, why = False, f"{left}; before that: {why}" if why else left
    return RampEnd(state.rows, best(state.rows, what.limits) if state.rows else None, why, complete, restored, resumed)


def _kept(what: Ramp) -> tune_state.TuneState:
    """The finished rows on disk."""
    kept = tune_state.load(what.state, what.key)
    rows = tuple(r for r in kept.rows if r.problem != tune_state.CUT_OFF)
    return msgspec.structs.replace(kept, rows=rows, trying=None)


def _climb(
    what: Ramp, state: tune_state.TuneState, host: Service, say: Callable[[str], None], clock: Clock
) -> tuple[tune_state.TuneState, str, bool]:
    end = clock() + what.budget_s
    longest = 0.0
    while True:
        step = following(state.rows, what.limits, what.allowed) if state.rows else what.start
        if isinstance(step, Stop):
            return state, step.why, True
        if clock() + longest > end:
            return (
                state,
                f"the time is used up; the next step would be {setting_text(step)} (run tune again to continue)",
                False,
            )
        began = clock()
        changed = bool(state.rows) or not what.as_it_stands
        if changed:
            host.guard(int(end - began + 2 * what.ready_s + 600))
        tune_state.save(what.state, msgspec.structs.replace(state, trying=step))
        say(f"tries {setting_text(step)}")
        try:
            measured = _try(what, step, host, lambda: end - clock(), changed=changed)
        except OutOfTime:
            state = msgspec.structs.replace(state, trying=None)
            tune_state.save(what.state, state)
            why = f"the time is used up while {setting_text(step)} was tried, so that setting has no result"
            return state, f"{why} (run tune again with more --minutes to continue)", False
        except TuneNotDone as refused:
            measured = Measured(step, problem=str(refused))
        state = msgspec.structs.replace(state, rows=(*state.rows, measured), trying=None)
        tune_state.save(what.state, state)
        longest = max(longest, clock() - began)
        say(told_trial(measured))


def _try(what: Ramp, step: TrialSetting, host: Service, left: Callable[[], float], *, changed: bool) -> Measured:
    if changed:
        host.apply(step)
    problem = host.ready(max(0.0, min(what.ready_s, left())))
    if problem is not None:
        if left() <= 0:
            raise OutOfTime
        return Measured(step, problem=host.explain() or problem)
    load, seen = host.measure(step.seqs, left())
    problem = host.alive()
    return row(step, load, seen, problem=(host.explain() or problem) if problem else "")


def row(setting: TrialSetting, load: LoadResult, seen: ScrapePeaks, *, problem: str = "") -> Measured:
    """The figures of one step."""
    first = [s.first_s * 1000 for s in load.streams]
    between = [b * 1000 for s in load.streams for b in s.between_s]
    if not problem and seen.preemptions is None:
        problem = "the server's metrics could not be read, so preemptions cannot be watched"
    return Measured(
        setting=setting,
        requests=len(load.streams),
        errors=len(load.errors),
        output_tps=round(load.output_tps, 2),
        ttft_ms=percentile(first, 0.5),
        ttft_p99_ms=percentile(first, 0.99),
        itl_ms=percentile(between, 0.5),
        itl_p99_ms=percentile(between, 0.99),
        kv_peak=seen.kv_peak,
        running_peak=seen.running_peak,
        waiting_peak=seen.waiting_peak,
        preemptions=seen.preemptions,
        memory_free=seen.memory_free,
        problem=problem or (load.errors[0] if load.errors and not load.streams else ""),
    )


def _put_back(host: Service, ready_s: float, say: Callable[[str], None]) -> str | None:
    """End the trial; why what served before does not serve again, or None."""
    try:
        if not host.restore():
            return None
        say("restores the earlier configuration")
        problem = host.ready(ready_s)
    except TuneNotDone as refused:
        problem = str(refused)
    return None if problem is None else f"the earlier configuration DOES NOT ANSWER: {problem}"


def setting_text(setting: TrialSetting) -> str:
    """The setting as a person says it."""
    tokens = "" if setting.tokens is None else f", {setting.tokens} tokens a step"
    return f"{setting.seqs} sequences{tokens}"


def told_trial(row: Measured) -> str:
    """One line about a row, for whoever waits."""
    if row.problem:
        return f"  {row.problem}"
    kv = "unknown" if row.kv_peak is None else f"{row.kv_peak:.0%}"
    return f"  {row.output_tps:.0f} tokens/s, KV use at most {kv}, {row.errors} errors"
