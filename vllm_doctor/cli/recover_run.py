"""What `recover` does with its options: show the plan, ask, do it, say how it ended."""

import datetime
import sys
from pathlib import Path

from vllm_doctor.cli import terminal
from vllm_doctor.cli.consent import agreed
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.unit_of import unit as the_unit
from vllm_doctor.gather import look, unit_line
from vllm_doctor.gather.launch import is_vllm
from vllm_doctor.gather.systemd import Found
from vllm_doctor.operate.guard.first_finding import explained
from vllm_doctor.operate.guard.restart import NotPermitted
from vllm_doctor.operate.launch_text import can_change
from vllm_doctor.operate.recover import conservative, steps
from vllm_doctor.operate.recover.conservative import Less
from vllm_doctor.operate.recover.orphans import gpu_name
from vllm_doctor.operate.temporary import NotDone
from vllm_doctor.plan.advice.recommendation import Predict


def run(unit: str, *, dry_run: bool, yes: bool, as_it_is: bool, hours: float, ready_s: float) -> int:
    """The whole command; its exit code."""
    plan = _plan(the_unit("recover", unit, changes=not dry_run), as_it_is=as_it_is, hours=hours)
    unit = plan.unit  # what was typed may be an alias
    if plan.drained:
        raise UsageProblem(f"recover: {unit} is drained, so nothing may start it; needed: playbooks/undrain.yml first")
    terminal.told(f"{unit}\n" + "\n".join(steps.told(plan)) + "\n")
    if dry_run:
        return Exit.OK
    if not yes and not agreed("recover"):
        terminal.told("nothing was done\n")
        return Exit.OK
    try:
        ended = steps.done(plan, ready_s, _say, datetime.datetime.now(tz=datetime.UTC))
    except KeyboardInterrupt:
        _say(f"interrupted: where {unit} is stopped, systemd starts it within half a minute")
        raise
    except (NotPermitted, NotDone) as refused:
        raise UsageProblem(f"recover: {refused}") from None
    except OSError as refused:
        raise UsageProblem(f"recover: {refused.filename}: {refused.strerror}") from None
    if ended.answers:
        terminal.told(f"a completion came back after {ended.seconds:.0f} s\n" + (f"{ended.why}\n" if ended.why else ""))
        return Exit.FINDINGS if ended.why else Exit.OK
    finding = explained(unit).finding
    terminal.told(
        f"{ended.why}\n" + (f"{finding}\n" if finding else "") + f"more: vllm-doctor diagnose --unit {unit}\n"
    )
    return Exit.FINDINGS


def _plan(found: Found, *, as_it_is: bool, hours: float) -> steps.RecoveryPlan:
    unit, argv = found.unit.name, found.argv
    if not is_vllm(argv):
        raise UsageProblem(f"recover: {unit} does not start vLLM; needed: a vLLM unit")
    gpus, unknown, holders = steps.seen(unit)
    mine = tuple(one for one in holders if not one.why_not)
    used = {one.gpu for one in mine}
    less = Less((), "--as-it-is")
    line = unit_line.line(unit)
    if not can_change(line):
        less = Less((), "a shell or a wrapper starts vLLM there, so its options cannot be changed one by one")
    elif not as_it_is:
        predict, effect, why = _planner(unit, argv)
        less = conservative.less(argv, predict, effect)
        if why:
            less = Less(less.changes, f"{less.why}, and no plan can be made: {why}")
    return steps.RecoveryPlan(
        unit=unit,
        line=line,
        active=found.unit.active_state,
        drained=found.unit.drained,
        processes=look.pids_of(found),
        gpus=tuple(g for g in gpus if not used or gpu_name(g) in used),
        gpus_unknown=unknown,
        mine=mine,
        others=tuple(one for one in holders if one.why_not),
        less=less,
        hours=hours,
    )


def _planner(unit: str, argv: tuple[str, ...]) -> tuple[Predict | None, dict[str, float], str]:
    """The planner's prediction for changed options, the values in effect, and why there is none."""
    from vllm_doctor.cli.plan_host import fill
    from vllm_doctor.launch.parse import LaunchError
    from vllm_doctor.plan.launch.flags import SettingError
    from vllm_doctor.plan.model.config_json import ConfigError
    from vllm_doctor.plan.question.logged_starts import recall
    from vllm_doctor.plan.question.planner import PlanProblem, Question, planner

    try:
        asked = fill(Question(argv), unit=unit, count=None)
        plan = planner(asked)
        plan = plan.with_history(recall(plan.gpu.name if plan.gpu is not None else None, Path(asked.config or "")))
        settings = plan.settings()
    except (PlanProblem, ConfigError, LaunchError, SettingError, UsageProblem) as problem:
        # What a planner's own user would have to add is no option of this command.
        return None, {}, str(problem).partition("; needed:")[0]
    effect = {"max-num-seqs": float(settings.seqs), "max-num-batched-tokens": float(settings.batched)}
    return plan.predict, {**effect, "gpu-memory-utilization": settings.utilization}, ""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
