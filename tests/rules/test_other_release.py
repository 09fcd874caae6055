"""Which release wrote a log without a version, and what another release changed where it failed."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.knowledge import functions
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.render import human, markdown

PACKAGES = "/opt/v/lib/python3.12/site-packages/vllm/"
PRINTED = (
    "(EngineCore pid=9) INFO 05-02 09:11:19 [core.py:98] Initializing a V1 LLM engine (v{}) with config: model='a/b'\n"
)
# 0.18's lines
CALLS = (
    ("v1/engine/core.py", 1073, "run_engine_core"),
    ("model_executor/model_loader/base_loader.py", 55, "load_model"),
    ("model_executor/layers/linear.py", 1045, "validate_shard_id"),
)
STAMP = "[core.py:1099]"
# 0.32's; 0.33 has the same code in all three, and the outermost came with 0.32.
SAME = (
    ("v1/core/kv_cache_manager.py", 590, "allocate_slots"),
    ("v1/core/kv_cache_coordinator.py", 335, "allocate_new_blocks"),
    ("v1/core/single_type_kv_cache_manager.py", 388, "allocate_new_blocks"),
)


def failed(calls: tuple[tuple[str, int, str], ...], *, stamp: str = STAMP, code: str = "rows = sizes[at]") -> Diagnosis:
    frames = "".join(f'  File "{PACKAGES}{file}", line {line}, in {name}\n    {code}\n' for file, line, name in calls)
    text = (
        f"EngineCore failed to start.\nTraceback (most recent call last):\n{frames}IndexError: list index out of range"
    )
    return diagnosed("".join(f"(EngineCore pid=9) ERROR 05-02 09:12:40 {stamp} {one}\n" for one in text.split("\n")))


def test_the_lines_of_calls_and_of_the_logger_tell_the_release() -> None:
    told = failed(CALLS)
    assert told.facts["vllm_version"] == "0.18.1"
    assert told.facts["vllm_version_by_lines"] == "0.18.0 or 0.18.1"
    assert "vLLM 0.18.0 or 0.18.1 (by its line numbers; or a build near it) does not start" in human.text(told)
    assert "by its line numbers" in markdown.text([told])


def test_two_minor_releases_tell_no_version_and_two_places_tell_nothing() -> None:
    assert failed(CALLS, stamp="[core.py:1]").facts["vllm_version"] is None
    assert failed(CALLS[1:], stamp="[other.py:1]").facts["vllm_version"] is None


def test_an_upgrade_says_which_release_changed_the_function_that_failed() -> None:
    change = failed(CALLS).findings[0].changes[-1]
    assert (change.name, change.after) == ("vllm-version", "0.33.0")
    assert (
        change.why == "0.25.0 changed `QKVParallelLinear.validate_shard_id`, in which it failed: it may be fixed there"
    )


def test_no_upgrade_is_offered_where_the_newest_has_the_very_code_and_the_release_before_it_is() -> None:
    told = diagnosed(PRINTED.format("0.32.0") + _lines(SAME))
    changes = [(one.name, one.direction.value, one.after) for one in told.findings[0].changes]
    assert ("vllm-version", "upgrade", "0.33.0") not in changes
    assert changes == [("vllm-version", "downgrade", "0.31.0")]


def _lines(calls: tuple[tuple[str, int, str], ...]) -> str:
    frames = "".join(f'  File "{PACKAGES}{file}", line {line}, in {name}\n    held[at]\n' for file, line, name in calls)
    text = f"Traceback (most recent call last):\n{frames}KeyError: 'cmpl-41'"
    return "".join(f"(EngineCore pid=9) ERROR 05-02 09:31:40 [core.py:1499] {one}\n" for one in text.split("\n"))


def test_a_printed_release_is_not_looked_up_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is five megabytes: it is read where no line prints the version, or something failed in vLLM's code."""
    monkeypatch.setattr(functions, "_standing", _unread)
    told = diagnosed(PRINTED.format("0.32.0") + "(APIServer pid=7) INFO:     Application startup complete.\n")
    assert told.facts["vllm_version"] == "0.32.0"


def test_beside_a_plugin_no_older_vllm_is_offered_alone() -> None:
    plugin = "(EngineCore pid=9) INFO 05-02 09:11:10 [__init__.py:38] - ascend -> vllm_ascend:register\n"
    plugin += "(EngineCore pid=9) INFO 05-02 09:11:10 [__init__.py:207] Platform plugin ascend is activated\n"
    told = diagnosed(plugin + PRINTED.format("0.32.0") + _lines(SAME))
    assert not [one for one in told.findings[0].changes if one.name == "vllm-version"]


def _unread(_: functions.CodePlace) -> None:
    raise AssertionError("the table of functions was read")
