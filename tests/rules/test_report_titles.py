"""What the title of a report tells where the log below it says nothing, and what its writers say that helps."""

import pytest

from tests.log.judging import judged_text

CUT = """\
# [Bug]: {title}

(EngineCore pid=101) ERROR 06-03 03:39:03 [core.py:1167]   File "/opt/v/lib/python3.12/site-packages/vllm/v1/engine/\
core.py", line 499, in step_with_batch_queue
(EngineCore pid=101) ERROR 06-03 03:39:03 [core.py:1167]     exec_future = self.model_executor.execute_model(
"""
START = """\
(APIServer pid=6)   File "/opt/v/lib/python3.12/site-packages/vllm/entrypoints/cli/main.py", line 73, in main
(APIServer pid=6)     args.dispatch_function(args)
(APIServer pid=6)   File "/opt/v/lib/python3.12/site-packages/vllm/entrypoints/cli/serve.py", line 60, in cmd
(APIServer pid=6)     uvloop.run(run_server(args))
"""
WAITS = """\
  File "/opt/v/lib/python3.9/site-packages/vllm/engine/llm_engine.py", line 179, in _init_workers_ray
    self._run_workers(
  File "/opt/v/lib/python3.9/site-packages/vllm/engine/llm_engine.py", line 696, in _run_workers
    all_outputs = ray.get(all_outputs)
  File "/opt/v/lib/python3.9/site-packages/ray/_private/worker.py", line 2524
"""
WORKER = """\
(VllmWorker TP0 pid=326) ERROR 08-25 13:48:26 [multiproc_executor.py:559] WorkerProc failed to start.
(VllmWorker TP0 pid=326) ERROR 08-25 13:48:26 [multiproc_executor.py:559] Traceback (most recent call last):
"""


def _first(text: str) -> tuple[str, str, str]:
    found = judged_text(text).findings[0]
    return found.code, found.confidence.value, found.title


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("EAGLE3 not working with two cards", "Speculative decoding failed, as the title of this report says"),
        ("开mtp启动失败", "Speculative decoding failed, as the title of this report says"),
        ("the DeepGEMM kernel crashes", "A kernel of DeepGEMM failed, as the title of this report says"),
        ("GPU Placement Group Creation Error", "Ray failed, as the title of this report says"),
    ],
)
def test_a_title_names_the_part_that_no_line_names(title: str, told: str) -> None:
    assert _first(CUT.format(title=title))[::2] == ("VD528", told)


def test_a_title_that_asks_a_question_names_nothing() -> None:
    assert _first(CUT.format(title="what does EAGLE3 do?")) == (
        "VD599",
        "possible",
        "A step of the engine failed, and the exception is cut off",
    )


def test_a_title_names_the_setting_with_which_it_fails() -> None:
    found = judged_text("# [Bug]: server crashes when num-scheduler-steps > 1\n\nvllm 0.6.4\n").findings[0]
    assert found.title == "The server fails with num-scheduler-steps"
    assert [(one.name, one.direction.value) for one in found.changes] == [("num-scheduler-steps", "remove")]


def test_a_title_in_words_names_the_switch_of_a_feature() -> None:
    found = judged_text("# [Bug]: VLLM crashes when prefix caching is enabled\n\nvllm 0.6.4\n").findings[0]
    assert [(one.name, one.after) for one in found.changes] == [("enable-prefix-caching", None)]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (START, "The start failed, and the exception is cut off"),
        (WAITS, "Another process failed, and its error is not in this log"),
    ],
)
def test_calls_that_every_failure_comes_through_name_the_step_alone(text: str, title: str) -> None:
    assert _first(text) == ("VD599", "possible", title)


def test_a_worker_whose_error_was_cut_off_is_told() -> None:
    assert _first(WORKER) == ("VD601", "likely", "A worker failed with an error that is not in this log")


@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        ("The same cards run it fine on vLLM **v0.20.1** (which does not use it).", ("vllm-version", "0.20.1")),
        ("It works again with `--enforce-eager`.", ("enforce-eager", True)),
        ("With two cards it is good when I set max_num_seqs as 8.", ("max-num-seqs", 8)),
        ("There is a work-around:\nexport VLLM_MOE_USE_DEEP_GEMM=0", ("VLLM_MOE_USE_DEEP_GEMM", "0")),
    ],
)
def test_what_the_text_says_that_it_helps_comes_first(sentence: str, change: tuple[str, str | bool | int]) -> None:
    text = f"# [Bug]: the DeepGEMM kernel crashes\n\nvLLM 0.23.0\n\n{sentence}\n"
    first = judged_text(text).findings[0].changes[0]
    assert (first.name, first.after) == change


@pytest.mark.parametrize(
    "sentence",
    [
        "It does not work on vLLM v0.20.1 either.",
        "Does it work on vLLM v0.20.1?",
        "It works with flashinfer 0.2.5.",
        "It works with --trust-remote-code.",
    ],
)
def test_what_did_not_help_or_is_asked_is_no_change(sentence: str) -> None:
    text = f"# [Bug]: the LMCache connector crashes\n\nvLLM 0.23.0\n\n{sentence}\n"
    names = [change.name for change in judged_text(text).findings[0].changes]
    assert "vllm-version" not in names
    assert "trust-remote-code" not in names


def test_a_warning_about_a_part_that_another_platform_lacks_is_no_missing_module() -> None:
    warned = "Failed to import from vllm._C with ModuleNotFoundError(\"No module named 'vllm._C'\")"
    assert _first(f"# [Bug]: NPU: {warned}\n\n{WORKER}")[0] == "VD601"


def test_a_quoted_key_of_a_layer_finds_the_issue_by_its_words() -> None:
    found = judged_text("# [Bug]: PP=4 fails, KeyError: 'model.layers.0.self_attn.attn'\n").findings[0]
    assert found.code == "VD526"
    assert found.changes[-1].name == "pipeline-parallel-size"


def test_what_python_says_of_any_value_finds_no_issue_by_its_words() -> None:
    codes = [one.code for one in judged_text("# [Bug]: TypeError: 'NoneType' object is not iterable\n").findings]
    assert "VD526" not in codes


def test_of_a_sentence_only_the_clause_that_tells_of_help_is_no_part_of_the_launch() -> None:
    told = "torch.OutOfMemoryError in the first request, startup is fine. vllm serve m --gpu-memory-utilization 0.98"
    change = judged_text(told).findings[0].changes[0]
    assert (change.name, change.before, change.after) == ("gpu-memory-utilization", 0.98, 0.93)
