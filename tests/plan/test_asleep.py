"""Sleep mode gives back what loading has freed while torch counts on it: vLLM plans a larger cache than fits."""

import json

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.plan.question.planner import Question, planner


@pytest.mark.parametrize(
    ("flag", "version", "told"),
    [
        ("--enable-sleep-mode", "0.26.0", True),
        ("--enable-cumem-allocator", "0.33.0", True),
        ("--enable-sleep-mode", "0.10.2", False),
        ("--enforce-eager", "0.26.0", False),
    ],
)
def test_the_answer_says_that_the_cache_may_be_larger_than_planned(tmp_path, flag, version, told):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B))
    q = Question(("vllm", "serve", "m", flag), "H100", 1, None, version, str(file))
    assert any(note.startswith("sleep mode: ") for note in planner(q).notes) == told
