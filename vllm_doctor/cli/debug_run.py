"""What `debug` does with its options."""

import datetime

import msgspec

from vllm_doctor.cli import terminal
from vllm_doctor.cli.consent import agreed
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.span import seconds
from vllm_doctor.cli.unit_of import unit as the_unit
from vllm_doctor.gather import release, systemd
from vllm_doctor.operate.debug import switch
from vllm_doctor.operate.guard.restart import NotPermitted
from vllm_doctor.operate.temporary import NotDone
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Absent, Known, Unknown
from vllm_doctor.records.temporary import until

_DAY = 86400


class DebugOptions(msgspec.Struct, frozen=True):
    """The options, as typed."""

    action: str
    unit: str | None
    span: str
    what: tuple[str, ...]
    dry_run: bool
    yes: bool
    ready_s: float


def run(asked: DebugOptions) -> int:
    """The whole command; its exit code."""
    if asked.action == "status":
        return _status(asked.unit)
    if asked.unit is None:
        raise UsageProblem(f"debug {asked.action}: needed: --unit, such as --unit vllm@main")
    try:
        return _on(asked, asked.unit) if asked.action == "on" else _off(asked, asked.unit)
    except (NotDone, NotPermitted) as refused:
        raise UsageProblem(f"debug: {refused}") from None
    except OSError as refused:
        raise UsageProblem(f"debug: {refused.filename}: {refused.strerror}") from None


def _on(asked: DebugOptions, unit: str) -> int:
    span = seconds(asked.span)
    if span is None or not 1 <= span <= _DAY:
        raise UsageProblem(
            f"--for: found {excerpt.value(asked.span)}; needed: a time such as 90s, 15m or 2h, at most a day"
        )
    found = the_unit("debug", unit, changes=not asked.dry_run)
    if found.unit.drained:
        raise UsageProblem(f"debug: {unit} is drained; needed: playbooks/undrain.yml first")
    version = release.version(found.argv, found.unit.main_pid)
    known = version.value if isinstance(version, Known) else None
    chosen = [switch.switches()[word] for word in dict.fromkeys(asked.what)]
    deaf = [why for one in chosen if (why := switch.unread(one, known)) is not None]
    if deaf:
        raise UsageProblem(f"debug: {'; '.join(deaf)}; needed: another --with")
    if len({one.variable for one in chosen}) < len(chosen):
        raise UsageProblem("--with: found nccl and nccl-trace; needed: one of them")
    lines = [f"{unit}, vLLM {known or 'of unknown version'}"]
    lines += [f"  {one.variable}={one.value}: {one.cost}" for one in chosen]
    state = found.unit.active_state
    now = "restarts the service now" if state == "active" else f"starts the service, which is {state},"
    lines.append(f"  {now} and restarts it after {asked.span}; its requests are finished first each time")
    terminal.told("\n".join(lines) + "\n")
    if asked.dry_run:
        return Exit.OK
    if not asked.yes and not agreed("debug"):
        terminal.told("nothing was done\n")
        return Exit.OK
    try:
        why = switch.on(unit, chosen, int(span), asked.ready_s, datetime.datetime.now(tz=datetime.UTC))
    except KeyboardInterrupt:
        # The timer that is armed first counts the start's time in, as nobody says any more when it serves.
        terminal.told(f"interrupted; vllm-doctor debug status --unit {unit} says until when the variables stay\n")
        raise
    if why is not None:
        terminal.told(f"{why}; the variables were removed again\n")
        return Exit.FINDINGS
    terminal.told(f"on; journalctl -fu {unit} shows it\n")
    return Exit.OK


def _off(asked: DebugOptions, unit: str) -> int:
    the_unit("debug", unit, changes=not asked.dry_run)
    if asked.dry_run:
        return _status(unit)
    terminal.told("off; the service was restarted\n" if switch.off(unit) else f"no debug setting was on for {unit}\n")
    return Exit.OK


def _status(unit: str | None) -> int:
    """Which units have a temporary drop-in, and until when."""
    listed = systemd.find(unit, 5)
    if isinstance(listed, Unknown) or (isinstance(listed, Absent) and unit is not None):
        raise UsageProblem(f"debug status: {listed.reason}")
    found = listed.value if isinstance(listed, Known) else ()
    now = datetime.datetime.now(tz=datetime.UTC)
    held = [
        f"{one.unit.name}: {path}, until {end.isoformat(timespec='minutes')}"
        f"{'' if end > now else f', which is over: its timer is gone (vllm-doctor debug off --unit {one.unit.name})'}\n"
        for one in found
        for path in one.unit.drop_ins
        if (end := until(path)) is not None
    ]
    terminal.told("".join(held) or "no debug setting is on\n")
    return Exit.OK
