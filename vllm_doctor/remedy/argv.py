"""A launch's argument list with changes put in; what a change does not name stays as it was, in its order."""

from collections.abc import Sequence

from vllm_doctor.launch import table
from vllm_doctor.launch.positions import without_option
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction


def exact(change: Change) -> bool:
    """Does it say what to write? One that names a direction alone ("lower it") is for a person."""
    return change.direction is Direction.REMOVE or change.after is not None


def at_once(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The first change that a launch carries, and those that are made together with it."""
    typed = [one for one in changes if exact(one) and one.kind in {ChangeKind.FLAG, ChangeKind.ENV}]
    return (*typed[:1], *(one for one in typed[1:] if one.together and changes[0] is typed[0]))


def takes_many(name: str) -> bool:
    """Is the option's value a list, each item a word of its own?"""
    return table.takes(name, None) == "+"


def written(change: Change) -> tuple[str, ...]:
    """The option with its value as words of a command line; items of a list stand one after another."""
    if isinstance(change.after, bool):
        return (f"--{change.name}" if change.after else f"--no-{change.name}",)
    if takes_many(change.name):
        return (f"--{change.name}", *str(change.after).split())
    return (f"--{change.name}", str(change.after))


def applied(argv: tuple[str, ...], changes: tuple[Change, ...]) -> tuple[str, ...]:
    """`argv` after the flag changes; other kinds of change do not touch it.

    `after` True is a bare switch, False its `--no-` form, anything else is its value; without a value only a removal
    can be put in.
    """
    for change in changes:
        if change.kind is not ChangeKind.FLAG or not exact(change):
            continue
        rest, place = without_option(argv, change.name)
        if change.after is None:
            argv = rest
            continue
        words = written(change)
        at = len(rest) if place is None else place
        argv = (*rest[:at], *words, *rest[at:])
    return argv
