"""Each fault in each wording, behind each prefix: the same rule answers, and never is it ok.

The wordings are the samples of the messages, which say the versions that write them.
"""

import re
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.scenarios.loading import log_text, with_a_log
from vllm_doctor.log.match import Message, WordingSample, messages
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules import engine
from vllm_doctor.rules.order import INTERNAL, by_code

ENOUGH = sys.int_info.str_digits_check_threshold  # the lowest limit that Python takes for what int() reads
FALLBACKS = {code for code, rule in by_code().items() if rule.fallback}
# Said of the host or the launch before vLLM says anything: these stand without a start around them.
START = [
    "vLLM API server version 0.11.0",
    "non-default args: {'model': 'example/model', 'max_model_len': 131072, 'gpu_memory_utilization': 0.9}",
    "Initializing a V1 LLM engine (v0.11.0) with config: model='example/model', max_seq_len=131072",
    "Starting to load model example/model...",
]
PREFIXES: dict[str, Callable[[str], str]] = {
    "bare": lambda text: text,
    "v0": lambda text: f"ERROR 05-21 10:11:12 worker.py:241] {text}",
    "bracketed": lambda text: f"ERROR 05-21 10:11:12 [worker.py:241] {text}",
    "engine-core": lambda text: f"(EngineCore_DP0 pid=4242) ERROR 05-21 10:11:12 [core.py:708] {text}",
    "worker": lambda text: f"(Worker_TP1 pid=4243) ERROR 05-21 10:11:12 [multiproc_executor.py:597] {text}",
    "v0-worker": lambda text: f"(VllmWorkerProcess pid=4244) ERROR 05-21 10:11:12 multiproc_worker_utils.py:1] {text}",
    "ray": lambda text: f"(RayWorkerWrapper pid=4245, ip=10.0.0.7) ERROR 05-21 10:11:12 [worker_base.py:1] {text}",
    "rank": lambda text: f"[rank0]: {text}",
    "journald": lambda text: f"May 21 10:11:12 gpu01 vllm[4242]: ERROR 05-21 10:11:12 [core.py:708] {text}",
    "compose": lambda text: f"vllm-1  | ERROR 05-21 10:11:12 [core.py:708] {text}",
    "kubectl": lambda text: f"[pod/chat-0/vllm] ERROR 05-21 10:11:12 [core.py:708] {text}",
    "cri": lambda text: f"2026-05-21T10:11:12.123456789Z stderr F ERROR 05-21 10:11:12 [core.py:708] {text}",
    "coloured": lambda text: f"\x1b[1;36m(EngineCore pid=4242)\x1b[0;0m ERROR 05-21 10:11:12 [core.py:708] {text}",
    "pasted": lambda text: f"[0;36m(EngineCore pid=4242)[0;0m ERROR 05-21 10:11:12 [core.py:708] {text}",
}
# The scenarios whose rules compute with what the log prints.
SUMS = [name for name in with_a_log() if re.match(r"vd[123]\d\d-.*fires$", name)]
OF_MEMORY = frozenset(
    {
        "pod-state",
        "shell-killed",
        "child-killed",
        "exit-minus-nine",
        "killed-suspects-memory",
        "engine-process-died",
        "engine-init-failed",
        "process-died",
        "container-exited",
    }
)
SAMPLES = [(m, s) for m in messages() if m.kind == "cause" and m.scope == "log" for s in m.samples]


def judged(lines: list[str]) -> Diagnosis:
    """What the rules say; what hides secrets in an answer takes a third more, and is tested for itself."""
    return engine.judged(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")), preview=True)


def code(message: Message, sample: WordingSample, prefix: Callable[[str], str]) -> str:
    verdict = judged(
        [*START, prefix(sample.line), "RuntimeError: Engine core initialization failed. See root cause above."]
    )
    assert verdict.verdict is Verdict.FINDING, message.id
    return verdict.findings[0].code


@pytest.mark.parametrize(("message", "sample"), SAMPLES, ids=lambda v: getattr(v, "id", getattr(v, "versions", "")))
def test_every_wording_behind_every_prefix_is_the_same_fault(message: Message, sample: WordingSample) -> None:
    codes = {name: code(message, sample, prefix) for name, prefix in PREFIXES.items()}
    assert len(set(codes.values())) == 1, codes
    assert set(codes.values()).isdisjoint(FALLBACKS), f"{message.id} is not recognised"


@pytest.mark.parametrize(
    "message", [m for m in messages() if m.kind == "consequence" and m.scope == "log"], ids=lambda m: m.id
)
def test_a_notice_of_death_is_never_ok_and_never_the_cause(message: Message) -> None:
    for sample in message.samples:
        verdict = judged([*START, sample.line])
        assert verdict.verdict is not Verdict.OK, sample.line
        # The kernel's line of a crash names the library that crashed, which is a part (VD606).
        # A row of pods says itself that memory was the reason.
        # A start that is killed while it loads weights is short of the host's memory, most likely.
        # The kubelet's sentence is an eviction's own.
        # What systemd could not set up never ran vLLM.
        own = {
            "kernel-segfault": {"VD606"},
            "pod-low-on-resource": {"VD004"},
            "pod-volume-outgrown": {"VD004"},
            "pod-storage-outgrown": {"VD004"},
            "ray-actor-gone": {"VD603"},
            "unit-step-failed": {"VD532"},
        }
        named = own.get(message.id, {"VD603"} if message.id in OF_MEMORY else set())
        assert {f.code for f in verdict.findings} <= FALLBACKS | named, sample.line


@pytest.mark.parametrize(
    "message",
    [m for m in messages() if m.kind in {"benign", "symptom"} and not m.stops and m.scope == "log"],
    ids=lambda m: m.id,
)
def test_what_a_healthy_server_says_is_no_finding(message: Message) -> None:
    if message.id in {
        "preempted",
        "prompt-above-pool",
        "encoder-cache-exceeded",
        "decode-pool-exceeded",
        "xid",
        "api-mismatch",
        "gpu-off-bus",
        "prompt-over-limit",
        "adapter-path-missing",
    }:
        pytest.skip("these say that requests or the driver suffer, and have rules of their own")
    if message.id in {"app-stopped", "uvicorn-finished"}:
        pytest.skip("these say that a server has ended: what follows is another run")
    for sample in message.samples:
        said = [f"INFO 05-21 10:11:12 [x.py:1] {sample.line}", "Application startup complete."]
        # Answers and counts come when the start is complete; before that they are another server's.
        verdict = judged([*START, *(said if message.id not in {"stats", "request-ok"} else reversed(said))])
        assert verdict.verdict is Verdict.OK, (sample.line, [f.title for f in verdict.findings])


def test_the_first_of_several_ranks_is_the_cause() -> None:
    lines = [
        *START,
        (
            "(Worker_TP1 pid=2) ERROR 05-21 10:11:12 [w.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to "
            "allocate 2.00 GiB. GPU 1 has a total capacity of 79.19 GiB of which 1.00 GiB is free."
        ),
        (
            "[rank0]:[E517 20:17:34.1 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 ms"
        ),
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    verdict = judged(lines)
    assert verdict.findings[0].code == "VD110"
    assert "VD801" not in {f.code for f in verdict.findings}


def test_a_message_that_was_broken_into_lines_is_read() -> None:
    lines = [
        *START,
        "(EngineCore_DP0 pid=2) ERROR 10-08 20:33:48 [core.py:708] ValueError: ",
        "To serve at least one request with the models's max seq len (40960), ",
        "(5.62 GiB KV cache is needed, which is larger than the available KV cache memory (4.50 GiB). ",
        "Based on the available memory, the estimated maximum model length is 32768. ",
    ]
    verdict = judged(lines)
    assert verdict.findings[0].code == "VD121"
    assert verdict.findings[0].changes[0].after == 32768


def test_numbers_that_no_program_writes_are_no_message() -> None:
    line = f"ValueError: The model's max seq len ({'9' * 5000}) is larger than the maximum number of tokens that can be"
    verdict = judged([*START, f"{line} stored in KV cache ({'9' * 5000})."])
    assert "VD0001" not in {f.code for f in verdict.findings}


@pytest.fixture
def int_takes_few_digits() -> Iterator[None]:
    """640 digits in place of 4,300: what int() refuses is as absurd, and no line is so long that it is cut before."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(ENOUGH)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.usefixtures("int_takes_few_digits")
@pytest.mark.parametrize(
    "number", ["0", "9" * 40, "9" * (ENOUGH + 1)], ids=["none", "forty digits", "more than int() takes"]
)
def test_no_number_in_a_line_breaks_a_rule(number: str) -> None:
    logs = [log_text(name).splitlines() for name in SUMS]
    lives = [*((START, [s.line]) for m in messages() for s in m.samples), *(([], lines) for lines in (START, *logs))]
    for before, lines in lives:
        # Each line once, in its text alone; the calls of a traceback have no figure that is read.
        for index, line in enumerate(lines):
            prefix, end, text = line.rpartition("] ")
            absurd = prefix + end + re.sub(r"[0-9]+", number, text)
            if absurd == line or 'File "' in line:
                continue
            found = judged([*before, *lines[:index], absurd, *lines[index + 1 :]])
            assert INTERNAL not in [f.code for f in found.findings], absurd
