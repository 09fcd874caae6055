"""A lookup that found nothing tells its key alone; what the same function raises for it is the sentence."""

from vllm_doctor.log.traceback import tracebacks
from vllm_doctor.records.log import LogLine

HANDLED = "During handling of the above exception, another exception occurred:"
CHAIN = """Traceback (most recent call last):
  File "/x/site-packages/rooms/chip.py", line 61, in get_card
    return CARDS[name]
           ~~~~~^^^^^^
KeyError: 'gfx1200'

{}

Traceback (most recent call last):
  File "/x/site-packages/rooms/chip.py", line 63, in {}
    raise RuntimeError(f"no such card: {{name}}")
RuntimeError: no such card: gfx1200
"""


def root(function: str) -> str:
    lines = CHAIN.format(HANDLED, function).splitlines()
    (crash,) = tracebacks([LogLine(i, text) for i, text in enumerate(lines, 1)])
    return crash.root.kind


def test_the_function_that_looked_it_up_says_what_failed() -> None:
    assert root("get_card") == "RuntimeError"


def test_another_functions_sentence_is_what_came_of_it() -> None:
    assert root("open_room") == "KeyError"
