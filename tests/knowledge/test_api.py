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


def test_what_a_release_asks_for_has_the_release_before_it() -> None:
    for at in (None, as_version("0.24.1.dev7"), as_version("0.25.0"), as_version("0.33.0")):
        came = api.since("required", "OpenAIServingChat.__init__", "online_renderer", at)
        assert came == api.Came("0.25.0", "0.24.0")


def test_an_abstract_method_is_known_by_its_name_alone() -> None:
    assert api.abstract("apply_lora_full_linear", as_version("0.33.0")) == api.Came("0.31.0", "0.30.0")
    assert api.abstract("no_such_method", as_version("0.33.0")) is None


def test_a_name_has_its_place_in_a_release() -> None:
    assert api.moved("LoRAModulePath", as_version("0.7.1")) == ("vllm.entrypoints.openai.serving_models",)
    assert api.moved("LoRAModulePath", None) == ("vllm.entrypoints.openai.models.protocol",)


def test_an_argument_is_no_property_of_that_name() -> None:
    """0.10.1 has a property disable_log_requests, and 0.10.0 a field."""
    owner = "AsyncEngineArgs.__init__"
    assert api.has("arguments", owner, "disable_log_requests", as_version("0.10.0"))
    assert not api.has("arguments", owner, "disable_log_requests", as_version("0.10.1"))


def test_of_two_classes_of_one_name_what_the_v0_engine_has() -> None:
    at = as_version("0.8.5")
    assert api.has("v0", "LLMEngine", "scheduler_config", at)
    assert not api.has("v0", "LLMEngine", "model_executor", at)
    assert api.has("v0", "AsyncLLM", "engine", at)


def test_a_release_between_two_is_as_the_older_and_a_newer_one_as_the_newest() -> None:
    assert api.has_method("LRUCacheWorkerLoRAManager", "get_dummy_lora_warmup_rank", as_version("0.21.1.dev3"))
    assert api.has("arguments", "OpenAIServingChat.__init__", "online_renderer", as_version("0.99.0"))


def test_what_a_function_lost_last() -> None:
    gone = api.went("arguments", "LLM.generate", as_version("0.10.2"))
    assert gone == api.Lost("prompt_token_ids", api.Came("0.10.2", "0.10.1.1"))
