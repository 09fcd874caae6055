"""A log that a page shows newest first is turned; what only looks like one stays as it is."""

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.read.newest_first import oldest_first
from vllm_doctor.records.log import Log


def read(*lines: str) -> Log:
    return log_of_lines([*lines], "x")


def turned(*lines: str) -> list[str] | None:
    found = oldest_first(read(*lines).last.lines)
    return None if found is None else [line.text for line in found]


def at(second: int, words: str, day: str = "03-14") -> str:
    return f"INFO {day} 09:11:{second:02d} [core.py:1] {words}"


def test_lines_with_a_time_each() -> None:
    assert turned(at(9, "fourth"), at(7, "third"), at(5, "second"), at(1, "first")) == [
        "first",
        "second",
        "third",
        "fourth",
    ]


def test_another_logger_of_the_same_program_has_its_time_behind_its_file() -> None:
    lines = (
        "engine.py           :190  2026-03-14 09:11:09,112 fourth",
        at(7, "third"),
        at(7, "second"),
        at(1, "first"),
    )
    found = turned(*lines)
    assert found is not None
    assert [text.split()[-1] for text in found] == ["first", "second", "third", "fourth"]


def test_what_follows_a_line_stays_below_it() -> None:
    lines = (at(9, "third"), "Traceback", "  File", at(5, "second"), at(1, "first"))
    assert turned(*lines) == ["first", "second", "third", "Traceback", "  File"]


def test_a_page_with_a_line_for_each_time() -> None:
    lines = ("2026-03-14 09:11:09", "third", "2026-03-14 09:11:05", "second", "2026-03-14 09:11:01", "first")
    found = turned(*lines)
    assert found is not None
    assert [t for t in found if not t.startswith("2026")] == ["first", "second", "third"]


def test_an_order_from_the_oldest_on_stays() -> None:
    assert turned(*(at(n, f"line {n}") for n in (1, 5, 9, 12))) is None


def iso(second: int, words: str) -> str:
    return f"2026-03-14T09:11:{second:02d}.120Z {at(second, words)}"


def test_a_container_s_times_and_journald_s_tell_it_too() -> None:
    assert turned(iso(9, "third"), iso(5, "second"), iso(1, "first")) == ["first", "second", "third"]
    told = [f"Mar {day:2d} 09:11:00 gpu1 vllm[71]: {at(1, words)}" for day, words in ((14, "c"), (9, "b"), (2, "a"))]
    assert turned(*told) == ["a", "b", "c"]


def test_a_step_forward_of_two_processes_among_many_back_is_of_no_matter() -> None:
    lines = [at(50 - n, f"line {n}") for n in range(12)]
    lines[5], lines[6] = lines[6], lines[5]
    found = turned(*lines)
    assert found is not None
    assert (found[0], found[-1]) == ("line 11", "line 0")


CALLS = ("RuntimeError: no", "    step()", '  File "/srv/a.py", line 1, in run', "Traceback (most recent call last):")


def test_of_one_moment_a_traceback_tells_the_order() -> None:
    lines = [at(1, words) for words in (*CALLS, "Starting")]
    assert turned(*lines) == ["Starting", *reversed(CALLS)]
    assert turned(*reversed(lines)) is None


def test_calls_above_and_below_a_heading_are_two_tracebacks() -> None:
    assert turned(*(at(1, words) for words in (CALLS[2], CALLS[1], CALLS[3], CALLS[2]))) is None


def test_lines_without_a_time_are_lines_of_their_own_where_a_traceback_is_upside_down() -> None:
    assert turned(at(9, "gone"), *CALLS, at(5, "up"), at(1, "first")) == ["first", "up", *reversed(CALLS), "gone"]


def test_a_step_forward_among_steps_back_stays() -> None:
    assert turned(at(9, "a"), at(7, "b"), at(8, "c"), at(1, "d")) is None


def test_one_step_back_stays_as_processes_write_at_the_same_moment() -> None:
    assert turned(at(9, "a"), at(9, "b"), at(8, "c")) is None


def test_the_turn_of_the_year_stays() -> None:
    assert turned(at(58, "a", "12-31"), at(59, "b", "12-31"), at(1, "c", "01-01"), at(2, "d", "01-01")) is None


def test_too_few_times_stay() -> None:
    assert turned(at(9, "b"), at(1, "a")) is None
