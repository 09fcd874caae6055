"""Each change is tried on the card's ledger before it is shown, whichever rule offers it."""

import msgspec
import pytest

from vllm_doctor.knowledge.gpus import device_tool
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.torch_oom import torch_oom
from vllm_doctor.records.finding import Change, Diagnosis, Evidence, Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Applicability, Cause, ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.ledger import ledger
from vllm_doctor.rules.trial import tried

WORKER = "INFO 02-26 09:54:05 worker.py:267] "
NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."


def profiled(*, total: float, share: float, weights: float, peak: float, left: float) -> list[str]:
    """What releases 0.6.6 to 0.10 print of the profile run, and their error."""
    parts = f"model weights take {weights:.2f}GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory"
    parts += f" takes {peak:.2f}GiB"
    budget = f"({total:.2f}GiB) x gpu_memory_utilization ({share:.2f}) = {total * share:.2f}GiB"
    return [
        f"{WORKER}the current vLLM instance can use total_gpu_memory {budget}",
        f"{WORKER}{parts}; the rest of the memory reserved for KV Cache is {left:.2f}GiB.",
        NO_BLOCKS,
    ]


def judged(lines: list[str]) -> Diagnosis:
    return diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))


def case(*lines: str) -> Case:
    return Case(Snapshot(taken_at="", log=Known(log_of_lines(list(lines), "log"), "log")))


def flag(name: str, to: float | str | bool | None, way: Direction, before: float | None = None) -> Change:
    return Change(ChangeKind.FLAG, name, before, to, way, Applicability.NEEDS_REVIEW, why="why")


def finding(*changes: Change, cause: Cause = Cause.NO_KV_BLOCKS) -> Finding:
    where = (Evidence("log", "line 1", "text"),)
    start = Severity.BLOCKS_START
    return Finding(
        "VD120", cause, Phase.STARTUP_KV_CACHE, "title", start, Confidence.LIKELY, where, "", changes=changes
    )


SHORT = profiled(total=24.0, share=0.5, weights=10.0, peak=4.0, left=-2.03)


def offered(of: Case, *changes: Change) -> list[tuple[str, object]]:
    (found,) = tried(of, [finding(*changes)])
    return [(change.name, change.after) for change in found.changes]


def test_the_figures_of_the_log_come_before_any_default() -> None:
    sheet = ledger(case(*SHORT), Cause.NO_KV_BLOCKS)
    assert (sheet.total, sheet.budget, sheet.weights, sheet.peak, sheet.missing) == (24.0, 12.0, 10.0, 4.0, 2.03)
    change = judged(SHORT).findings[0].changes[0]
    # (12 + 2.03 + 2) / 24: the share that the log prints, not the newest release's.
    assert (change.name, change.after, change.direction) == ("gpu-memory-utilization", 0.67, Direction.RAISE)


def test_what_is_not_enough_says_so_and_stands_last() -> None:
    few, many = flag("max-num-seqs", 224, Direction.LOWER, 256), flag("gpu-memory-utilization", 0.7, Direction.RAISE)
    (found,) = tried(case(*SHORT), [finding(few, many)])
    assert [change.name for change in found.changes] == ["gpu-memory-utilization", "max-num-seqs"]
    # 4 GiB × (1 − 224 / 256)
    assert found.changes[1].why.endswith("alone it is not enough: it frees 0.50 of the 2.03 GiB that are missing")


def test_what_frees_next_to_nothing_is_not_offered() -> None:
    small = profiled(total=8.0, share=0.9, weights=0.07, peak=7.09, left=0.0)
    assert offered(case(*small), flag("quantization", "fp8", Direction.ADD)) == []


def test_two_findings_do_not_contradict_each_other() -> None:
    first = finding(flag("gpu-memory-utilization", 0.7, Direction.RAISE))
    second = finding(
        flag("gpu-memory-utilization", 0.8, Direction.RAISE), flag("max-num-seqs", 64, Direction.LOWER, 256)
    )
    _, other = tried(case(*SHORT), [first, second])
    assert [change.name for change in other.changes] == ["max-num-seqs"]


def test_a_length_that_serves_nobody_is_a_question_instead() -> None:
    (found,) = tried(case(*SHORT), [finding(flag("max-model-len", 208, Direction.LOWER, 4096))])
    assert found.changes == ()
    assert "weights 10.00, the profile run 4.00" in found.next


def test_a_lower_share_that_leaves_no_cache_is_not_offered() -> None:
    tight = case(*profiled(total=24.0, share=0.9, weights=20.0, peak=1.0, left=0.6)[:2])
    assert offered(tight, flag("gpu-memory-utilization", 0.87, Direction.LOWER)) == []
    assert offered(tight, flag("gpu-memory-utilization", 0.88, Direction.LOWER)) == [("gpu-memory-utilization", 0.88)]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("INFO 02-26 09:54:05 __init__.py:207] Automatically detected platform cuda.", True),
        ("INFO 02-26 09:54:05 __init__.py:207] Automatically detected platform tpu.", False),
        ("WARNING 02-26 09:54:05 interface.py:9] Using 'pin_memory=False' as WSL is detected.", False),
    ],
)
def test_offload_needs_memory_that_the_gpu_can_map(line: str, kept: bool) -> None:
    assert bool(offered(case(line), flag("cpu-offload-gb", 10, Direction.RAISE))) is kept


def test_a_value_above_an_unknown_default_is_no_lower_one() -> None:
    unknown = case("RuntimeError: CUDA error: out of memory")
    assert offered(unknown, flag("max-num-seqs", 512, Direction.LOWER)) == []
    assert offered(unknown, flag("max-num-seqs", 128, Direction.LOWER)) == [("max-num-seqs", 128)]


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total capacity of 39.50 GiB "
    "of which 60.00 MiB is free. {}Of the allocated memory 28.00 GiB is allocated by PyTorch, and 30.00 MiB is "
    "reserved by PyTorch but unallocated."
)


def test_ranks_of_the_same_engine_are_no_tenants() -> None:
    peers = "".join(f"Process {n} has 1.60 GiB memory in use. " for n in (11, 12, 13))
    own = "Including non-PyTorch memory, this process has 34.60 GiB memory in use. "
    told = torch_oom(OOM.format(peers + own))
    assert told is not None
    assert told.held_by_others == 0
    one = torch_oom(OOM.format("Process 11 has 4.80 GiB memory in use. " + own))
    assert one is not None
    assert one.held_by_others == round(4.8 * (1 << 30))


def test_no_bytes_of_its_own_is_not_what_a_process_in_a_container_has() -> None:
    told = torch_oom(OOM.format("Including non-PyTorch memory, this process has 0 bytes memory in use. "))
    assert told is not None
    assert (told.mine, told.held_by_others) == (None, None)


def test_a_finding_without_changes_is_left_as_it_is() -> None:
    plain = msgspec.structs.replace(finding(), next="send the log")
    assert tried(case(*SHORT), [plain]) == [plain]


@pytest.mark.parametrize(
    ("device", "asked"),
    [("xpu:0", "xpu-smi ps"), ("npu:0", "npu-smi info"), ("cuda:0", device_tool("cuda").holders)],
)
def test_who_holds_the_memory_is_asked_with_the_tool_of_the_devices_maker(device: str, asked: str) -> None:
    said = f"ValueError: Free memory on device {device} (2.00/30.00 GiB) on startup is less than desired GPU memory "
    found = judged([f"{said}utilization (0.9, 27.00 GiB). Decrease GPU memory utilization or reduce GPU memory used."])
    first = found.findings[0]
    assert first.changes[0].command == asked
    assert ("nvidia-smi" in first.refute + first.changes[0].why) == (device == "cuda:0")
