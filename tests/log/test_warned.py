"""A warning that a library writes into a traceback is none of its lines: neither its exception nor a part of what it
says."""

import pytest

from tests.log.judging import judged_text
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


IMPORT_WARNED = (
    "(pid=9) /x/site-packages/vllm/version.py:8: RuntimeWarning: Failed to read commit hash:",
    "(pid=9) No module named 'vllm._version'",
    "(pid=9)   from vllm.version import __version__",
)


def test_a_warning_of_several_lines_ends_with_the_code_that_warned() -> None:
    assert not judged_text("\n".join(IMPORT_WARNED)).findings


def test_the_same_line_without_the_code_below_it_is_an_import_that_failed() -> None:
    (found, *_) = judged_text("\n".join((*IMPORT_WARNED[2:], *IMPORT_WARNED[1:2]))).findings
    assert found.code == "VD514"
