"""The repair of a unit on its host: where the value stands, what is true now, and commands that work as pasted."""

import json
import re
import shlex
from collections.abc import Sequence

import msgspec

from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.launch.positions import placed
from vllm_doctor.records.finding import Change, Diagnosis, Finding, Repair
from vllm_doctor.records.host import OF_CONFIG_FILE, Machine, Program, Setting, Unit, WeightFiles
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.redact.records import answer_to_show
from vllm_doctor.remedy.argv import at_once, exact, written
from vllm_doctor.remedy.dropin import quoted

_PORT_TAKEN, _WEIGHTS_CUT, _NO_MODEL, _NO_PROGRAM = "VD510", "VD512", "VD511", "VD514"
_START = "start it"
_FROM_FILE = "EnvironmentFile"
_VARIABLE = re.compile(r"\$(?:\{(\w{1,100})\}|(\w{1,100}))")
_SED = re.compile(r"[\\/.*\[\]^$]")


def repaired(diagnosis: Diagnosis, snapshot: Snapshot) -> Diagnosis:
    """The diagnosis with the repair on its host; as it is for a log, a healthy unit or a host without one."""
    if not snapshot.live or not isinstance(snapshot.unit, Known) or not diagnosis.findings:
        return diagnosis
    unit = snapshot.unit.value
    machine = snapshot.machine.value if isinstance(snapshot.machine, Known) else None
    found = _repair(diagnosis, diagnosis.findings[0], unit, machine)
    return answer_to_show(msgspec.structs.replace(diagnosis, repair=found), snapshot)


class _Told(msgspec.Struct, frozen=True):
    """What is true now, what to type, and what that does where it is not the first change's own words."""

    now: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    deed: str = ""
    starts: bool = False


def _repair(diagnosis: Diagnosis, finding: Finding, unit: Unit, machine: Machine | None) -> Repair:
    change = next((c for c in finding.changes if c.kind in {ChangeKind.FLAG, ChangeKind.ENV}), None)
    place = _place(unit, change) if change is not None else None
    told = _Told()
    if finding.code == _PORT_TAKEN:
        told = _port(diagnosis, machine)
    elif finding.code == _NO_MODEL and machine is not None and machine.weights is not None:
        told = _model(machine.weights)
    elif finding.code == _WEIGHTS_CUT and machine is not None and machine.weights is not None:
        told = _weights(machine.weights)
    elif finding.code == _NO_PROGRAM and machine is not None and machine.program is not None:
        told = _program(machine.program)
    elif change is not None and place is not None:
        told = _edited(unit, place, change, at_once(finding.changes)[1:])
    elif change is not None and _is_gone(change, unit, diagnosis.launch):
        told = _Told((f"the launch has {_spelled(change)} no more",), deed=_START, starts=True)
    commands = list(told.commands)
    failing = finding.severity is Severity.BLOCKS_START
    if commands or (told.starts and (failing or finding.code == _PORT_TAKEN)):
        commands.append(_start(unit, reload=place is not None, failing=failing))
    by_hand = place is not None and place.setting.path != unit.fragment
    return Repair(
        where=_where(place, unit) if place is not None else "",
        now=(_state(unit, failing=failing), *told.now),
        commands=tuple(commands),
        inventory_keeps=not by_hand,
        deed=told.deed if commands else "",
    )


def _edited(unit: Unit, place: "SettingPlace", change: Change, others: Sequence[Change]) -> _Told:
    """One command for each line that holds a value. An option that is new stands where the first one stood; where one
    of the changes has no such place, none is told."""
    at = [(_place(unit, other), other) for other in others]
    new = [other for where, other in at if where is None]
    if any(other.kind is not ChangeKind.FLAG or other.after is None for other in new):
        return _Told()
    commands = _edit(place, change, " ".join(quoted(word) for other in new for word in written(other)))
    if commands and not others and place.rendered is not None and _new(place, change) == place.rendered:
        return _Told(commands=commands, deed=f"put back the unit's own {place.rendered}")
    each = [_edit(where, other) for where, other in at if where is not None]
    if not all(each):
        return _Told()
    return _Told(commands=(*commands, *(command for more in each for command in more)) if commands else ())


def _state(unit: Unit, *, failing: bool) -> str:
    """`failed: systemd gave up after 3 starts`: what has to be cleared before it starts again. One that fails each
    time is active between two failures."""
    since = unit.properties.get("InactiveEnterTimestamp" if unit.active_state == "failed" else "ActiveEnterTimestamp")
    at = f" since {since}" if since and unit.active_state in {"failed", "active"} else ""
    restarts = unit.restarts or 0
    if unit.result == "start-limit-hit" or (
        unit.active_state == "failed" and unit.properties.get("Restart", "no") != "no" and restarts
    ):
        return f"the unit failed{at}; systemd gave up after {restarts + 1} starts (its start limit)"
    most = unit.properties.get("StartLimitBurst")
    attempt = f"attempt {restarts + 1}" + (f" of {most}" if most and most != "0" else "")
    if unit.sub_state == "auto-restart" or (unit.active_state == "activating" and restarts):
        return f"the unit restarts: {attempt}"
    again = f": {attempt} to start" if failing and unit.active_state == "active" else ""
    return f"the unit is {unit.active_state} ({unit.sub_state}){at}{again}"


def _start(unit: Unit, *, reload: bool, failing: bool) -> str:
    """What starts it. A run that is still starting does not end on SIGTERM; one that fails serves nobody, so it is not
    waited for."""
    name = shlex.quote(unit.name)
    lost = failing and unit.running and unit.sub_state != "auto-restart"
    end = f"systemctl kill -s KILL {name}; " if lost else ""
    again = f"systemctl reset-failed {name}; {end}systemctl restart {name}"
    line = (
        f"systemctl daemon-reload && {again}" if reload or unit.properties.get("NeedDaemonReload") == "yes" else again
    )
    wait = unit.properties.get("TimeoutStopUSec")
    return f"{line}   # may take {wait} until the old run has stopped" if unit.running and wait and not lost else line


class SettingPlace(msgspec.Struct, frozen=True):
    """A setting that holds a value, the text of it in that line, and what the unit's own file has instead."""

    setting: Setting
    text: str
    value: str
    rendered: str | None


def _place(unit: Unit, change: Change) -> SettingPlace | None:
    """The line in effect: the last that sets it. ExecStart= with nothing takes back the lines before it."""
    if change.kind is ChangeKind.ENV:
        return _variable(unit, change.variable or change.name)
    effect: list[Setting] = []
    for one in unit.settings:
        if one.directive == "ExecStart":
            effect = [] if not one.text else [*effect, one]
    own = [one for one in unit.settings if one.directive == "ExecStart" and one.path == unit.fragment]
    rendered = next((text for one in own if (text := placed(one.text.split(), change.name)) is not None), None)
    other = " ".join(rendered) if rendered is not None else None
    for one in reversed(effect):
        found = placed(one.text.split(), change.name)
        if found is not None:
            return SettingPlace(one, " ".join(found), " ".join(found), other)
        through = _through_a_variable(unit, one, change.name, other)
        if through is not None:
            return through
    return _in_config(unit, change.name)


def _through_a_variable(unit: Unit, line: Setting, name: str, rendered: str | None) -> SettingPlace | None:
    """The line of an environment file, or of Environment=, whose variable stands in the command line (`$VLLM_ARGS`)."""
    named = {one[0] or one[1] for one in _VARIABLE.findall(line.text)}
    last_first = unit.settings[::-1]
    by_file = [
        one for one in last_first if one.directive == _FROM_FILE
    ]  # what a file sets wins over what the unit sets
    for one in (*by_file, *(one for one in last_first if one.directive == "Environment")):
        variable, equals, value = one.text.strip("\"'").partition("=")
        if not equals or variable not in named:
            continue
        named.remove(variable)  # a line further up is not in effect
        found = placed(value.strip("\"'").split(), name)
        if found is not None:
            return SettingPlace(one, " ".join(found), " ".join(found), rendered)
    return None


def _in_config(unit: Unit, name: str) -> SettingPlace | None:
    """The line of vLLM's own --config file; what the command line says would win over it."""
    for one in reversed(unit.settings):
        if one.directive == OF_CONFIG_FILE and one.text.partition(":")[0].replace("_", "-") == name:
            return SettingPlace(one, one.text, one.text, None)
    return None


def _variable(unit: Unit, name: str) -> SettingPlace | None:
    for one in reversed(unit.settings):
        if one.directive in {"ExecStart", OF_CONFIG_FILE}:
            continue
        found = next((w for w in one.text.split() if w.strip('"').startswith(f"{name}=")), None)
        if found is not None:
            return SettingPlace(one, found, found, None)
    return None


def _where(place: SettingPlace, unit: Unit) -> str:
    told = f"{place.text} in {place.setting.path} line {place.setting.line}"
    if place.setting.directive == _FROM_FILE and place.rendered is not None and place.rendered != place.text:
        return f"{told}: an environment file; the unit's own file has {place.rendered}"
    if place.setting.path == unit.fragment or place.setting.directive != "ExecStart":
        return told
    has = f"which has {place.rendered}" if place.rendered is not None else "which has no such option"
    return f"{told}: a drop-in over the unit's own file, {has}"


def _edit(place: SettingPlace, change: Change, added: str = "") -> tuple[str, ...]:
    """One `sed` of the very line, with `added` options in the same place; none where that line does not hold the text
    as it is told."""
    if "[hidden]" in place.text or place.text not in place.setting.text or not exact(change):
        return ()
    if place.setting.directive == OF_CONFIG_FILE and added:
        return ()
    if place.setting.directive == OF_CONFIG_FILE and change.after is None:
        return (f"sed -i {place.setting.line}d {shlex.quote(place.setting.path)}",)
    new = " ".join(filter(None, (_new(place, change), added)))
    spaced = next((t for t in (f" {place.text}", f"{place.text} ") if t in place.setting.text), place.text)
    old = place.text if new else spaced  # an option that goes takes a space along
    line = f"{place.setting.line}s/{_SED.sub(_escaped, old)}/{_SED.sub(_escaped, new).replace('&', chr(92) + '&')}/"
    return (f"sed -i {shlex.quote(line)} {shlex.quote(place.setting.path)}",)


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _new(place: SettingPlace, change: Change) -> str:
    """What is to stand there: nothing, what the unit's own file has, or the value of the change."""
    if change.kind is ChangeKind.ENV:
        return f"{change.variable or change.name}={change.after}" if change.after is not None else ""
    if place.setting.directive == OF_CONFIG_FILE:
        return f"{place.text.partition(':')[0]}: {json.dumps(change.after)}"
    if place.rendered is not None and place.rendered != place.text and _cures(place.rendered, change):
        return place.rendered
    return " ".join(quoted(word) for word in written(change)) if change.after is not None else ""


def _cures(rendered: str, change: Change) -> bool:
    """Is the unit's own value on the good side of what the change asks for?"""
    try:
        value, wanted = float(rendered.replace("=", " ").split()[-1]), float(str(change.after))
    except ValueError:
        return False
    return value <= wanted if change.direction is Direction.LOWER else value >= wanted


def _is_gone(change: Change, unit: Unit, launch: Sequence[str]) -> bool:
    """Was the option in the run that failed, and is it in no line of the unit, nor in the launch?"""
    asked = change.direction is Direction.REMOVE or change.before is not None
    known = any(one.directive == "ExecStart" for one in unit.settings)
    # The model is a word without a name, so it is in every launch.
    named = change.kind is ChangeKind.FLAG and change.name != "model"
    return named and asked and known and placed(launch, change.name) is None


def _spelled(change: Change) -> str:
    return f"--{change.name}" + (f" {change.before}" if isinstance(change.before, str | int | float) else "")


def _port(diagnosis: Diagnosis, machine: Machine | None) -> _Told:
    """Who listens on the port now, and how to end that; nobody: it can be started."""
    if machine is None:
        return _Told()
    found = placed(diagnosis.launch, "port")
    port = found[-1].rpartition("=")[2] if found is not None else str(default_port())
    held = [one for one in machine.listeners if str(one.port) == port]
    if not held:
        return _Told((f"port {port} is free again",), deed=_START, starts=True)
    holder = held[0]
    who = f"pid {holder.pid} ({holder.name or '?'})" if holder.pid is not None else "a process of another user"
    unit = f", unit {holder.unit}" if holder.unit else ""
    now = (f"port {port} is held by {who}{unit}",)
    if not holder.unit and holder.pid is None:
        return _Told(now)
    stop = f"systemctl stop {shlex.quote(holder.unit)}" if holder.unit else f"kill {holder.pid}"
    return _Told(now, (stop,), f"stop {holder.unit or who}, unless it is wanted: then another port for one of the two")


def _model(found: WeightFiles) -> _Told:
    """The folder of the launch, whether it is there now, and what lies beside it."""
    if found.denied:
        word, group = shlex.quote(found.denied), shlex.quote(found.group)
        now = (f"{found.denied} is there, and {found.why}",)
        if not found.group:
            return _Told(now, (f"chmod o+x {word}",), "allow other users to enter the folder")
        opened = f"chgrp -R {group} {word} && chmod -R g+rX {word}"
        return _Told(now, (opened,), f"open it to the service's group, {found.group}")
    if not found.missing:
        return _Told(("the folder of the model is there now",), deed=_START, starts=found.checked > 0)
    beside = ", ".join(found.beside[:6]) or "none"
    now = (f"{found.missing} is not there; folders with a model beside it: {beside}",)
    return _linked(found, now, "-s", "point the name to the folder beside it, if that is the model")


def _program(found: Program) -> _Told:
    """What of the program's path is gone, and the one thing beside it that leads to such a program."""
    beside = ", ".join(found.beside[:6]) or "nothing"
    now = (f"{found.missing} is not there; the same program is beside it in: {beside}",)
    return _linked(found, now, "-sfn", "point the name to the only such program beside it")


def _linked(found: WeightFiles | Program, now: tuple[str, ...], how: str, deed: str) -> _Told:
    """What is missing, as a link to the one thing beside it; where there are several a person chooses."""
    if len(found.beside) != 1:
        return _Told(now)
    return _Told(now, (f"ln {how} {shlex.quote(found.beside[0])} {shlex.quote(found.missing)}",), deed)


def _weights(found: WeightFiles) -> _Told:
    """The files with the size that they have and should have, and the whole copies beside; or why none was read."""
    if found.missing or found.denied:
        return _model(found)
    if not found.cut:
        return _Told((f"all {found.checked} weight files of the folder are whole now",), deed=_START, starts=True)
    told: list[str] = []
    for one in found.cut[:3]:
        asks = f"its header asks for {one.needed:,}" if one.needed is not None else "it has no header of safetensors"
        told.append(f"{one.path}: {one.size:,} bytes, {asks}; changed {one.modified}")
    if not all(one.copy for one in found.cut):
        return _Told(tuple(told))
    told.append("a whole file with the same header, of a model with the same config.json, is in the folder beside")
    copied = tuple(f"cp -p {shlex.quote(one.copy)} {shlex.quote(one.path)}" for one in found.cut)
    return _Told(tuple(told), copied, "put back the whole file, if that is the same model")
