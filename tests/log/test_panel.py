"""A traceback in rich's panel is read as Python writes one, and no line moves."""

from vllm_doctor.log.read.panel import unpanelled
from vllm_doctor.log.traceback import tracebacks
from vllm_doctor.records.log import LogLine

WIDTH = 64


def _panel(*inside: str) -> list[str]:
    return [
        "╭" + " Traceback (most recent call last) ".center(WIDTH + 2, "─") + "╮",
        *(f"│ {line:<{WIDTH}} │" for line in inside),
        "╰" + "─" * (WIDTH + 2) + "╯",
    ]


OUTER = ("/srv/run/trainer/main.py:8 in <module>", "", "   7 │   batch = None", "❱  8 step(batch)")
INNER = ("/srv/run/trainer/loop.py:4 in step", "", "   3 def step(batch):", "❱  4 │   return batch[0]", "   5")
RAISED = "TypeError: 'NoneType' object is not subscriptable"


def test_each_call_has_its_file_its_line_and_its_code() -> None:
    raw = [*_panel(*OUTER, "", *INNER), RAISED]
    lines = unpanelled(raw)
    assert len(lines) == len(raw)
    (crash,) = tracebacks([LogLine(i, text) for i, text in enumerate(lines, 1) if text.strip()])
    assert [(f.file, f.line, f.function, f.code) for f in crash.root.frames] == [
        ("/srv/run/trainer/main.py", 8, "<module>", "step(batch)"),
        ("/srv/run/trainer/loop.py", 4, "step", "return batch[0]"),
    ]
    assert crash.root.message == "'NoneType' object is not subscriptable"


def test_a_path_that_the_panel_broke_is_whole() -> None:
    cut = ("/srv/run/lib/python3.12/site-packages/a_program_with_a_long_na", "me/models/engine.py:7 in ask")
    (called,) = [line for line in unpanelled(_panel(*cut, "❱  7 │   x()")) if "File" in line]
    assert (
        called
        == '  File "/srv/run/lib/python3.12/site-packages/a_program_with_a_long_name/models/engine.py", line 7, in ask'
    )


def test_what_stands_before_the_panel_stays() -> None:
    raw = [f"(Trainer pid=9) {line}" for line in _panel(*INNER)]
    assert unpanelled(raw)[0] == "(Trainer pid=9) Traceback (most recent call last):"
    assert unpanelled(raw)[1] == '(Trainer pid=9)   File "/srv/run/trainer/loop.py", line 4, in step'


def test_a_table_and_a_banner_are_left_as_they_are() -> None:
    table = ["╭───┬───╮", "│ a │ b │", "│ 1 │ 2 │", "╰───┴───╯"]
    assert unpanelled(table) == table
    assert unpanelled(_panel("no call stands here"))[1:2] == _panel("no call stands here")[1:2]
