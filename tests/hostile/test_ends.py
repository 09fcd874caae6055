"""Every pattern of the package comes to an end on a short text that is made to be slow.

`make hostile` compares the time for a byte at great lengths. What grows with each sign by a factor shows at a few
hundred: that is cheap enough for every run of the tests.
"""

import os
import re
import signal
from collections.abc import Sequence

from tests.hostile.patterns import Found, adversaries, everything

SIGNS = 300
# Of processor time, for all patterns together: they take some three seconds.
PATIENCE_S = 120


def never_ends(found: Sequence[Found], patience_s: float = PATIENCE_S) -> str:
    """The first expression that does not end, by where it stands; a copy of this process tries, and the kernel ends it
    where a pattern would not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, patience_s)
            for one in found:
                os.write(writing, f"{one.where}\n".encode(errors="replace"))
                _ask(one)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        reached = said.read().decode().splitlines()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return reached[-1] if ended or len(reached) < len(found) else ""


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
