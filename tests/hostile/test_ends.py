"""Every pattern of the package comes to an end on a short text that is made to be slow.

`make hostile` compares the time for a byte at great lengths. What grows with each sign by a factor shows at a few
hundred: that is cheap enough for every run of the tests.
"""

import os
import re
from collections.abc import Sequence

from tests.hostile.limited import said_within
from tests.hostile.patterns import Found, adversaries, everything

SIGNS = 300
# Of processor time, for all patterns together: they take some three seconds.
PATIENCE_S = 120


def never_ends(found: Sequence[Found], patience_s: float = PATIENCE_S) -> str:
    """The first expression that does not end, by where it stands."""

    def ask(told: int) -> None:
        for one in found:
            os.write(told, f"{one.where}\n".encode(errors="replace"))
            _ask(one)

    reached, ended = said_within(ask, patience_s)
    return reached.splitlines()[-1] if ended else ""


def _ask(found: Found) -> None:
    pattern = re.compile(found.text, found.flags)
    for once, core in adversaries(found.text, found.flags):
        made = f"{once}{(core * SIGNS)[:SIGNS]}\x01"
        for method in found.methods:
            answer = getattr(pattern, method)(made.encode() if isinstance(found.text, bytes) else made)
            if method == "finditer":
                for _ in answer:
                    pass


def test_every_pattern_ends_on_a_short_text() -> None:
    found = everything()
    assert len(found) > 450, "the search for patterns lost some"
    assert not never_ends(found)


def test_one_that_does_not_end_is_named() -> None:
    good = Found(r"[\w$]+", re.ASCII, "good", ("fullmatch",))
    bad = Found(r"(?:\w|\$[a-z]\w{0,60})+", re.ASCII, "two ways to read a name", ("fullmatch",))
    assert never_ends([good, bad, good], patience_s=1) == "two ways to read a name"
