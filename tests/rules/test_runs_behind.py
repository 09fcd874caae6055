"""An answer turns off what the failing code runs for, as the source of its release has it."""

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.finding import Change

PACKAGES = "/opt/v/lib/python3.12/site-packages/vllm/"
# Of 0.18: the last line stands in a branch that only asynchronous scheduling takes.
CALLS = (
    ("v1/executor/multiproc_executor.py", 927, "worker_busy_loop"),
    ("v1/worker/worker_base.py", 332, "execute_model"),
    ("v1/worker/gpu_worker.py", 822, "execute_model"),
    ("v1/worker/gpu_model_runner.py", 3583, "execute_model"),
    ("v1/worker/gpu_model_runner.py", 1201, "_update_states"),
)
LAUNCH = "(APIServer pid=7) INFO 05-02 09:10:00 [utils.py:233] non-default args: {}\n"


def _changes(calls: tuple[tuple[str, int, str], ...], launch: str = "") -> list[Change]:
    frames = "".join(f'  File "{PACKAGES}{file}", line {line}, in {name}\n    held[at]\n' for file, line, name in calls)
    text = f"Traceback (most recent call last):\n{frames}KeyError: 'cmpl-41'"
    rows = "".join(
        f"(Worker pid=9) ERROR 05-02 09:31:40 [multiproc_executor.py:949] {one}\n" for one in text.split("\n")
    )
    return list(diagnosed(launch + rows).findings[0].changes)


def test_the_option_above_the_failing_line_is_turned_off_before_a_newer_release_is_offered() -> None:
    first, second = _changes(CALLS)[:2]
    assert (first.name, first.direction.value, first.after) == ("async-scheduling", "set", False)
    assert first.why.endswith("(in vLLM's source the failing line of `_update_states` runs only with this)")
    assert second.name == "vllm-version"


def test_what_is_off_already_is_not_turned_off() -> None:
    off = LAUNCH.format("{'model': 'a/b', 'async_scheduling': False}")
    assert "async-scheduling" not in [one.name for one in _changes(CALLS, off)]


def test_lines_that_no_release_has_say_nothing() -> None:
    moved = tuple((file, line + 9000, name) for file, line, name in CALLS)
    assert "async-scheduling" not in [one.name for one in _changes(moved)]
