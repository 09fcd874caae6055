"""What C++ prints of an exception of Python's is read as the traceback that it is, whoever passed it on."""

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.root_cause import AnalysedRun

CALLS = (
    "At:",
    "  /usr/lib/python3.12/asyncio/runners.py(195): run",
    "  /opt/tritonserver/backends/vllm/model.py(120): initialize",
)
SAID = "Failed to initialize Python stub: ValueError: no such room: 9"
HEAD = "I0314 09:27:49.624943 179 pb_stub.cc:388] "


def run_of(text: str) -> AnalysedRun:
    return AnalysedRun(log_of_lines(text.split("\n"), "log"))


def test_calls_are_read_innermost_first() -> None:
    (crash,) = run_of("\n".join((HEAD + SAID, "", *CALLS))).crashes
    assert (crash.root.kind, crash.root.message) == ("ValueError", "no such room: 9")
    assert crash.functions == ("initialize", "run")
    assert crash.root.frames[-1].line == 195


def test_a_message_that_klog_quotes_is_parted_into_its_lines() -> None:
    quoted = "\\n".join((SAID, "", *CALLS))
    (crash,) = run_of(f'{HEAD}"{quoted}\\n"').crashes
    assert crash.root.message == "no such room: 9"
    assert [frame.line for frame in crash.root.frames] == [120, 195]


def test_a_message_of_several_lines_is_whole() -> None:
    (crash,) = run_of("\n".join((HEAD + SAID, "  only 1 to 8", "", *CALLS))).crashes
    assert crash.root.message == "no such room: 9\n  only 1 to 8"


def test_no_calls_no_traceback() -> None:
    assert not run_of("\n".join((HEAD + SAID, "", "At:", "the door"))).crashes


def test_it_takes_the_place_of_the_exception_that_was_read_without_its_calls() -> None:
    (crash,) = run_of("\n".join(("ValueError: no such room: 9", "", *CALLS))).crashes
    assert len(crash.root.frames) == 2
