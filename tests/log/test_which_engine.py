"""Which of the two engines a log is of, where no line signs it."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.root_cause import AnalysedRun

RAISED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."


@pytest.mark.parametrize(
    ("call", "engine"),
    [("determine_num_available_blocks", "V0"), ("profile_num_available_blocks", "V0"), ("profile_run", None)],
)
def test_the_first_engine_alone_counts_blocks(call: str, engine: str | None) -> None:
    lines = [
        "Traceback (most recent call last):",
        f'  File "/opt/app/runner.py", line 9, in {call}',
        "    run()",
        RAISED,
    ]
    assert AnalysedRun(log_of_lines(lines, "log")).engine == engine


def test_a_line_that_names_none_leaves_it_to_the_calls() -> None:
    lines = [
        "INFO 08-21 07:23:34 llm_engine.py:174] Initializing an LLM engine (v0.5.4) with config: model='m'",
        "Traceback (most recent call last):",
        '  File "/opt/app/runner.py", line 9, in determine_num_available_blocks',
        RAISED,
    ]
    assert AnalysedRun(log_of_lines(lines, "log")).engine == "V0"
