"""A start that says nothing more: how long, and where to look; a file knows of no clock, and says so."""

import msgspec
import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Gpu, Probe, Unit
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Confidence, Verdict
from vllm_doctor.rules.engine import diagnose

STARTED = (
    "vLLM API server version 0.19.1",
    "Initializing a V1 LLM engine (v0.19.1) with config: model='example/model-8b'",
    "Starting to load model example/model-8b...",
    "Model loading took 14.99 GiB memory and 4.2 seconds",
    "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items",
)


def snapshot(last: str | None, *, live: bool = True) -> Snapshot:
    lines = tuple(
        LogLine(n, text, at="2026-03-14T09:00:00+00:00" if last else None) for n, text in enumerate(STARTED, 1)
    )
    if last:
        lines = (*lines[:-1], msgspec.structs.replace(lines[-1], at=last))
    unit = Unit(
        name="vllm.service",
        load_state="loaded",
        active_state="activating",
        sub_state="start",
        result="success",
        main_pid=4100,
    )
    return Snapshot(
        taken_at="2026-03-14T09:30:00+00:00",
        log=Known(Log("journal", RunLines(lines)), "journalctl"),
        unit=Known(unit, "systemctl show") if live else Unknown("not given", ""),
        probe=Known(Probe(health_error="connection refused"), "http://127.0.0.1:8000") if live else Unknown("x", ""),
        gpus=Known((Gpu(0, "NVIDIA H100"),), "nvidia-smi"),
        live=live,
    )


def said(shot: Snapshot) -> str:
    verdict = diagnose(shot)
    assert verdict.verdict is Verdict.UNKNOWN
    return verdict.path[-1].because


def test_a_long_silence_is_told_with_its_length_its_step_and_where_to_look() -> None:
    text = said(snapshot("2026-03-14T09:18:00+00:00"))
    assert "12 minutes old" in text
    assert "py-spy dump" in text
    assert "limit-mm-per-prompt" in text


@pytest.mark.parametrize("last", ["2026-03-14T09:27:00+00:00", "2026-03-14T09:08:00", None])
def test_a_short_silence_or_an_unknown_time_is_only_a_start_that_goes_on(last: str | None) -> None:
    assert "run diagnose again when it has started" in said(snapshot(last))


def test_a_server_that_was_ready_and_answers_late_is_not_said_to_start() -> None:
    shot = snapshot("2026-03-14T09:27:00+00:00")
    assert isinstance(shot.log, Known)
    lines = (*shot.log.value.last.lines, LogLine(6, "Application startup complete."))
    text = said(
        msgspec.structs.replace(
            shot,
            log=Known(Log("journal", RunLines(lines)), "journalctl"),
            probe=Known(Probe(health_error="no answer in time"), "http://127.0.0.1:8000"),
        )
    )
    assert text.startswith("the server had become ready, and /health did not answer this time (no answer in time)")


def test_a_file_says_where_to_look_if_minutes_pass() -> None:
    text = said(snapshot("2026-03-14T09:08:00+00:00", live=False))
    assert "if the log stays silent for minutes" in text
    assert "py-spy dump" in text


# After these the next line of a start comes within seconds: a file that ends with one stands still there.
STANDS = (
    ("INFO 03-14 09:11:00 [pynccl.py:70] vLLM is using nccl==2.27.5", "NCCL_P2P_DISABLE=1"),
    (
        "INFO 03-14 09:11:00 [custom_all_reduce_utils.py:208] generating GPU P2P access cache in /c/gpu_p2p_0,1.json",
        "--disable-custom-all-reduce skips the test",
    ),
    ("INFO 03-14 09:11:00 [custom_all_reduce.py:216] Registering 5635 cuda graph addresses", "own all-reduce"),
)
HANGS = (
    ("Loading safetensors checkpoint shards:  50% Completed | 2/4 [09:01<09:01, 270s/it]", "load-strategy prefetch"),
    (
        "Capturing CUDA graphs (decode, FULL):   0%|          | 0/35 [00:00<?, ?it/s]",
        "--enforce-eager captures no graph",
    ),
)


@pytest.mark.parametrize(("last", "told"), HANGS)
def test_a_log_that_ends_where_starts_are_known_to_hang_says_what_ends_it(last: str, told: str) -> None:
    head = "INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version 0.19.1"
    assert told in said_of(head, last)
    assert told not in said_of(head, last, "INFO 03-14 09:12:00 [gpu_model_runner.py:2602] Starting to load model m...")


@pytest.mark.parametrize(("last", "told"), STANDS)
def test_a_file_that_ends_where_the_next_line_comes_in_seconds_is_a_start_that_stands_still(
    last: str, told: str
) -> None:
    head = "INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version 0.19.1"
    found = diagnosed(head, last).findings[0]
    assert (found.code, found.confidence) == ("VD804", Confidence.LIKELY)
    assert found.title.startswith("The start stands still where")
    assert told in found.next
    # the engine says each minute that it waits: no step of the start
    waits = (
        "(EngineCore_DP0 pid=7) INFO 03-14 09:2{}:00 [shm_broadcast.py:466] No available shared memory broadcast block "
    )
    waits += "found in 60 seconds. This typically happens when some processes are hanging."
    assert diagnosed(head, last, waits.format(1), waits.format(2)).findings[0].code == "VD804"
    assert told not in said_of(head, last, "INFO 03-14 09:12:00 [gpu_model_runner.py:2602] Starting to load model m...")


def test_a_file_whose_last_line_is_seconds_old_is_a_start_that_goes_on() -> None:
    log = log_of_lines(("2026-03-14T09:29:30+00:00 vLLM is using nccl==2.27.5",), "t")
    shot = Snapshot(taken_at="2026-03-14T09:30:00+00:00", log=Known(log, "t"))
    assert not diagnose(shot).findings


def test_the_rank_that_stays_behind_is_named_among_three() -> None:
    lines = [
        f"(Worker_TP{rank} pid=41{rank}) INFO 03-14 09:05:00 [gpu_model_runner.py:2602] Starting to load model m..."
        for rank in range(3)
    ]
    done = [
        f"(Worker_TP{rank} pid=41{rank}) INFO 03-14 09:06:00 [gpu_worker.py:300] Available KV cache memory: 20.1 GiB"
        for rank in (0, 2)
    ]
    assert "Worker_TP1 is behind" in said_of(*lines, *done)
    assert "behind" not in said_of(*lines)
    assert "behind" not in said_of(*lines, done[0])


def diagnosed(*texts: str) -> Diagnosis:
    log = log_of_lines(texts, "t")
    return diagnose(Snapshot(taken_at="2026-03-14T09:30:00+00:00", log=Known(log, "t")))


def said_of(*texts: str) -> str:
    verdict = diagnosed(*texts)
    assert verdict.verdict is Verdict.UNKNOWN
    return verdict.path[-1].because


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("Dynamo bytecode transform time: 9.51 s", "TORCHINDUCTOR_CACHE_DIR"),
        ("Using cache directory: /r/torch_compile_cache/1a/rank_0_0/backbone for vLLM's torch.compile", "Inductor"),
        ("DeepGEMM warmup:   3%|▎         | 41/1503 [00:40<24:01,  1.01it/s]", "VLLM_DEEP_GEMM_WARMUP=skip"),
        ("Warming up FlashInfer attention.", "find ~/.cache/flashinfer"),
        ("2026-03-14 09:27:20,110 - autotuner.py:256 - [Autotuner]: Autotuning process starts ...", "flashinfer"),
        (
            "2026-03-14 09:27:21,002\tINFO worker.py:1942 -- Connecting to existing Ray cluster at address: h:1",
            "ray status",
        ),
    ],
)
def test_a_file_that_ends_at_a_long_step_is_told_what_comes_next_and_is_no_fault(last: str, words: str) -> None:
    log = log_of_lines([*STARTED, last], "log")
    verdict = diagnose(Snapshot(taken_at="", log=Known(log, "log")))
    assert (verdict.verdict, verdict.findings) == (Verdict.UNKNOWN, ())
    assert words in verdict.path[-1].because


@pytest.mark.parametrize(("done", "told"), [(0, True), (3, False)])
def test_only_a_batch_of_which_nothing_is_done_has_not_taken_its_first_step(done: int, told: bool) -> None:
    bar = f"Processed prompts: {done:>3}%|          | {done}/16 [00:00<?, ?it/s, est. speed input: 0.00 toks/s]"
    text = diagnose(Snapshot(taken_at="", log=Known(log_of_lines([*STARTED, bar], "log"), "log"))).path[-1].because
    assert ("before the first answer of a batch" in text) is told
