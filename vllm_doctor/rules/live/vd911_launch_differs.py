"""VD911: what runs is not what is written: a drop-in over the rendered unit, or a unit changed since the start."""

import shlex

from vllm_doctor.launch.command import parse_command
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.host import Setting, Unit
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.temporary import until
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction, Severity
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.unit_launch import command_words, effective, of_its_file
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, inventory_var, thing

_MOST = 6


def judge(case: Case) -> Outcome:
    """Do the process, the unit's lines in effect and the unit's own file ask for the same options?"""
    unit = case.unit
    if unit is None:
        return Unseen(frozenset({Signal.UNIT})) if case.live else NotHere("a file has no drop-ins")
    if case.probe is None or case.probe.health_status != 200:
        return NotHere("the server does not serve: another finding says why")
    now = effective(unit)
    if not command_words(now):
        return NotHere("the unit's command line could not be read")
    stale = _stale(case, unit, now)
    if stale is not None:
        return stale
    if not unit.rendered:
        return NotHere("no playbook renders the unit's file: its drop-ins are its configuration")
    return _overridden(unit, now) or Clear("the unit runs as its own file says")


def _stale(case: Case, unit: Unit, now: tuple[Setting, ...]) -> Finding | None:
    """Was the unit changed after the process was started?"""
    running = case.reading(Signal.LAUNCH)
    if unit.main_pid is None or not isinstance(running, Known) or not running.source.startswith("/proc/"):
        return None
    launch = case.launch
    differ = _differences(launch.argv, command_words(now)) if launch is not None else ()
    if not differ:
        return None
    name = shlex.quote(unit.name)
    evidence = [Evidence(running.source, unit.name, f"runs with {_shown(differ, 0)}")]
    evidence += [found for one in now if (found := _line(one, [wanted for _, _, wanted in differ])) is not None][:_MOST]
    return finding(
        RULE,
        title="The server runs with an older launch than its unit now has",
        detail=f"the server runs with {_shown(differ, 0)}; the unit asks for {_shown(differ, 1)}",
        severity=Severity.ADVICE,
        evidence=tuple(evidence),
        changes=(
            thing(
                ChangeKind.OS,
                unit.name,
                Direction.REPAIR,
                "a changed unit takes effect at the next start; running requests finish first only if the "
                "launch has --shutdown-timeout (0.18.0 on)",
                command=f"systemctl restart {name}"
                if unit.properties.get("NeedDaemonReload") != "yes"
                else f"systemctl daemon-reload && systemctl restart {name}",
            ),
        ),
        refute=f"tr '\\0' ' ' </proc/{unit.main_pid}/cmdline shows the options of systemctl cat {name}",
    )


def _overridden(unit: Unit, now: tuple[Setting, ...]) -> Finding | None:
    """Does a drop-in that stays replace the command line that the playbook rendered?"""
    over = [one for one in now if one.path != unit.fragment and until(one.path) is None]
    differ = _differences(command_words(now), command_words(of_its_file(unit))) if over else ()
    if not over or not differ:
        return None
    path = over[0].path
    named = [found for one in over if (found := _line(one, [has for _, has, _ in differ])) is not None]
    return finding(
        RULE,
        title="A drop-in replaces the launch that the playbook rendered",
        detail=f"the drop-in asks for {_shown(differ, 0)}; the unit's file has {_shown(differ, 1)}",
        severity=Severity.ADVICE,
        evidence=tuple(named[:_MOST]) or (Evidence(path, f"line {over[0].line}", over[0].text),),
        changes=(_into_the_inventory(differ), _away(unit, path)),
        refute=f"systemctl cat {shlex.quote(unit.name)} shows one ExecStart with options",
    )


def _line(one: Setting, options: list[str]) -> Evidence | None:
    """The line with those of the options that stand in it."""
    stands = [option for option in options if option in one.text]
    return Evidence(one.path, f"line {one.line}", ", ".join(stands)) if stands else None


def _into_the_inventory(differ: tuple[tuple[str, str, str], ...]) -> Change:
    names = ", ".join(dict.fromkeys(inventory_var(option) for option, *_ in differ))
    to = _inventory_line(*differ[0][:2]) if len(differ) == 1 else None
    return thing(
        ChangeKind.OS,
        "inventory" if to is None else "inventory-line",
        Direction.SET,
        f"set {names} in the inventory, then remove the drop-in: the playbook ignores drop-ins when it plans "
        "and upgrades",
        to=to,
        applicability=Applicability.NEEDS_REVIEW,
        command=None if to is not None else f"grep -rn -e {' -e '.join(names.split(', '))} inventories/",
    )


def _inventory_line(option: str, has: str) -> str | None:
    """`vllm_max_model_len: 32768` of an option with a plain number; None of any other."""
    value = has.replace("=", " ").split()[-1]
    variable = inventory_var(option)
    is_plain = value.replace(".", "", 1).isdecimal() and variable != "vllm_extra_args"
    return f"{variable}: {value}" if is_plain else None


def _away(unit: Unit, path: str) -> Change:
    name = shlex.quote(unit.name)
    return thing(
        ChangeKind.OS,
        path.rpartition("/")[2],
        Direction.REMOVE,
        "the service then starts as the unit's own file says",
        command=f"rm {shlex.quote(path)} && systemctl daemon-reload && systemctl restart {name}",
    )


def _differences(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    """(option, how it stands in the one, in the other); secrets, which nobody shows, are equal."""
    if not one or not other:
        return ()
    here, there = parse_command(one), parse_command(other)
    flags, others = here.flags, there.flags
    if here.model != there.model:
        flags, others = flags | {"model": here.model or ""}, others | {"model": there.model or ""}
    return tuple(
        (name, _option(name, flags.get(name)), _option(name, others.get(name)))
        for name in [*flags, *(name for name in others if name not in flags)]
        if flags.get(name) != others.get(name) and HIDDEN not in {flags.get(name), others.get(name)}
    )


def _option(name: str, value: str | bool | None) -> str:
    if value is None:
        return f"no --{name}"
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"


def _shown(differ: tuple[tuple[str, str, str], ...], side: int) -> str:
    told = [one[1 + side] for one in differ]
    more = f" and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return ", ".join(told[:_MOST]) + more


RULE = rule("VD911", reads=frozenset({Signal.UNIT, Signal.LAUNCH, Signal.PROBE}), judge=judge)
