"""The ramp's judgement: given what was measured, is it good, and what is tried next? No clock, no host.

The rows are the whole state, so a run that was cut off continues from its rows, and recorded figures test it.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

STEPS = (2.0, 1.5, 1.25)
# Between the best and the first bad value one more is tried when it is this far from both.
NARROW = 1.15


class TrialSetting(msgspec.Struct, frozen=True):
    """What a step tries. `tokens` None leaves max_num_batched_tokens as it is."""

    seqs: int
    tokens: int | None = None


class Limits(msgspec.Struct, frozen=True):
    """Where growth ends. Shares lie between 0 and 1, latencies are in milliseconds, None is no limit.

    0.90 of the pool leaves room for requests longer than those of the load; above it a longer one preempts another.
    `slowdown` is the p99 between tokens against the first row's; `gain` is the throughput that a step must add.
    """

    kv_use: float = 0.90
    slowdown: float = 2.0
    gain: float = 0.03
    memory_free: float = 0.02
    ttft_ms: float | None = None
    itl_ms: float | None = None


class Measured(msgspec.Struct, frozen=True):
    """One step as measured; None is what the server or the host did not tell. `problem` is why it was cut short."""

    setting: TrialSetting
    requests: int = 0
    errors: int = 0
    output_tps: float = 0.0
    ttft_ms: float | None = None
    ttft_p99_ms: float | None = None
    itl_ms: float | None = None
    itl_p99_ms: float | None = None
    kv_peak: float | None = None
    running_peak: float | None = None
    waiting_peak: float | None = None
    preemptions: float | None = None
    memory_free: float | None = None
    problem: str = ""


class Stop(msgspec.Struct, frozen=True):
    """There is nothing more to try, and why."""

    why: str


Allowed: TypeAlias = Callable[[TrialSetting], str | None]
"""Why a setting must not be tried (the plan's sum, the pool, a limit that was asked for); None when it may."""


def trouble(row: Measured, first: Measured, limits: Limits) -> str | None:
    """Why this row is no place to stay, or None. The order is that of the harm."""
    if row.problem:
        return row.problem
    if row.errors:
        return f"{row.errors} of {row.requests + row.errors} requests failed"
    if not row.requests:
        return "no request finished within one step: allow more time, or use a shorter load"
    if row.preemptions:
        return f"{row.preemptions:g} preemptions: the KV cache was full"
    if row.kv_peak is not None and row.kv_peak > limits.kv_use:
        return f"KV use reached {row.kv_peak:.0%}, above {limits.kv_use:.0%}"
    if row.memory_free is not None and row.memory_free < limits.memory_free:
        return f"only {row.memory_free:.1%} of the memory stayed free"
    if limits.ttft_ms is not None and row.ttft_p99_ms is not None and row.ttft_p99_ms > limits.ttft_ms:
        return f"first token after {row.ttft_p99_ms:.0f} ms (99th percentile), above {limits.ttft_ms:.0f}"
    if limits.itl_ms is not None and row.itl_p99_ms is not None and row.itl_p99_ms > limits.itl_ms:
        return f"{row.itl_p99_ms:.0f} ms between tokens (99th percentile), above {limits.itl_ms:.0f}"
    if row is not first and first.itl_p99_ms and row.itl_p99_ms is not None:
        times = row.itl_p99_ms / first.itl_p99_ms
        if times > limits.slowdown:
            return f"{times:.1f} times the first row's time between tokens, above {limits.slowdown:g}"
    return None


def best(rows: Sequence[Measured], limits: Limits) -> Measured | None:
    """The good row with the most throughput; of rows that differ by less than the gain, the earlier (smaller) one."""
    chosen: Measured | None = None
    for row in rows:
        if trouble(row, rows[0], limits) is None and (
            chosen is None or row.output_tps > chosen.output_tps * (1 + limits.gain)
        ):
            chosen = row
    return chosen


def following(rows: Sequence[Measured], limits: Limits, allowed: Allowed) -> TrialSetting | Stop:
    """What is tried after `rows` (the first is the service as it stands): sequences first, then tokens of a step."""
    first = rows[0]
    harm = trouble(first, first, limits)
    if harm is not None:
        return Stop(f"the service is already in trouble: {harm}")
    wide = [r for r in rows if r.setting.tokens == first.setting.tokens]
    step = _next_seqs(wide, limits, allowed)
    if isinstance(step, TrialSetting):
        return step
    at = best(wide, limits) or first
    if first.setting.tokens is None:
        return step
    long = [r for r in rows if r.setting.seqs == at.setting.seqs]
    return _next_tokens(long, limits, allowed, step)


def _next_seqs(rows: Sequence[Measured], limits: Limits, allowed: Allowed) -> TrialSetting | Stop:
    first, last = rows[0], max(rows, key=lambda r: r.setting.seqs)
    kept = best(rows, limits) or first
    harm = trouble(last, first, limits)
    if harm is not None:
        between = _between(kept.setting.seqs, min(_bad(rows, limits)), [r.setting.seqs for r in rows])
        if between is not None:
            return TrialSetting(between, first.setting.tokens)
        return Stop(f"at {last.setting.seqs} sequences: {harm}")
    if kept is not last:
        return Stop(f"more than {kept.setting.seqs} sequences brought less than {limits.gain:.0%} more tokens a second")
    return _grown(last, limits, allowed)


def _bad(rows: Sequence[Measured], limits: Limits) -> list[int]:
    return [r.setting.seqs for r in rows if trouble(r, rows[0], limits) is not None]


def _between(good: int, bad: int, tried: Sequence[int]) -> int | None:
    """The middle (geometric) of a good and a bad value, once."""
    if any(good < t < bad for t in tried) or bad < good * NARROW * NARROW:
        return None
    middle = int((good * bad) ** 0.5)
    return middle if good < middle < bad else None


def _grown(last: Measured, limits: Limits, allowed: Allowed) -> TrialSetting | Stop:
    """A larger value that the pool, as far as its use tells, and the plan allow."""
    seqs, why = last.setting.seqs, "nothing larger is allowed"
    for factor in STEPS:
        wanted = max(seqs + 1, int(seqs * factor))
        expected = _expected(last, wanted)
        if expected is not None and expected > limits.kv_use:
            why = f"{wanted} sequences would take {expected:.0%} of the KV cache, above {limits.kv_use:.0%}"
            continue
        refused = allowed(TrialSetting(wanted, last.setting.tokens))
        if refused is None:
            return TrialSetting(wanted, last.setting.tokens)
        why = refused
    return Stop(why)


def _expected(row: Measured, seqs: int) -> float | None:
    """The pool's use with `seqs` requests at once: it grows with the requests that run, often fewer than asked."""
    if row.kv_peak is None or not row.running_peak:
        return None
    return row.kv_peak * max(seqs, row.running_peak) / row.running_peak


def _next_tokens(rows: Sequence[Measured], limits: Limits, allowed: Allowed, before: Stop) -> TrialSetting | Stop:
    first, last = rows[0], max(rows, key=lambda r: r.setting.tokens or 0)
    if last.setting.tokens is None:
        return before
    harm = trouble(last, first, limits)
    if harm is not None:
        return Stop(f"{before.why}; at {last.setting.tokens} tokens a step: {harm}")
    if last is not first and best(rows, limits) is not last:
        return Stop(f"{before.why}; more tokens a step brought less than {limits.gain:.0%}")
    wanted = TrialSetting(last.setting.seqs, last.setting.tokens * 2)
    refused = allowed(wanted)
    return wanted if refused is None else Stop(f"{before.why}; {refused}")
