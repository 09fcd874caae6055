"""The figure that a person pastes, and the bound that decides what is said: from both sides of each."""

import pytest
from msgspec import structs

from vllm_doctor.launch.command import parse_line
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import NOT_GIVEN, Snapshot
from vllm_doctor.records.verdict import Cause
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.gates.out_of_memory import refused_by_far, refused_though_free
from vllm_doctor.rules.ledger import ledger
from vllm_doctor.rules.registry import loaded
from vllm_doctor.rules.remedies.mentioned import mentioned
from vllm_doctor.rules.remedies.refusal import refusal_text
from vllm_doctor.rules.remedies.utilization import lower_utilization

GIB, MIB = 1 << 30, 1 << 20
CARD = Known((Gpu(0, "NVIDIA L40S", total_bytes=40 * GIB),), "NVML")


def shot(*lines: str, launch: str = "vllm serve acme/chat", version: str = "0.32.0", gpus: object = CARD) -> Snapshot:
    return Snapshot(
        taken_at="2026-03-14T09:00:00Z",
        log=Known(log_of_lines(lines, "log"), "log"),
        launch=Known(parse_line(launch), "a command line"),
        version=Known(version, "given"),
        gpus=gpus,  # type: ignore[arg-type]
    )


def refused(asked: float, free: float | None, *, total: float = 40) -> TorchOom:
    """An allocation of so many GiB that failed beside so many."""
    return TorchOom(
        asked=int(asked * GIB),
        backend="cuda",
        total=int(total * GIB),
        free=None if free is None else int(free * GIB),
    )


@pytest.mark.parametrize(("more", "though_free"), [(16 * MIB, False), (16 * MIB + 1, True), (0, False), (-1, False)])
def test_figures_that_a_page_or_a_rounded_digit_parts_are_the_same(more: int, *, though_free: bool) -> None:
    told = TorchOom(asked=2 * GIB, backend="cuda", total=40 * GIB, free=2 * GIB + more)
    assert refused_though_free(told) is though_free


@pytest.mark.parametrize(
    ("total", "more", "far"), [(16, GIB, False), (16, GIB + 1, True), (80, 4 * GIB, False), (80, 4 * GIB + 1, True)]
)
def test_a_gib_and_a_twentieth_of_the_card_are_no_race(total: int, more: int, *, far: bool) -> None:
    assert refused_by_far(TorchOom(GIB, "cuda", total=total * GIB, free=GIB + more)) is far


@pytest.mark.parametrize(
    ("torch", "to"),
    [
        (refused(2.0, 0.5), 0.85),  # 0.9 of 40 GiB, less the 1.5 that were missing and 0.5
        (refused(2.0, 2.0), 0.88),
        (refused(2.0, None), 0.85),  # the log does not print what was free
        (refused(2.0, 5.0), 0.83),  # free and refused: the whole of what was asked
    ],
)
def test_a_lower_budget_leaves_what_was_missing(torch: TorchOom, to: float) -> None:
    change = lower_utilization(Case(shot(launch="vllm serve acme/chat --gpu-memory-utilization 0.9")), torch, "why")
    assert change is not None
    assert change.after == to


@pytest.mark.parametrize(("torch", "by"), [(refused(2.0, 0.5), 0.05), (refused(2.0, None), 0.07), (None, 0.05)])
def test_a_pool_in_bytes_is_less_by_what_was_missing(torch: TorchOom | None, by: float) -> None:
    """And a budget that the launch does not set is lower by as much, in hundredths of the card."""
    pinned = lower_utilization(Case(shot(launch=f"vllm serve m --kv-cache-memory-bytes {8 * GIB}")), torch, "why")
    missing = 0.0 if torch is None else (torch.asked - (torch.free or 0)) / GIB
    assert pinned is not None
    assert pinned.after == int((8 - missing - 0.5) * 1024) * MIB
    unset = lower_utilization(Case(structs.replace(shot(), launch=NOT_GIVEN)), torch, "why")
    assert unset is not None
    assert unset.by == by


@pytest.mark.parametrize("fraction", [0.5, 0.92])
def test_the_budget_of_a_sheet_is_its_part_of_the_card(fraction: float) -> None:
    case = Case(shot("INFO x", launch=f"vllm serve m --gpu-memory-utilization {fraction}"))
    assert ledger(case, Cause.OTHER).budget == pytest.approx(fraction * 40)


@pytest.mark.parametrize(("end", "named"), [(600, {"enable-lora", "enable-sleep-mode"}), (601, {"enable-lora"})])
def test_what_a_refusal_lists_far_down_is_no_option_that_it_speaks_of(end: int, named: set[str]) -> None:
    """A sentence lists what it found at its end; what it is about stands before."""
    begins, other = "the part of --enable-lora is not there", " beside --enable-sleep-mode"
    said = begins + "." * (end - len(begins) - len(other)) + other
    case = Case(
        shot(
            "Traceback (most recent call last):",
            '  File "/opt/v/lib/python3.12/site-packages/vllm/config/vllm.py", line 90, in __post_init__',
            "    raise ValueError(told)",
            f"ValueError: {said}",
        )
    )
    assert case.root is not None
    assert refusal_text(case, case.root).index(said) == 0
    assert {change.name for change in mentioned(case, case.root)} == named


SERVED = 'INFO:     10.0.0.5:41000 - "POST /v1/completions HTTP/1.1" 200 OK'
LOADED = (
    (
        "INFO 03-14 09:00:00 [weight_utils.py:700] Filesystem type for checkpoints: XFS. Checkpoint size: 60.00 GiB. "
        "Available RAM: {ram:.2f} GiB."
    ),
    "INFO 03-14 09:03:00 [gpu_model_runner.py:5000] Model loading took 60.0 GiB memory and 180.0 seconds",
    "INFO 03-14 09:03:20 [backends.py:800] Dynamo bytecode transform time: 9.10 s",
)


def test_a_server_that_answered_did_not_end_in_silence_during_the_start() -> None:
    gpus = Known((Gpu(0, "NVIDIA GB10", total_bytes=119 * GIB, unified_memory=True),), "NVML")
    lines = [line.format(ram=10.0) for line in LOADED]
    silent = ask(loaded("VD602"), Case(shot(*lines, gpus=gpus)))
    assert isinstance(silent, Finding)
    for served in (SERVED, "INFO:     Application startup complete."):
        assert not isinstance(ask(loaded("VD602"), Case(shot(*lines, served, gpus=gpus))), Finding)


@pytest.mark.parametrize(("asked", "to"), [(118 * MIB, 512 * MIB), (118 * MIB + 1, GIB), (118 * MIB - 1, 512 * MIB)])
def test_a_workspace_grows_to_the_power_of_two_that_holds_what_was_asked_for_beside_it(asked: int, to: int) -> None:
    """394 MiB are there where nothing sets it."""
    line = (
        f"RuntimeError: Buffer overflow when allocating memory for batch_decode_tmp_s with size {asked} and alignment "
        "16, but only 0 bytes available in AlignedAllocator. Increase the workspace buffer size."
    )
    told = ask(
        loaded("VD206"), Case(shot("Traceback (most recent call last):", '  File "/x.py", line 2, in run', line))
    )
    assert isinstance(told, Finding)
    assert told.changes[0].after == to


@pytest.mark.parametrize(("count", "renamed"), [(3, 3), (4, 4), (5, 4)])
def test_of_four_mistyped_options_the_right_names_are_looked_for(count: int, renamed: int) -> None:
    right = ("max-model-len", "max-num-seqs", "tensor-parallel-size", "kv-cache-dtype", "max-num-batched-tokens")
    words = " ".join(f"--{name}q 1" for name in right[:count])
    told = ask(
        loaded("VD502"), Case(shot(f"vllm: error: unrecognized arguments: {words}", launch=f"vllm serve m {words}"))
    )
    assert isinstance(told, Finding)
    assert sum(change.name in right for change in told.changes) == renamed
