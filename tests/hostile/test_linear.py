"""No pattern of the package takes more than its share of time for a byte, however long and odd the text.

Processor time for a byte is compared between sizes of the same text: what grows is quadratic or worse. That holds on a
slow machine. It takes minutes, and what is measured while others work can be wrong: it belongs to `make hostile`.
"""

import os
import re
import time
from collections.abc import Sequence

import pytest

from tests.hostile.limited import said_within
from tests.hostile.patterns import Found, adversaries, everything

LONG = bool(os.environ.get("VLLM_DOCTOR_HOSTILE_LONG"))
pytestmark = pytest.mark.skipif(not LONG, reason="measures time, for minutes: make hostile")
# Beyond the bound of every repeat that has one, and eight times as much: then as much again, up to a mebibyte.
SIZES = (4_000, 32_000)
# As many times the text in as many times the time is a growth of one.
GROWTH = 2.5
# Less than this is too short to be measured.
MEASURABLE_S = 2e-3
# Of one expression, before it is taken for one that never ends.
PATIENCE_S = 60


# What is never asked of a long text, and what sees to that.
SHORT = {
    "vllm_doctor.redact.values._PLAIN": "a value of at most LONGEST_PLAIN characters",
    "vllm_doctor.redact.values._WORDS": "a word of at most LONGEST_PLAIN characters",
}


def cost(pattern: re.Pattern[str] | re.Pattern[bytes], method: str, text: str | bytes, *, runs: int) -> float:
    """Processor seconds, the least of some runs."""
    ask = getattr(pattern, method)
    taken = []
    for _ in range(runs):
        began = time.thread_time()
        if method == "finditer":
            for _ in ask(text):
                pass
        else:
            ask(text)
        taken.append(time.thread_time() - began)
    return min(taken)


def grows(found: Found, sizes: Sequence[int] = SIZES) -> str:
    """The text that takes more and more time for a byte; nothing where there is none."""
    pattern = re.compile(found.text, found.flags)
    for once, core in adversaries(found.text, found.flags):

        def text(size: int, once: str = once, core: str = core) -> str | bytes:
            made = f"{once}{core * (size // len(core) + 1)}\x01"
            return made.encode() if isinstance(found.text, bytes) else made

        for method in found.methods:
            before = 0.0
            for size in sizes:
                rate = cost(pattern, method, text(size), runs=1) / size
                if before and rate * size > MEASURABLE_S and rate > GROWTH * before:
                    # Up to a mebibyte, with the best of several runs: the bound of a repeat is behind it then.
                    longer = (size * 8, size * 32)
                    rates = [cost(pattern, method, text(length), runs=3) / length for length in longer]
                    if rates[1] > GROWTH * rates[0]:
                        return f"{method}: {once!r}, then {core!r} again and again: {rates[1] * 1e9:.0f} ns a byte"
                before = rate
    return ""


def judged(found: Found, patience_s: float = PATIENCE_S) -> str:
    """`grows` in a copy of this process, which the kernel ends where a pattern would not."""
    answer, ended = said_within(lambda told: _write(told, grows(found)), patience_s)
    return answer or (f"killed after {patience_s:g} s of work" if ended else "")


def _write(told: int, text: str) -> None:
    os.write(told, text.encode(errors="replace"))


def test_every_pattern_of_the_package_is_linear() -> None:
    found = everything()
    assert len(found) > 450, "the search for patterns lost some"
    slow = {
        one.where: f"{answer}  {one.text!r:.200}" for one in found if one.where not in SHORT and (answer := judged(one))
    }
    assert slow == {}


@pytest.mark.parametrize(
    "text",
    [
        r"[\w-]*token[\w-]*\s*[:=]",
        r"\s*v?\s*-?\s*x",
        r"(a+)+$",
        r"begin .*end",
        r"(?P<file>\S+): undefined",
        r"x(?=.*y)",
        r"(?:\"(?:[^\"\\]|\\.)*+\")++",
    ],
)
def test_a_slow_pattern_is_seen(text: str) -> None:
    assert judged(Found(text, 0, "here", ("search",)), patience_s=5)


@pytest.mark.parametrize("text", [r"(?<!\S)(?P<file>\S+): gone", r"begin .{0,100}end"])
def test_a_linear_pattern_is_left_in_peace(text: str) -> None:
    assert not judged(Found(text, 0, "here", ("search",)))
