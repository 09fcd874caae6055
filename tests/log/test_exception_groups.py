"""A group of exceptions, as Python draws it: the member that failed is the failure, not the group around it."""

from vllm_doctor.log.traceback import Crash, tracebacks
from vllm_doctor.records.log import LogLine

DRAWN = """\
ERROR:    Exception in ASGI application
  + Exception Group Traceback (most recent call last):
  |   File "/v/site-packages/starlette/_utils.py", line 81, in collapse_excgroups
  |     yield
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/v/site-packages/vllm/entrypoints/openai/serving.py", line 12, in stream
    |     async for one in answers:
    |   File "/v/site-packages/vllm/entrypoints/openai/parsing.py", line 9, in part
    |     last.call.arguments
    | AttributeError: 'NoneType' object has no attribute 'arguments'
    +------------------------------------
"""


def read(lines: list[str]) -> tuple[Crash, ...]:
    """The tracebacks of these lines, all of one process."""
    return tracebacks([LogLine(number, text, process="APIServer") for number, text in enumerate(lines, 1)])


def test_the_member_of_a_group_is_read_with_its_calls() -> None:
    (found,) = read(DRAWN.splitlines())
    assert (found.root.kind, [f.function for f in found.root.frames]) == ("AttributeError", ["stream", "part"])
    assert found.root.message == "'NoneType' object has no attribute 'arguments'"


def test_a_group_that_followed_another_exception_is_read_alike() -> None:
    before = ["Traceback (most recent call last):", '  File "/v/a.py", line 1, in f', "    go()", "ValueError: no", ""]
    found = read(
        [*before, "During handling of the above exception, another exception occurred:", "", *DRAWN.splitlines()[1:]]
    )
    assert (found[-1].root.kind, [f.function for f in found[-1].root.frames]) == ("AttributeError", ["stream", "part"])


def test_a_group_whose_members_were_cut_away_is_still_a_traceback() -> None:
    (found,) = read(DRAWN.splitlines()[:5])
    assert found.root.kind == "ExceptionGroup"


def test_a_table_behind_a_plain_traceback_is_no_part_of_a_group() -> None:
    plain = 'Traceback (most recent call last):\n  File "/v/a.py", line 1, in f\n    go()\nValueError: no\n| a | b |'
    (found,) = read(plain.splitlines())
    assert found.root.kind == "ValueError"
