"""A sentence of one part of the server, or of another program, is answered by that part."""

import pytest

from tests.rules.test_ends import diagnosed

SITE = "/opt/v/lib/python3.12/site-packages"
CALL = f"""Traceback (most recent call last):
  File "{SITE}/{{}}", line 71, in {{}}
    {{}}
"""
NATIVE = (
    "terminate called after throwing an instance of 'sycl::_V1::exception'\n"
    "  what():  Native API failed. Native API returns: -50 (PI_ERROR_INVALID_ARG_VALUE)"
)


def told(text: str) -> tuple[str, tuple[str, ...]]:
    one = diagnosed(text).findings[0]
    return one.title, tuple(change.name for change in one.changes)


@pytest.mark.parametrize(
    ("text", "title", "name"),
    [
        ("ValueError: vLLM does not yet support DoRA.", "The adapter is of a kind that this release", "adapter"),
        ("ValueError: vLLM only supports modules_to_save being None.", "The adapter changes layers", "adapter"),
        ("RuntimeError: CUDA Error: cudaErrorInvalidDeviceFunction", "The build has no code", "wheel"),
        (
            NATIVE,
            "The Intel GPU's driver refuses",
            "enforce-eager",
        ),
        (
            "litellm.NotFoundError: NotFoundError: OpenAIException - The model `room-8b` does not exist.",
            "The request names a model that the server does not serve",
            "served-model-name",
        ),
        (
            "litellm.Timeout: Timeout: OpenAIException - Request timed out.",
            "The client gave up waiting",
            "client-timeout",
        ),
        (
            "AssertionError: Failed to apply prompt replacement for mm_items['image'][0]",
            "The prompt has no placeholder",
            "chat-template",
        ),
    ],
)
def test_the_part_that_speaks_answers(text: str, title: str, name: str) -> None:
    lines = CALL.format("vllm/v1/engine/room.py", "enter", "raise open_door()")
    found, names = told(text if "instance" in text else lines + text)
    assert found.startswith(title)
    assert names[0] == name


@pytest.mark.parametrize(("python", "name"), [("python3.14", "python"), ("python3.11", "loop-of-thread")])
def test_the_paths_say_whether_python_itself_is_too_new(python: str, name: str) -> None:
    lines = CALL.format("vllm/v1/engine/async_llm.py", "__init__", "loop = asyncio.get_event_loop()")
    said = "RuntimeError: There is no current event loop in thread 'MainThread'."
    assert told(lines.replace("python3.12", python) + said)[1][0] == name


def test_a_card_that_a_library_of_kernels_does_not_list_is_told_by_its_sentence() -> None:
    call = CALL.format("rooms/chip.py", "get_card", 'raise RuntimeError(f"Get GPU arch failed {e}")')
    listed = "Unknown GPU architecture: gfx1200. Supported architectures: ['gfx90a', 'gfx942']"
    said = f'RuntimeError: Get GPU arch from rocminfo failed "{listed}"'
    found = diagnosed(f"INFO 03-14 09:11:58 [api_server.py:9] vLLM API server version 0.11.2\n{call}{said}").findings[0]
    assert (found.code, found.title) == ("VD526", "AITER does not know this card")


def test_cudas_refusal_outside_a_capture_blames_no_graph() -> None:
    call = CALL.format("vllm/model_executor/models/room.py", "forward", "x = x.unfold(0, 2, 2)")
    outside = diagnosed(f"{call}torch.AcceleratorError: CUDA error: operation not permitted")
    assert outside.findings[0].code != "VD520"
    call = CALL.format("vllm/v1/worker/gpu_model_runner.py", "capture_model", "self._capture_cudagraphs()")
    within = diagnosed(f"{call}torch.AcceleratorError: CUDA error: operation not permitted")
    assert within.findings[0].code == "VD520"
