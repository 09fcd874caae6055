"""Possessive repetition (`++`, `*+`, `?+`) as it should be, on Pythons that match it wrongly: 3.11.0 to 3.11.4.

Debian 12 has 3.11.2. There a possessive repetition of something that itself goes back (`(?:ab|%..)++`) may fail where
it should match (https://github.com/python/cpython/issues/106052, mended in 3.11.5): what looks for secrets passed over
some. `X++` means the same as the atomic group `(?>X+)`, which those releases match rightly.
"""

import re
from typing import Any

# The parts of re that changed no more in the releases that this is for.
_parser: Any = re._parser  # type: ignore[attr-defined]  # noqa: SLF001
_compiler: Any = re._compiler  # type: ignore[attr-defined]  # noqa: SLF001
_parse = _parser.parse


def parse_rightly(text: Any, flags: int = 0, state: Any = None) -> Any:
    """As re's own parser, with each possessive repetition that goes back as an atomic group around a greedy one."""
    tree = _parse(text, flags, state)
    _mend(tree)
    return tree


def _mend(tree: Any) -> None:
    for at, (what, given) in enumerate(tree.data):
        for inner in _inside(given):
            _mend(inner)
        if what is _parser.POSSESSIVE_REPEAT and not _compiler._simple(given[2]):  # noqa: SLF001
            greedy = _parser.SubPattern(tree.state, [(_parser.MAX_REPEAT, given)])
            tree.data[at] = (_parser.ATOMIC_GROUP, greedy)


def _inside(given: Any) -> list[Any]:
    """The trees that a node holds, at whatever depth of its tuples and lists."""
    if isinstance(given, _parser.SubPattern):
        return [given]
    if isinstance(given, tuple | list):
        return [tree for part in given for tree in _inside(part)]
    return []


def install() -> None:
    """Let all that this process compiles from now on be parsed so."""
    _parser.parse = parse_rightly
