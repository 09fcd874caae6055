"""What somebody pastes of `systemctl status` is read in the words that the journal has for the same end."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.log.read.assemble import log_of_lines

PAGE = """{dot} vllm@chat.service - vLLM
     Loaded: loaded (/etc/systemd/system/vllm@.service; enabled; preset: enabled)
     Active: failed (Result: {result}) since Mon 2026-03-02 10:00:00 UTC; 3s ago
    Process: 4210 ExecStartPre=/usr/bin/vllm-check (code=exited, status=0/SUCCESS)
    Process: 4211 ExecStart=/opt/vllm/bin/vllm serve example/model (code={end})
   Main PID: 4211 (code={end})
"""


def page(result: str, end: str, dot: str = "×") -> str:
    return PAGE.format(result=result, end=end, dot=dot)


@pytest.mark.parametrize(
    ("result", "end", "said"),
    [
        ("exit-code", "exited, status=203/EXEC", "Main process exited, code=exited, status=203/EXEC"),
        ("exit-code", "exited, status=127", "Main process exited, code=exited, status=127"),
        ("signal", "killed, signal=KILL", "Main process exited, code=killed, status=9/KILL"),
        ("core-dump", "dumped, signal=SEGV", "Main process exited, code=dumped, status=11/SEGV"),
    ],
)
def test_each_end_is_said_once_and_as_in_the_journal(result: str, end: str, said: str) -> None:
    told = [line.text for line in log_of_lines(page(result, end).splitlines(), "log").last.lines]
    assert [text for text in told if text.startswith("vllm@chat.service: ")] == [
        f"vllm@chat.service: Failed with result '{result}'.",
        f"vllm@chat.service: {said}",
    ]


@pytest.mark.parametrize("dot", ["×", "●", "○"])
def test_the_step_that_systemd_could_not_take_is_named(dot: str) -> None:
    told = diagnosed(page("exit-code", "exited, status=203/EXEC", dot)).findings
    assert [finding.code for finding in told] == ["VD532"]


def test_the_hosts_memory_is_told_by_the_result() -> None:
    assert diagnosed(page("oom-kill", "killed, signal=KILL")).findings[0].code == "VD603"


def test_lines_of_a_page_that_is_of_no_unit_stay_as_they_are() -> None:
    line = "   Main PID: 4211 (code=exited, status=203/EXEC)"
    assert [one.text for one in log_of_lines([line], "log").last.lines] == [line]


def test_a_signal_that_has_no_number_here_is_not_given_one() -> None:
    told = [line.text for line in log_of_lines(page("signal", "killed, signal=LOST5").splitlines(), "log").last.lines]
    assert not [text for text in told if "process exited" in text]
