"""Where vLLM's functions stand: which release a log is of, and what became of a function."""

import pytest

from vllm_doctor.knowledge import functions
from vllm_doctor.knowledge.functions import CodePlace, FunctionHistory, history_of, releases_of
from vllm_doctor.knowledge.version import as_version

PACKAGES = "/opt/venv/lib/python3.12/site-packages/vllm/"
# As a start of 0.18.0 that fails prints them.
CALLS = (
    CodePlace(f"{PACKAGES}v1/engine/core.py", 1073, "EngineCoreProc.run_engine_core"),
    CodePlace(f"{PACKAGES}model_executor/model_loader/base_loader.py", 55, "load_model"),
    CodePlace(f"{PACKAGES}model_executor/layers/linear.py", 1045, "validate_shard_id"),
)
SHARD = "QKVParallelLinear.validate_shard_id"
# A product in eight bits, through the calls of V0; and a file of V0 alone.
PRODUCT = (
    (f"{PACKAGES}model_executor/layers/quantization/utils/w8a8_utils.py", "apply_fp8_linear"),
    (f"{PACKAGES}_custom_ops.py", "cutlass_scaled_mm"),
)
V0 = (f"{PACKAGES}worker/worker.py", "")
BODY = functions._Body(1, 9, 1)
STAMP = CodePlace("core.py", 1099)


def test_calls_and_a_stamp_of_the_logger_tell_the_release() -> None:
    assert releases_of(CALLS) == ("0.18.0", "0.18.1", "0.19.0", "0.19.1")
    assert releases_of((*CALLS, STAMP, CodePlace("v1/worker/gpu_worker.py", 1))) == ("0.18.0", "0.18.1")


def test_the_names_of_calls_tell_the_last_release_that_has_them_where_no_line_fits() -> None:
    assert functions.last_with(PRODUCT) == "0.7.3"
    assert functions.last_with([*PRODUCT, V0]) == "0.7.3"
    assert functions.last_with([V0]) == "0.10.2"


def test_what_the_newest_release_has_or_none_has_bounds_nothing() -> None:
    newest = (f"{PACKAGES}v1/engine/core.py", "run_engine_core")
    assert functions.last_with([newest]) is None
    assert functions.last_with([newest, (f"{PACKAGES}v1/engine/core.py", "own_patch")]) is None
    assert functions.last_with([(f"{PACKAGES}own.py", "f"), ("/srv/app.py", "main")]) is None


def test_two_places_tell_nothing_and_neither_do_many_that_disagree() -> None:
    assert releases_of(CALLS[:2]) == ()
    assert releases_of([*CALLS, *(CodePlace("core.py", at) for at in (2, 3))]) == ()


def test_files_of_others_and_functions_that_no_release_has_there_are_no_places() -> None:
    others = [CodePlace("/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1775, "_call_impl")] * 9
    assert releases_of([*others, *CALLS[:2]]) == ()


@pytest.mark.parametrize(
    ("release", "line", "known"),
    [
        (
            "0.18.0",
            1045,
            FunctionHistory("QKVParallelLinear.validate_shard_id", "0.17.0", "0.16.0", "0.25.0", gone=False),
        ),
        ("0.16.0", 1045, None),
        ("0.18.0", 5, None),
    ],
)
def test_a_function_has_the_release_that_brought_it_and_the_one_that_changed_it(
    release: str, line: int, known: FunctionHistory | None
) -> None:
    place = CodePlace(f"{PACKAGES}model_executor/layers/linear.py", line, "validate_shard_id")
    assert history_of(place, as_version(release)) == known


def test_what_the_newest_release_still_has_is_not_changed() -> None:
    place = CodePlace(f"{PACKAGES}model_executor/model_loader/base_loader.py", 90, "load_model")
    found = history_of(place, as_version("0.33.0"))
    assert found is not None
    assert (found.changed, found.gone) == (None, False)


def test_a_function_whose_file_is_away_for_a_time_is_gone_where_the_file_went() -> None:
    source = functions._Source(((0, 1), (3, 3)), (frozenset(), frozenset()), {"f": (BODY, BODY)})
    assert functions._history(source, "f", 0, BODY).gone
