"""A person's own words tell that memory ran out, and in which step, where no program's line does."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_step import told_memory, told_step


@pytest.mark.parametrize(
    ("sentence", "step"),
    [
        ("it just dies while loading: {}", StartupPhase.WEIGHTS),
        ("der Server stirbt beim Laden mit {}", StartupPhase.WEIGHTS),
        ("加载模型时 {}", StartupPhase.WEIGHTS),
        ("the model loads fine, then graph capture gets to 60% and {}", StartupPhase.GRAPHS),
        ("{} in the memory profiling run", StartupPhase.PROFILE),
        ("{} while allocating the KV cache", StartupPhase.KV),
        ("{} during warm-up", StartupPhase.WARMUP),
        ("after 6 hours under load: {}", StartupPhase.SERVING),
        ("nach ein paar Anfragen {}", StartupPhase.SERVING),
        ("{} as soon as a client sends prompt_logprobs", StartupPhase.SERVING),
    ],
)
def test_a_step_is_named_in_a_sentence(sentence: str, step: StartupPhase) -> None:
    assert told_step([sentence.format("CUDA out of memory")], 0) is step


def test_of_two_steps_the_nearer_one_counts() -> None:
    lines = ["it had served for an hour under load.", "Now it dies while loading:", "CUDA out of memory"]
    assert told_step(lines, 2) is StartupPhase.WEIGHTS


def test_torchs_own_words_name_no_step() -> None:
    assert told_step(["128.00 MiB allocated in private pools (e.g., CUDA Graphs)"], 0) is None


@pytest.mark.parametrize(
    "text",
    ["it goes out of memory", "OOM at start", "der GPU-Speicher ist voll", "启动就爆显存", "не хватает видеопамяти"],
)
def test_memory_that_ran_out_is_told_in_many_languages(text: str) -> None:
    assert told_memory(text)


@pytest.mark.parametrize(
    "text",
    [
        "if you run out of memory, lower gpu_memory_utilization",
        "How much memory do I need to avoid OOM?",
        "the host ran out of memory and swap is full",
        "JavaScript heap out of memory",
        "it is no longer out of memory, now it answers 404",
        "ERROR: out of shared memory",
    ],
)
def test_advice_questions_and_other_memory_are_no_account_of_it(text: str) -> None:
    assert not told_memory(text)


def test_words_count_only_where_no_program_wrote() -> None:
    told = "graph capture gets to 60% and it goes out of memory"
    assert [finding.code for finding in judged_text(told).findings] == ["VD130"]
    assert not judged_text(f"INFO 01-01 00:00:00 [api_server.py:1] up\n{told}").findings


def test_a_step_that_words_alone_name_is_never_certain() -> None:
    torch = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.52 "
        "GiB of which 60.88 MiB is free. Including non-PyTorch memory, this process has 23.45 GiB memory in use. Of "
        "the allocated memory 22.98 GiB is allocated by PyTorch, and 61.20 MiB is reserved by PyTorch but unallocated."
    )
    (told,) = judged_text(f"it dies while loading the model\n{torch}").findings
    assert (told.code, told.confidence.value) == ("VD110", "likely")
    call = '  File "/opt/vllm/v1/worker/gpu_worker.py", line 213, in load_model\n    self.model_runner.load_model()\n'
    (shown,) = judged_text(f"Traceback (most recent call last):\n{call}{torch}").findings
    assert (shown.code, shown.confidence.value) == ("VD110", "confirmed")
