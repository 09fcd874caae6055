"""Where one option stands in an argument list, for who changes or quotes the list word by word.

What an option is called and how many words it takes is asked where the parser asks it; no value is read here.
"""

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache

from vllm_doctor.knowledge.versions import canonical, newest_known
from vllm_doctor.launch import table


@lru_cache(maxsize=8192)  # each of many changes asks every word of its launch
def option_name(word: str) -> str | None:
    """The option's long name as `Change.name` writes it (of `-tp`, `--no-x`, `--max-num-se` too), or None for another
    word."""
    if not word.startswith("-") or word.lstrip("-")[:1].isdigit() or not word.strip("-"):
        return None
    given = word.partition("=")[0]
    name = canonical("-O" if re.fullmatch(r"-O\d", given) else given)
    if given.startswith("--") and not table.is_known(name.removeprefix("no-")):
        could = table.completed(name, newest_known())
        name = could[0] if len(could) == 1 else name
    return name.removeprefix("no-")


def values_behind(name: str, words: Sequence[str]) -> int:
    """How many of the words that follow the option belong to it: none of a switch, all of a list, else one."""
    takes = table.takes(name, None)
    if takes == 0:
        return 0
    own = sum(1 for _ in itertools.takewhile(lambda word: option_name(word) is None, words))
    return own if takes == "+" else min(own, 1)


def placed(argv: Sequence[str], name: str) -> tuple[str, ...] | None:
    """The option and its values in `argv` as they stand, the last time it is given; None where it is not."""
    found: tuple[str, ...] | None = None
    for at, word in enumerate(argv):
        if option_name(word) == name:
            own = 0 if _is_whole(word) else values_behind(name, argv[at + 1 :])
            found = tuple(argv[at : at + 1 + own])
    return found


def _is_whole(word: str) -> bool:
    """Is the value in the option's word: `--name=TEXT`, `-O3`?"""
    return "=" in word or re.fullmatch(r"-O\d", word) is not None


def without_option(argv: Sequence[str], name: str) -> tuple[tuple[str, ...], int | None]:
    """`argv` less the option `name` and its values, and where it stood first."""
    kept: list[str] = []
    place: int | None = None
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if option_name(word) == name:
            place = len(kept) if place is None else place
            at += 0 if _is_whole(word) else values_behind(name, argv[at:])
            continue
        kept.append(word)
    return tuple(kept), place


def option_text(argv: Sequence[str], name: str) -> str | None:
    """The (first) value of the option as it stands, the last time it is given; None where it is not given, "" where
    nothing follows it."""
    words = placed(argv, name)
    if words is None:
        return None
    return words[0].partition("=")[2] if _is_whole(words[0]) else next(iter(words[1:]), "")
