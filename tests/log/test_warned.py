"""A warning that a library writes into a traceback is none of its lines: neither its exception nor a part of what it
says."""

import pytest

from vllm_doctor.log.traceback import tracebacks
from vllm_doctor.records.log import LogLine

CRASH = (
    "Traceback (most recent call last):",
    '  File "/x/vllm/engine/arg_utils.py", line 9, in make',
    "    return f(x)",
    "ValueError: no such schema",
    "known are: a, b",
)
WARNINGS = ("FutureWarning: The pynvml package is deprecated.", "UserWarning: x", "Warning: y")


@pytest.mark.parametrize("at", range(2, len(CRASH)))
@pytest.mark.parametrize("warning", WARNINGS)
def test_it_is_passed_over(warning: str, at: int) -> None:
    lines = (*CRASH[:at], warning, *CRASH[at:])
    (crash,) = tracebacks([LogLine(number, text) for number, text in enumerate(lines, 1)])
    assert (crash.root.name, crash.root.message) == ("ValueError", "no such schema\nknown are: a, b")
    assert [frame.function for frame in crash.root.frames] == ["make"]
