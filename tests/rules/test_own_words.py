"""What Python or torch says by itself is the title of a failure for which nobody wrote a sentence.

A refusal's own words are, where no shape of a sentence is read. Composed of calls of 0.33.0, with figures of our own.
"""

import pytest

from tests.rules.test_libraries import LOADS, READS, RUNS, SITE, _finding
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

STEP = "vllm/v1/worker/gpu_model_runner.py"
DEAD = "Engine loop is not running. Inspect the stacktrace to find the original error"
MODEL = "vllm/model_executor/models/example.py"


@pytest.mark.parametrize(
    ("calls", "file", "code", "raised", "title"),
    [
        (RUNS, STEP, "n = self.rows.size", "AttributeError: 'NoneType' object has no attribute 'size'",
         "The worker gets None where it reads .size"),
        (RUNS, STEP, "n = a // b", "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'",
         "The worker gets None where it needs a value"),
        (RUNS, STEP, "row = self.rows[name]", "KeyError: 'layers.7'", "The worker finds no entry layers.7"),
        (RUNS, MODEL, "return self.inner(x, rows=x)",
         "TypeError: Inner.forward() got multiple values for argument 'rows'",
         "Inner.forward() gets its argument rows twice"),
        (LOADS, MODEL, "assert self.scale is not None", "AssertionError",
         "The model's code: the check `self.scale is not None` fails"),
        (RUNS, MODEL, "y = a @ b", "RuntimeError: expected scalar type Half but found BFloat16",
         "Tensors of Half and BFloat16 meet in one operation"),
        (RUNS, MODEL, "y = torch.cat([a, b])",
         "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
         "Tensors on cuda:0 and cpu meet in one operation"),
        (LOADS, "vllm/distributed/utils.py", "assert numerator % denominator == 0",
         "AssertionError: 12 is not divisible by 8", "12 of the model's parts cannot be split over 8 ranks"),
        (RUNS, "vllm/v1/engine/async_llm.py", "raise NotImplementedError", "NotImplementedError",
         "This release has no work() for this engine, model or device"),
        (READS, "vllm/config/model.py", 'assert "base" in scaling', "AssertionError",
         'The configuration: the check `"base" in scaling` fails'),
        (LOADS, MODEL, "y = a.event()",
         "torch.AcceleratorError: HIP error: operation not permitted on an event last recorded in a capturing stream",
         "The code does what a graph's capture does not allow"),
        (READS, "vllm/config/model.py", "return a // b", "ZeroDivisionError: integer division or modulo by zero",
         "The configuration divides by zero"),
        # nobody's shape of a refusal: how it begins
        (LOADS, "vllm/v1/worker/worker_base.py", "raise ValueError(", "ValueError: a second slot for rows is taken",
         "The worker: a second slot for rows is taken"),
    ],
)  # fmt: skip
def test_the_title_says_what_python_or_torch_says(
    calls: list[tuple[str, str]], file: str, code: str, raised: str, title: str
) -> None:
    found = _finding([*calls, (file, "work")], code, raised)
    assert found.title == title
    assert raised in found.evidence[0].excerpt


@pytest.mark.parametrize(
    ("line", "title", "change"),
    [
        # a last line alone, where its kind tells what cures it
        ("AssertionError: 2048 is not divisible by 3", "2048 of the model's parts cannot be split over 3 ranks",
         ("tensor-parallel-size", 2)),
        # V0's parent quotes the exception that ended its engine
        (f"MQEngineDeadError: {DEAD}: AssertionError('2048 is not divisible by 6').",
         "2048 of the model's parts cannot be split over 6 ranks", ("tensor-parallel-size", 4)),
        ("ValueError: When using LoRA, vocab size must be 32000 >= vocab_size <= 33024",
         "This release takes no adapter for a vocabulary of this size", ("vllm-version", None)),
        ("AttributeError: '_OpNamespace' '_moe_C' object has no attribute 'rows'",
         "vLLM's compiled operators were not loaded", ("python-env", None)),
        ("ERROR: No supported GPU(s) detected to run this container", "vLLM finds no usable GPU",
         ("container-gpus", None)),
    ],
)  # fmt: skip
def test_a_line_without_its_calls_is_answered_where_it_tells_enough(
    line: str, title: str, change: tuple[str, int | None]
) -> None:
    log = log_of_lines([line], "log")
    found = diagnose(Snapshot(taken_at="2026-01-01", log=Known(log, "log"))).findings[0]
    assert found.title == title
    first = found.changes[0]
    assert (first.name, first.after if change[1] is not None else None) == change


def test_an_error_that_was_sent_as_an_answer_is_no_value_of_the_launch() -> None:
    """The engine's death is the fault; what reads its message as an answer only follows."""
    said = [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ChatCompletionStreamResponse",
        "model",
        "  Field required [type=missing, input_value={'error': {'message': 'x'}}, input_type=dict]",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).",
    ]
    log = log_of_lines([f"(APIServer pid=1) ERROR 05-02 01:00:0{n} [serving.py:7] {t}" for n, t in enumerate(said)], "")
    found = diagnose(Snapshot(taken_at="2026-01-01", log=Known(log, "log")))
    assert [f.code for f in found.findings] not in (["VD503"], ["VD599"])


def test_a_split_that_does_not_divide_asks_for_one_that_does() -> None:
    calls = [*LOADS, ("vllm/distributed/utils.py", "divide")]
    found = _finding(calls, "assert numerator % denominator == 0", "AssertionError: 12 is not divisible by 8")
    assert next((c.name, c.after) for c in found.changes) == ("tensor-parallel-size", 4)


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("top_k must be 0 (disable) or at least 1, got secret", "A request is refused for its field top_k"),
        ("the letter of secret cannot be read", "A request is refused by vLLM's own check: verify"),
    ],
)
def test_a_request_that_is_refused_names_its_field_and_nothing_of_the_client(said: str, title: str) -> None:
    prefix = "(APIServer pid=640) "
    lines = [prefix + "INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version 0.33.0"]
    lines += [prefix + "INFO:     Application startup complete."]
    lines += [prefix + "ERROR 03-14 09:22:44 [serving.py:312] Traceback (most recent call last):"]
    for file, code in (
        ("vllm/entrypoints/openai/chat_completion/serving.py", "params.verify()"),
        ("vllm/sampling_params.py", "raise VLLMValidationError("),
    ):
        lines += [f'{prefix}ERROR 03-14 09:22:44 [serving.py:312]   File "{SITE}/{file}", line 71, in _verify']
        lines += [f"{prefix}ERROR 03-14 09:22:44 [serving.py:312]     {code}"]
    lines += [f"{prefix}ERROR 03-14 09:22:44 [serving.py:312] vllm.exceptions.VLLMValidationError: {said}"]
    found = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]
    assert found.title == title
    assert "secret" not in found.title + found.detail
