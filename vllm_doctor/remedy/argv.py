"""A launch's argument list with changes put in; what a change does not name stays as it was, in its order."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction


def _names(word: str) -> str | None:
    """The option's long name as `Change.name` writes it, or None for a word that is no option."""
    if not word.startswith("--") or word == "--":
        return None
    return word[2:].partition("=")[0].replace("_", "-")


def _without(argv: tuple[str, ...], name: str) -> tuple[tuple[str, ...], int | None]:
    """`argv` less the option `name` and its value, and where it stood first."""
    kept: list[str] = []
    place: int | None = None
    skip = False
    for at, word in enumerate(argv):
        if skip:
            skip = False
            continue
        if _names(word) == name:
            place = len(kept) if place is None else place
            following = argv[at + 1] if at + 1 < len(argv) else None
            skip = "=" not in word and following is not None and not following.startswith("--")
            continue
        kept.append(word)
    return tuple(kept), place


def exact(change: Change) -> bool:
    """Does it say what to write? One that names a direction alone ("lower it") is for a person."""
    return change.direction is Direction.REMOVE or change.after is not None


def applied(argv: tuple[str, ...], changes: tuple[Change, ...]) -> tuple[str, ...]:
    """`argv` after the flag changes; other kinds of change do not touch it.

    `after` True is a bare switch, False takes the option away, anything else is its value; without a value only a
    removal can be put in.
    """
    for change in changes:
        if change.kind is not ChangeKind.FLAG or not exact(change):
            continue
        rest, place = _without(argv, change.name)
        if change.direction is Direction.REMOVE or change.after is False:
            argv = rest
            continue
        words = (f"--{change.name}",) if change.after is True else (f"--{change.name}", str(change.after))
        at = len(rest) if place is None else place
        argv = (*rest[:at], *words, *rest[at:])
    return argv
