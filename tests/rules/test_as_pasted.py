"""What stands in a text that people paste is read, never asked for again, and what was cut off it is not assumed."""

import json

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.read.unwrap import untypeset
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction

TOO_LONG = (
    "ValueError: To serve at least one request with the model's max seq len (65536), 8.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (7.5 GiB). Based on the available memory, the estimated "
    "maximum model length is 61440. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
    "initializing the engine."
)
# The layout of vllm/collect_env.py, 0.9.1 to 0.33.0.
ENVIRONMENT = """==============================
       CUDA / GPU Info
==============================
GPU models and configuration : GPU 0: NVIDIA GeForce RTX 4090
==============================
         vLLM Info
==============================
vLLM Version                 : 0.29.0
"""
LOADS = """(EngineCore pid=7) INFO 03-14 09:04:00 [gpu_model_runner.py:47] Starting to load model example/model-8b...
(EngineCore pid=7) Traceback (most recent call last):
(EngineCore pid=7)   File "/opt/v/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 411, in load_model
(EngineCore pid=7)     self.model_runner.load_model()
"""
OOM = "(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB."
CARD = f"{OOM} GPU 0 has a total capacity of 44.55 GiB of which 80.00 MiB is free."
OWN = f"{CARD} Including non-PyTorch memory, this process has 44.40 GiB memory in use."


def missing(diagnosis: Diagnosis) -> set[str]:
    return {one.signal for one in diagnosis.unknown}


def test_a_report_of_the_environment_and_a_command_in_a_sentence_are_read() -> None:
    command = "`vllm serve example/model-8b -tp 2 --max-model-len 65536` fails:"
    told = judged_text(f"{ENVIRONMENT}\n{command}\n\n{TOO_LONG}\n")
    assert told.findings[0].code == "VD121"
    assert told.facts["vllm_version"] == "0.29.0"
    assert told.facts["card"] == "NVIDIA GeForce RTX 4090"
    assert told.findings[0].changes[0].before == 65536
    assert not missing(told) & {"version", "launch", "gpus"}
    assert {"version", "launch", "gpus"} <= missing(judged_text(f"{TOO_LONG}\n"))


@pytest.mark.parametrize(
    ("message", "sure"), [(OOM, Confidence.LIKELY), (CARD, Confidence.LIKELY), (OWN, Confidence.CONFIRMED)]
)
def test_a_message_that_was_cut_before_it_says_who_holds_the_card_confirms_nothing(
    message: str, sure: Confidence
) -> None:
    found = judged_text(LOADS + message + "\n").findings[0]
    assert (found.code, found.confidence) == ("VD110", sure)


@pytest.mark.parametrize(
    ("card", "title"),
    [
        ("", "The sampler's dummy batch does not fit"),
        ("GPU 0: NVIDIA GeForce RTX 4090\n", "The sampler's dummy batch of 256 sequences does not fit"),
    ],
)
def test_a_default_that_goes_by_the_card_is_no_figure_of_a_log_without_one(card: str, title: str) -> None:
    api = "(APIServer pid=1) INFO 03-14 09:01:00 [api_server.py:18] vLLM API server version 0.19.0\n"
    calls = LOADS.replace("load_model", "compile_or_warm_up_model").replace("gpu_worker", "gpu_model_runner")
    calls = calls.replace("compile_or_warm_up_model", "_dummy_sampler_run")
    assert judged_text(card + api + calls + OOM + "\n").findings[0].title == title


def test_a_mistyped_option_is_given_under_its_name_with_the_value_of_the_message() -> None:
    told = judged_text("vllm: error: unrecognized arguments: --max-modl-len 8192 --enfore-eager\n")
    changes = [(c.name, c.after) for c in told.findings[0].changes if c.direction is Direction.SET]
    assert changes == [("max-model-len", 8192)]
    told = judged_text("vllm: error: unrecognized arguments: --max-modl-len=8192\n")
    assert ("max-model-len", 8192) in [(c.name, c.after) for c in told.findings[0].changes if c.kind is ChangeKind.FLAG]


def test_the_lines_inside_a_document_and_behind_written_line_ends_are_read() -> None:
    calls = 'Traceback (most recent call last):\n  File "/v/vllm/a.py", line 8, in f\n    g()\n'
    calls += '  File "/v/vllm/b.py", line 9, in g\n    h()\n'
    text = f"INFO 10-07 16:33:59 [__init__.py:216] Automatically detected platform cuda.\n{calls}{TOO_LONG}\n"
    for carried in (json.dumps({"output": {"whole": text}}), text.replace("\n", "\\n"), json.dumps([text])):
        assert judged_text(carried).findings[0].code == "VD121"


def test_signs_of_a_page_are_those_of_the_program() -> None:
    assert untypeset("the model&#x27;s &quot;x&quot; &lt;b&gt; &amp;lt;") == 'the model\'s "x" <b> &lt;'
    assert untypeset("a &lt; b") == "a &lt; b"  # no quotation mark of a page: it may be the program's own


@pytest.mark.parametrize(
    "text",
    [
        "[12.5] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
        (
            "[rank3]:[E1128 03:00:00.1 ProcessGroupNCCL.cpp:683] [Rank 3] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600011 "
            "milliseconds before timing out.\n"
        ),
    ],
)
def test_what_ends_a_server_at_any_hour_is_not_called_a_start_without_a_line_of_one(text: str) -> None:
    assert judged_text(text).facts.get("time_of_failure_unseen") is True
    begun = "(APIServer pid=1) INFO 03-14 09:01:00 [api_server.py:18] vLLM API server version 0.19.0\n"
    loading = "(Worker pid=2) INFO 03-14 09:02:00 [gpu_model_runner.py:47] Starting to load model example/model-8b...\n"
    assert judged_text(begun + loading + text).facts.get("time_of_failure_unseen") is None


@pytest.mark.parametrize("marks", ['""', "\u201c\u201d", "\u00ab\u00bb", ("", " when I ask")])
def test_an_exception_of_a_package_that_a_sentence_names_is_read(marks: str) -> None:
    before, after = marks
    raised = "outlines_core.errors.UnsupportedRoom: no room is supported"
    (found,) = judged_text(f"our vllm serve answers {before}{raised}{after}, since noon").findings
    assert found.title == "The structured output backend failed on a grammar"


def test_an_exception_of_a_program_that_is_none_beside_vllm_is_left_in_its_sentence() -> None:
    said = "our vllm serve is up; the client has com.acme.rooms.RoomException: the door is shut"
    assert judged_text(said).findings == ()
