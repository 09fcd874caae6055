"""What decides a refusal, found by its file and its sentence."""

import pytest

from vllm_doctor.knowledge.guards import Decider, guard
from vllm_doctor.knowledge.version import Version

SITE = "/opt/v/lib/python3.12/site-packages/vllm"
NEWEST = Version((0, 33))


@pytest.mark.parametrize(
    ("file", "said", "by"),
    [
        (
            f"{SITE}/models/minimax_m3/amd/model.py",
            "Unsupported activation: relu. Only swigluoai is supported.",
            (Decider("model", "hidden_act", "", "!=", "'swigluoai'"),),
        ),
        (
            f"{SITE}/config/profiler.py",
            "chrome_trace output requires proton_data='trace'",
            (
                Decider("option", "profiler-config", "proton_output_format", "==", "'chrome_trace'"),
                Decider("option", "profiler-config", "proton_data", "!=", "'trace'"),
            ),
        ),
        (
            # a check of pydantic's is one of the configuration's, whose file the traceback does not have
            "/opt/vllm/lib/python3.12/site-packages/pydantic/_internal/_dataclasses.py",
            "1 validation error for EngramConfig\n  Value error, dp_shared_memory is not supported with elastic EP.",
            (Decider("option", "enable-elastic-ep", "", "on", ""),),
        ),
        (f"{SITE}/entrypoints/mcp/tool_server.py", "Unknown tool search", ()),
    ],
)
def test_of_a_sentence(file: str, said: str, by: tuple[Decider, ...]) -> None:
    found = guard(file, said, NEWEST)
    assert found is not None
    assert found.by == by


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (f"{SITE}/models/minimax_m3/amd/model.py", "An Unsupported activation: relu. Only swigluoai is supported."),
        (f"{SITE}/models/minimax_m3/amd/model.py", "Unsupported activation: relu."),
        (f"{SITE}/models/minimax_m3/amd/other.py", "Unsupported activation: relu. Only swigluoai is supported."),
    ],
)
def test_of_another_sentence_or_file(file: str, said: str) -> None:
    assert guard(file, said, NEWEST) is None
