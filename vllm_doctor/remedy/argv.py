"""A launch's argument list with changes put in; what a change does not name stays as it was, in its order."""

import itertools
from collections.abc import Sequence

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.versions import canonical
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction


def _names(word: str) -> str | None:
    """The option's long name as `Change.name` writes it (of `-tp`, `--no-x` too), or None for another word."""
    if not word.startswith("-") or word.lstrip("-")[:1].isdigit() or not word.strip("-"):
        return None
    return canonical(word.partition("=")[0]).removeprefix("no-")


def _values(name: str, words: tuple[str, ...]) -> int:
    """How many of the words that follow the option are its own: none of a switch, all of a list, else one."""
    option = parser.takes(name)
    takes = option.words if option is not None else 1
    if takes == 0:
        return 0
    own = sum(1 for _ in itertools.takewhile(lambda w: _names(w) is None, words))
    return own if takes == "+" else min(own, 1)


def _without(argv: tuple[str, ...], name: str) -> tuple[tuple[str, ...], int | None]:
    """`argv` less the option `name` and its values, and where it stood first."""
    kept: list[str] = []
    place: int | None = None
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if _names(word) == name:
            place = len(kept) if place is None else place
            at += 0 if "=" in word else _values(name, argv[at:])
            continue
        kept.append(word)
    return tuple(kept), place


def placed(argv: Sequence[str], name: str) -> tuple[str, ...] | None:
    """The option's own words in `argv`, the last time it is given; None where it is not."""
    found: tuple[str, ...] | None = None
    for at, word in enumerate(argv):
        if _names(word) == name:
            own = 0 if "=" in word else _values(name, tuple(argv[at + 1 :]))
            found = tuple(argv[at : at + 1 + own])
    return found


def exact(change: Change) -> bool:
    """Does it say what to write? One that names a direction alone ("lower it") is for a person."""
    return change.direction is Direction.REMOVE or change.after is not None


def at_once(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The first change that a launch carries, and those that are made together with it."""
    typed = [one for one in changes if exact(one) and one.kind in {ChangeKind.FLAG, ChangeKind.ENV}]
    return (*typed[:1], *(one for one in typed[1:] if one.together and changes[0] is typed[0]))


def takes_many(name: str) -> bool:
    """Is the option's value a list, each item a word of its own?"""
    option = parser.takes(name)
    return option is not None and option.words == "+"


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
        rest, place = _without(argv, change.name)
        if change.after is None:
            argv = rest
            continue
        words = written(change)
        at = len(rest) if place is None else place
        argv = (*rest[:at], *words, *rest[at:])
    return argv
