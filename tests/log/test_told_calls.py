"""A sentence that names a call is as good as its frame; other words are no calls."""

import pytest

from vllm_doctor.log.told_calls import told_calls
from vllm_doctor.records.log import LogLine


def told(*lines: str) -> list[tuple[str, int, str]]:
    found = told_calls(LogLine(number, text) for number, text in enumerate(lines, 1))
    return [(frame.file, frame.line, frame.function) for frame in found]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("it dies in profile_run -> embed_multimodal", [("", 1, "profile_run"), ("", 1, "embed_multimodal")]),
        ("torch.OutOfMemoryError: ... (create_lora_weights)", [("", 1, "create_lora_weights")]),
        (
            'x File "vllm/lora/layers.py", line 240, in create_lora_weights torch.cuda.OutOfMemoryError',
            [("/vllm/lora/layers.py", 240, "create_lora_weights"), ("/vllm/lora/layers.py", 1, "create_lora_weights")][
                :1
            ],
        ),
        ('File "D:\\v\\gpu_worker.py", line 276, in load_model | x', [("D:/v/gpu_worker.py", 276, "load_model")]),
        (
            '文件 "/v/gpu_model_runner.py"\uff0c第 4310 行\uff0c在 load_model',
            [("/v/gpu_model_runner.py", 4310, "load_model")],
        ),
        (
            "the stack ends in vllm/model_executor/models/internvl.py",
            [("/vllm/model_executor/models/internvl.py", 1, "")],
        ),
    ],
)
def test_calls_of_a_sentence(text: str, calls: list[tuple[str, int, str]]) -> None:
    assert told(text) == calls


@pytest.mark.parametrize(
    "text",
    ["gpu_memory_utilization=0.9 and max_model_len", "it steps and loads the model", "--max-lora-rank 64", "my_step()"],
)
def test_other_words_are_no_calls(text: str) -> None:
    assert told(text) == []


def test_an_inset_line_is_the_code_of_the_call_before() -> None:
    lines = ("in _get_prompt_logprobs_dict", "    logprobs = self.sampler.compute_logprobs(logits)")
    (frame,) = told_calls(LogLine(number, text) for number, text in enumerate(lines, 1))
    assert frame.code == "logprobs = self.sampler.compute_logprobs(logits)"
