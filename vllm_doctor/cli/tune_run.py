"""What `tune` does with its options: look at the unit, say or do the ramp, print the table."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import msgspec

from vllm_doctor.cli import terminal
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.streams import say
from vllm_doctor.cli.tune_facts import Facts, facts_of_unit
from vllm_doctor.cli.tune_options import TuneOptions
from vllm_doctor.operate.tune import state as tune_state
from vllm_doctor.operate.tune import unit as tune_unit
from vllm_doctor.operate.tune.allowed import allowance
from vllm_doctor.operate.tune.decide import Limits, TrialSetting, trouble
from vllm_doctor.operate.tune.live_host import LiveHost
from vllm_doctor.operate.tune.ramp import Ramp, RampEnd, ramp, setting_text
from vllm_doctor.records.finding import Change
from vllm_doctor.render import tune as render
from vllm_doctor.render.machine import line
from vllm_doctor.rules.say import inventory_var


def run(o: TuneOptions) -> int:
    """The ramp; the exit code."""
    if not (o.yes or o.dry_run):
        raise UsageProblem(
            f"tune: {o.unit} is restarted for every step, and its requests are lost; "
            "needed: --yes, or --dry-run to see the steps"
        )
    if not o.dry_run and os.geteuid() != 0:
        raise UsageProblem("tune: found a user who may not restart services; needed: root (sudo vllm-doctor tune …)")
    told = facts_of_unit(o)
    limits = Limits(kv_use=o.kv_use, slowdown=o.slowdown, ttft_ms=o.ttft_ms, itl_ms=o.itl_ms)
    what = Ramp(
        start=told.start,
        limits=limits,
        allowed=allowance(
            told.predict,
            told.start,
            pool_tokens=told.pool_tokens,
            request_tokens=told.target.prompt_tokens + told.target.output_tokens,
            most_seqs=o.most_seqs,
        ),
        budget_s=o.budget_s,
        ready_s=o.ready_s,
        state=tune_state.state_file(o.unit),
        key=tune_state.key(
            told.service.argv, told.version, told.start, told.target.prompt_tokens, told.target.output_tokens, o.step_s
        ),
        as_it_stands=told.as_it_stands,
    )
    if o.dry_run:
        return _dry(o, told, what)
    if o.fresh:
        what.state.unlink(missing_ok=True)
    host = LiveHost(told.service, told.target, told.tokenizer, o.step_s, told.bench, _say)
    with _signals():
        outcome = ramp(what, host, _say)
    return _answer(o, told, limits, outcome)


def _answer(o: TuneOptions, told: Facts, limits: Limits, outcome: RampEnd) -> int:
    chosen = outcome.best
    changes: tuple[Change, ...] = ()
    if chosen is not None:
        changes = tune_unit.changes(told.service.argv, chosen.setting, inventory_var)
    if o.json:
        answer = {
            "schema_version": 1,
            "unit": o.unit,
            "load": msgspec.structs.asdict(told.target)
            | {"key": None, "by": "own" if told.bench is None else told.bench.name},
            "rows": [
                msgspec.to_builtins(row) | {"trouble": trouble(row, outcome.rows[0], limits)} for row in outcome.rows
            ],
            "best": msgspec.to_builtins(chosen),
            "stopped": outcome.why,
            "complete": outcome.complete,
            "restored": outcome.restored,
            "resumed": outcome.resumed,
            "changes": msgspec.to_builtins(changes),
            "inventory": list(render.lines_of(changes)),
        }
        say(line(answer))
    else:
        say(
            render.text(
                o.unit,
                outcome.rows,
                best=chosen,
                limits=limits,
                why=outcome.why,
                changes=changes,
                restored=outcome.restored and bool(outcome.rows),
            )
        )
    if not outcome.restored or (chosen is None and outcome.rows):
        return Exit.FINDINGS
    return Exit.OK if outcome.complete else Exit.INCOMPLETE


def _dry(o: TuneOptions, told: Facts, what: Ramp) -> int:
    """The steps of a service that meets no limit: what the plan and the pool allow."""
    load = f"prompts of {told.target.prompt_tokens} and outputs of {told.target.output_tokens} tokens ({told.lengths})"
    by = told.bench.name if told.bench else "vllm-doctor's own streams"
    lines = [
        f"{o.unit} answers at {told.service.base}; vLLM {told.version}.",
        f"Load: {load}, {o.step_s:g} s a step, by {by}.",
        f"Plan: {told.plan}.",
        f"1. {setting_text(what.start)}" + (", as it stands, without a restart" if what.as_it_stands else ""),
    ]
    seqs, number = what.start.seqs, 1
    why = None
    while why is None and number < 12:
        seqs *= 2
        number += 1
        why = what.allowed(TrialSetting(seqs, what.start.tokens))
        lines.append(
            f"{number}. {setting_text(TrialSetting(seqs, what.start.tokens))}"
            if why is None
            else f"   not more: {why}."
        )
    if what.start.tokens is not None:
        tokens = what.start.tokens * 2
        refused = what.allowed(TrialSetting(what.start.seqs, tokens))
        lines.append(
            f"   then {tokens} tokens a step and on" if refused is None else f"   no more tokens a step: {refused}."
        )
    lines += [
        f"It ends earlier at trouble: KV use above {o.kv_use:.0%}, a preemption, a failed request,",
        f"tokens {o.slowdown:g} times slower, or no gain.",
        f"Each step is a restart, by {told.service.drop_in};",
        "at the end, on Ctrl-C and on any failure tune removes it and starts the earlier configuration again.",
    ]
    terminal.told("\n".join(lines) + "\n")
    return Exit.OK


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C, a lost login and a stop end the ramp once; while the service is put back they are only answered."""

    def once(_number: int, _frame: FrameType | None) -> None:
        for number in watched:
            signal.signal(number, again)
        raise KeyboardInterrupt

    def again(_number: int, _frame: FrameType | None) -> None:
        _say("restoring the service; wait")

    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, once) for number in watched}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
