"""The launch that a unit's files ask for: what systemd would start now, and what the unit's own file has alone."""

import shlex
from collections.abc import Iterable

from vllm_doctor.records.host import Setting, Unit

_EXEC = "ExecStart"


def effective(unit: Unit) -> tuple[Setting, ...]:
    """The lines of the command line in effect: ExecStart= with nothing takes back those before it."""
    lines: list[Setting] = []
    for one in unit.settings:
        if one.directive == _EXEC:
            lines = [] if not one.text else [*lines, one]
    return tuple(lines)


def of_its_file(unit: Unit) -> tuple[Setting, ...]:
    """The lines of the command line that stand in the unit's own file, whatever drop-ins make of it."""
    return tuple(one for one in unit.settings if one.directive == _EXEC and one.path == unit.fragment and one.text)


def command_words(lines: Iterable[Setting]) -> tuple[str, ...]:
    """The command line of these lines; nothing where systemd replaces something in it (`$NAME`, `%i`) or its quotes
    are not closed."""
    command = " ".join(one.text for one in lines)
    if "$" in command or "%" in command:
        return ()
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return ()
