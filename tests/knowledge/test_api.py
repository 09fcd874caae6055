"""Which releases have a name that a program takes from vLLM."""

import pytest

from vllm_doctor.knowledge import api
from vllm_doctor.knowledge.version import as_version


@pytest.mark.parametrize(
    ("kind", "owner", "name", "told"),
    [
        ("arguments", "LLM.generate", "prompt_token_ids", "0.2.0 to 0.10.1.1"),
        ("members", "SamplingParams", "use_beam_search", "0.2.0 to 0.6.2"),
        ("arguments", "GPUModelRunner.load_model", "eep_scale_up", "0.10.0 to 0.16.0"),
        ("modules", "vllm", "vllm.model_executor.parallel_utils", "0.2.0 to 0.4.0.post1"),
    ],
)
def test_a_name_that_went_has_its_releases(kind: api.Kind, owner: str, name: str, told: str) -> None:
    for at in (None, as_version("0.33.0")):
        found = api.span(kind, owner, name, at)
        assert found is not None
        assert (found.told, found.ended) == (told, True)


def test_of_a_release_that_has_the_name_nothing_is_said() -> None:
    assert api.span("arguments", "LLM.generate", "prompt_token_ids", as_version("0.8.5")) is None
    assert api.span("arguments", "LLM.generate", "no_such_argument", None) is None


def test_a_name_that_is_still_there_is_of_its_first_release_and_later() -> None:
    found = api.module("vllm.v1.worker.gpu_model_runner", as_version("0.6.2"))
    assert found is not None
    assert (found.told, found.ended) == ("0.6.4 and later", False)
    assert api.module("vllm.v1.worker.gpu_model_runner", as_version("0.40.0")) is None
