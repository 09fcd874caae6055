"""What a message asks for in words is offered: a field of a request, a library's variable, an option."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.finding import Change, Diagnosis

VERSION = "INFO 01-01 10:00:00 [api_server.py:100] vLLM API server version {}\n"
ASKED = "DeepSeek V4 MegaMoE currently requires expert parallel. Please enable it with --enable-expert-parallel."
CALLS = """(Worker_TP1 pid=7) ERROR 01-01 10:00:00 [multiproc_executor.py:9] Traceback (most recent call last):
(Worker_TP1 pid=7) ERROR 01-01 10:00:00 [multiproc_executor.py:9]   File "/x/vllm/model_executor/a.py", line 5, in make
(Worker_TP1 pid=7) ERROR 01-01 10:00:00 [multiproc_executor.py:9]     model = initialize_model(
(Worker_TP1 pid=7) ERROR 01-01 10:00:00 [multiproc_executor.py:9] NotImplementedError: """


def first(text: str) -> Change:
    return diagnosed(text).findings[0].changes[0]


def changes(told: Diagnosis) -> list[tuple[str, object]]:
    return [(one.name, one.after) for one in told.findings[0].changes]


def refused(sentence: str) -> str:
    return f"openai.BadRequestError: Error code: 400 - {{'object': 'error', 'message': '{sentence}', 'type': 'x'}}"


def test_a_refused_field_is_named_with_vllms_own_sentence_and_a_release_that_no_longer_says_it() -> None:
    told = diagnosed(refused('`tool_choice` must either be a named tool, "auto", or "none".'))
    asked, newer = told.findings[0].changes[:2]
    assert asked.name == "client-input"
    assert (
        asked.why
        == 'set `tool_choice` as the server takes it: `tool_choice` must either be a named tool, "auto", or "none".'
    )
    assert (newer.name, newer.why) == (
        "vllm-version",
        "0.8.2 is the last of the releases read that refuses it in these words",
    )


def test_a_sentence_that_the_newest_release_still_says_asks_for_no_newer_one() -> None:
    assert changes(diagnosed(refused("temperature must be non-negative, got -7.5.")))[0][0] == "client-input"
    assert "vllm-version" not in dict(changes(diagnosed(refused("temperature must be non-negative, got -7.5."))))


def test_a_sentence_of_nobody_keeps_the_general_answer() -> None:
    assert first(refused("the rooms of this house are seven")).why.startswith("the server works")


def test_what_the_launch_has_already_is_not_asked_for_again_but_the_value_that_asks_goes() -> None:
    launch = "vllm serve m --enable-expert-parallel --moe-backend deep_gemm_mega_moe\n"
    assert changes(diagnosed(launch + VERSION.format("0.31.0") + CALLS + ASKED))[:2] == [
        ("moe-backend", None),
        ("vllm-version", "0.33.0"),
    ]


def test_without_it_in_the_launch_the_option_itself_is_the_change() -> None:
    told = changes(
        diagnosed("vllm serve m --moe-backend deep_gemm_mega_moe\n" + VERSION.format("0.31.0") + CALLS + ASKED)
    )
    assert ("enable-expert-parallel", True) in told
    assert ("moe-backend", None) not in told


@pytest.mark.parametrize(
    ("sentence", "name", "value"),
    [
        ("RuntimeError: please turn it off using `TORCHINDUCTOR_ROOMS_CACHE=0`.", "TORCHINDUCTOR_ROOMS_CACHE", "0"),
        ("RuntimeError: export NCCL_ROOMS=1 before the start", "NCCL_ROOMS", "1"),
    ],
)
def test_a_variable_that_an_unknown_failure_names_with_its_value_is_set(sentence: str, name: str, value: str) -> None:
    assert (name, value) in changes(diagnosed(VERSION.format("0.32.0") + sentence))


def test_a_state_that_names_a_variable_is_no_wish() -> None:
    told = diagnosed(VERSION.format("0.32.0") + "RuntimeError: seven failed with NCCL_ROOMS=1 there")
    assert ("NCCL_ROOMS", "1") not in changes(told)


def test_torch_compiles_small_functions_in_eager_mode_too() -> None:
    told = diagnosed("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nTypeError: seven")
    assert changes(told)[:2] == [("enforce-eager", True), ("TORCHDYNAMO_SUPPRESS_ERRORS", "1")]
