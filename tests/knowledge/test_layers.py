"""Every failure has a layer: told by what its exception says, else by its innermost call."""

import re

import pytest

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.layers import layer_of, layers

SITE = "/opt/v/lib/python3.12/site-packages"


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.id)
def test_it_says_what_to_do_next_and_its_patterns_are_sound(layer: object) -> None:
    told = next(one for one in layers() if one is layer)
    assert told.next
    assert told.name[0].isupper()
    assert told.said or told.files
    for regex in (told.said, told.files, *(a.said for a in told.answers)):
        re.compile(regex)


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.id)
def test_a_release_has_one_of_the_options_that_it_answers_with(layer: object) -> None:
    told = next(one for one in layers() if one is layer)
    for answer in told.answers:
        if answer.kind == "flag":
            assert any(versions.flag(option, at) is not None for option in answer.options for at in ("0.9.2", "0.33.0"))


@pytest.mark.parametrize(
    ("said", "files", "layer"),
    [
        ("AssertionError: ", [f"{SITE}/vllm/engine/llm_engine.py", f"{SITE}/xgrammar/matcher.py"], "structured-output"),
        (
            "IndexError: x",
            [f"{SITE}/vllm/v1/engine/core.py", f"{SITE}/vllm/v1/core/sched/scheduler.py"],
            "cache-blocks",
        ),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
            [f"{SITE}/torch/cuda/__init__.py"],
            "processes",
        ),
        ("ValueError: Attempted to assign 3 x 7 = 21 multimodal tokens to 20 placeholders", [], "multimodal"),
        ("ValueError: Ray does not allocate any GPUs on the driver node.", [f"{SITE}/vllm/x.py"], "ray"),
        (
            "RuntimeError: x",
            [f"{SITE}/vllm/model_executor/models/a.py", f"{SITE}/torch/nn/modules/conv.py"],
            "model-code",
        ),
        ("RuntimeError: x", [f"{SITE}/vllm/model_executor/layers/fused_moe/layer.py"], "experts"),
    ],
)
def test_the_layer_of_a_failure(said: str, files: list[str], layer: str) -> None:
    found = layer_of((said,), files)
    assert found is not None
    assert found.id == layer


def test_what_the_first_exception_says_weighs_more_than_calls_and_they_more_than_what_followed() -> None:
    calls = [f"{SITE}/vllm/v1/engine/core.py"]
    first = layer_of(("RuntimeError: NCCL error", "Failure: ray::x"), calls)
    then = layer_of(("RuntimeError: x", "Failure: ray::x"), calls)
    assert first is not None
    assert first.id == "ranks"
    assert then is not None
    assert then.id == "engine"


def test_what_nothing_tells_has_no_layer() -> None:
    assert layer_of(("LookupError: x",), ["/srv/app/main.py"]) is None


def test_an_answer_for_one_message_is_not_given_to_another() -> None:
    part = next(one for one in layers() if one.id == "structured-output")
    broken = "OSError: /root/.cache/torch_extensions/py310/xgrammar/xgrammar.so: cannot open shared object file"
    assert "torch-extensions-cache" in {o for a in part.answers if applies(a, broken) for o in a.options}
    assert "torch-extensions-cache" not in {o for a in part.answers if applies(a, "AssertionError") for o in a.options}
