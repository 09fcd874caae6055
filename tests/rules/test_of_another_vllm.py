"""A program that takes from vLLM what this release has not is told which releases have it."""

import pytest

from tests.rules.test_ends import diagnosed

TRAINER = (
    "Traceback (most recent call last):\n"
    '  File "/opt/v/lib/python3.12/site-packages/trl/trainer/online.py", line 212, in train\n'
    "    found = self.llm.generate(prompt_token_ids=rows)\n"
)
OWN = (
    "Traceback (most recent call last):\n"
    '  File "/opt/v/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 212, in load_model\n'
    "    self.model_runner.load_model(eep_scale_up=scale)\n"
)


@pytest.mark.parametrize(
    ("said", "code", "title", "to"),
    [
        (
            "TypeError: LLM.generate() got an unexpected keyword argument 'prompt_token_ids'",
            "VD527", "LLM.generate(prompt_token_ids=…) is of vLLM 0.2.0 to 0.10.1.1", "0.10.1.1",
        ),
        (
            "AttributeError: 'SamplingParams' object has no attribute 'best_of'",
            "VD527", "SamplingParams.best_of is of vLLM 0.2.0 to 0.11.2", "0.11.2",
        ),
        (
            "ImportError: cannot import name 'make_async' from 'vllm.utils' (/opt/v/vllm/utils/__init__.py)",
            "VD514", "make_async in vllm.utils is of vLLM 0.3.0 to 0.11.0", "0.11.0",
        ),
        (
            "ModuleNotFoundError: No module named 'vllm.v1.worker.gpu_model_runner'",
            "VD514", "vllm.v1.worker.gpu_model_runner is of vLLM 0.6.4 and later", "0.6.4",
        ),
    ],
)  # fmt: skip
def test_the_releases_that_have_it_are_named(said: str, code: str, title: str, to: str) -> None:
    told = diagnosed(said).findings[0]
    assert (told.code, told.title) == (code, title)
    assert (told.changes[0].name, told.changes[0].after) == ("vllm-version", to)


def test_a_name_that_moved_is_told_with_its_place() -> None:
    told = diagnosed("ImportError: cannot import name 'make_async' from 'vllm.utils' (/v/vllm/utils/__init__.py)")
    assert "later releases have the name in vllm.utils.async_utils" in told.findings[0].changes[0].why


def test_the_programs_own_release_comes_first_where_it_is_known() -> None:
    told = diagnosed(f"{TRAINER}TypeError: LLM.generate() got an unexpected keyword argument 'prompt_token_ids'")
    assert [c.after for c in told.findings[0].changes] == ["trl", "0.10.1.1"]


@pytest.mark.parametrize(
    "said",
    [
        f"{OWN}TypeError: GPUModelRunner.load_model() got an unexpected keyword argument 'eep_scale_up'",
        "TypeError: LLM.generate() got an unexpected keyword argument 'no_release_has_this'",
    ],
)
def test_of_vllms_own_call_and_of_what_no_release_has_nothing_is_said(said: str) -> None:
    assert "is of vLLM" not in diagnosed(said).findings[0].title
