"""An answer turns off what the failing code runs for, as the source of its release has it."""

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.finding import Change, Finding

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


def _finding(
    calls: tuple[tuple[str, int, str], ...],
    error: str = "KeyError: 'cmpl-41'",
    *,
    launch: str = "",
    code: str = "held[at]",
) -> Finding:
    frames = "".join(f'  File "{PACKAGES}{file}", line {line}, in {name}\n    {code}\n' for file, line, name in calls)
    text = f"Traceback (most recent call last):\n{frames}{error}"
    rows = "".join(
        f"(Worker pid=9) ERROR 05-02 09:31:40 [multiproc_executor.py:949] {one}\n" for one in text.split("\n")
    )
    return diagnosed(launch + rows).findings[0]


def _changes(calls: tuple[tuple[str, int, str], ...], launch: str = "") -> list[Change]:
    return list(_finding(calls, launch=launch).changes)


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


# Of 0.14: the buffer's size is read only where the experts of each token are to be returned.
EXPERTS = (
    ("v1/engine/core.py", 927, "run_engine_core"),
    ("v1/worker/gpu_model_runner.py", 5683, "init_routed_experts_capturer"),
    ("model_executor/layers/fused_moe/routed_experts_capturer.py", 131, "init_buffer"),
)
# Of 0.21: weights in host memory are seen from the card only where a variable leaves that on.
WEIGHTS = (
    ("v1/worker/gpu_worker.py", 345, "load_model"),
    ("model_executor/offloader/uva.py", 56, "wrap_modules"),
    ("model_executor/offloader/uva.py", 104, "_maybe_offload_to_cpu"),
    ("utils/torch_utils.py", 798, "get_accelerator_view_from_cpu_tensor"),
)


def test_a_field_that_a_feature_alone_reads_is_no_question_of_transformers() -> None:
    found = _finding(EXPERTS, "AttributeError: 'GraniteConfig' object has no attribute 'num_rooms_per_tok'")
    assert (found.title, found.detail) == (
        "--enable-return-routed-experts reads num_rooms_per_tok",
        "which GraniteConfig does not have",
    )
    assert (found.changes[0].name, found.changes[0].after) == ("enable-return-routed-experts", False)


def test_what_the_code_needs_off_is_not_said_to_be_on() -> None:
    changes = _finding(WEIGHTS, "AssertionError: held", code="assert held").changes
    unseen = next(one for one in changes if one.name == "VLLM_WEIGHT_OFFLOADING_DISABLE_UVA")
    assert unseen.after == "1"
    assert unseen.why == "in vLLM's source the failing line of `_maybe_offload_to_cpu` runs only where this is off"
