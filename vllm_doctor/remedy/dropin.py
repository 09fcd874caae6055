"""The emergency measure: a drop-in that a person can paste at 3 a.m., and that the next playbook run takes away."""

import re

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind
from vllm_doctor.remedy.argv import applied, exact

NAME = "zz-vllm-doctor.conf"


# What systemd takes for the name of a variable; any other name would be a directive of its own.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}\Z")


def quoted(word: str, *, variables: bool = True) -> str:
    """`word` as one word of a systemd command line (systemd.service(5), "COMMAND LINES"; specifiers and `$` doubled).

    A model's name may come from a log, so nothing of it may act as a specifier, a variable or a second directive.
    `variables` False is for Environment=, where `$` has no meaning (systemd.exec(5)).
    """
    doubled = word.replace("%", "%%")
    doubled = doubled.replace("$", "$$") if variables else doubled
    if doubled and all(c.isalnum() or c in "-_./:=,@+%$" for c in doubled):
        return doubled
    escaped = doubled.replace("\\", "\\\\").replace('"', '\\"')
    printable = "".join(c if c.isprintable() else "".join(f"\\x{b:02x}" for b in c.encode()) for c in escaped)
    return f'"{printable}"'


def path(unit: str) -> str:
    """Where the drop-in of `unit` lies."""
    return f"/etc/systemd/system/{unit}.d/{NAME}"


def text(code: str, argv: tuple[str, ...], changes: tuple[Change, ...]) -> str | None:
    """The drop-in for the changes that a unit can carry; None where there is none (a package, a card).

    `argv` is the unit's effective command line; its first word must be an absolute path, as systemd wants it.
    """
    mine = tuple(
        c
        for c in changes
        if exact(c) and (c.kind is ChangeKind.FLAG or (c.kind is ChangeKind.ENV and _NAME.match(c.variable or c.name)))
    )
    if not mine:
        return None
    lines = [f"# {code}, for the emergency only: the next playbook run removes this file.", "[Service]"]
    for change in mine:
        if change.kind is ChangeKind.ENV:
            name = change.variable or change.name
            setting = quoted(f"{name}={change.after}", variables=False)
            lines.append(f"UnsetEnvironment={name}" if change.after is None else f"Environment={setting}")
    if any(c.kind is ChangeKind.FLAG for c in mine):
        if not argv or not argv[0].startswith("/"):
            return None
        # A list setting must be emptied before it is set again, or systemd refuses two ExecStart= lines.
        lines += ["ExecStart=", "ExecStart=" + " ".join(quoted(word) for word in applied(argv, mine))]
    return "\n".join(lines) + "\n"
