"""The value that a remedy writes and the sum that it shows, from both sides of each bound: 40 GiB of card."""

import pytest

from tests.rules.test_bounds_of_figures import CARD, GIB, MIB, refused, shot
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Change
from vllm_doctor.records.reading import NOT_GIVEN, Known
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.free_memory import Shortage
from vllm_doctor.rules.remedies.step import eager, fewer_sequences, fewer_tokens, tensor
from vllm_doctor.rules.remedies.utilization import lower_utilization, pass_free_memory_check, raise_utilization

LOADED = "INFO 03-14 09:03:00 [gpu_model_runner.py:5000] Model loading took {} GiB memory and 180.0 seconds"


def case(options: str, weights: float | None = None, *, gpus: object = CARD, version: str = "0.32.0") -> Case:
    return Case(
        shot(
            "INFO x",
            *([LOADED.format(weights)] if weights is not None else []),
            launch=f"vllm serve m {options}",
            version=version,
            gpus=gpus,
        )
    )


def unlaunched(version: str | None = "0.32.0", gpus: object = CARD) -> Case:
    """Nothing is known of the launch; of the release only what is given."""
    known = Known(version, "given") if version is not None else NOT_GIVEN
    snapshot = shot("INFO x", gpus=gpus)
    return Case(type(snapshot)(taken_at=snapshot.taken_at, log=snapshot.log, version=known, gpus=snapshot.gpus))


def oom(asked: float, free: float | None, allocated: float) -> TorchOom:
    told = refused(asked, free)
    return TorchOom(told.asked, told.backend, total=told.total, free=told.free, allocated=int(allocated * GIB))


def value(change: Change | None) -> object:
    return None if change is None else change.after


@pytest.mark.parametrize(
    ("fraction", "weights", "torch", "to", "total"),
    [
        (0.9, 33.9, refused(2.0, 0.5), 0.85, "(0.9 × 40.00 − 1.50 − 0.5) / 40.00"),
        (0.9, 34.0, refused(2.0, 0.5), None, ""),  # the weights alone fill such a budget
        (0.9, 33.9, None, 0.85, "0.9 − 0.05, because the log does not print the missing amount"),
        (0.9, 34.0, None, None, ""),
        (0.11, None, None, 0.06, "0.11 − 0.05, because the log does not print the missing amount"),
        (0.10, None, None, None, ""),
        (0.9, 33.1, refused(2.0, 5.0), 0.83, "(0.9 × 40.00 − 2.00 − 0.5) / 40.00"),
        (0.9, 33.2, refused(2.0, 5.0), None, ""),
        (0.123, None, refused(2.0, 5.0), 0.06, "(0.123 × 40.00 − 2.00 − 0.5) / 40.00"),
        (0.120, None, refused(2.0, 5.0), None, ""),
    ],
)
def test_a_lower_budget_still_holds_the_weights(
    fraction: float, weights: float | None, torch: TorchOom | None, to: float | None, total: str
) -> None:
    change = lower_utilization(case(f"--gpu-memory-utilization {fraction}", weights), torch, "why")
    assert value(change) == to
    if change is not None and to is not None:
        assert change.why == f"why: {total}"
        assert change.predicted == {"budget_gib": round(to * 40, 2)}


@pytest.mark.parametrize(
    ("version", "torch", "gpus", "by", "unset", "total"),
    [
        ("0.32.0", None, CARD, 0.05, 0.87, "0.05 below the default 0.92 (the log does not print the amount)"),
        ("0.19.1", None, CARD, 0.05, 0.85, "0.05 below the default 0.9 (the log does not print the amount)"),
        (None, None, CARD, 0.05, 0.85, "0.05 below the default 0.9 (the log does not print the amount)"),
        ("0.32.0", refused(2.0, 1.0), CARD, 0.04, 0.88, "0.04 below the default 0.92 (1.50 of 40.00 GiB)"),
        ("0.32.0", refused(2.0, None), CARD, 0.07, 0.85, "0.07 below the default 0.92 (2.50 of 40.00 GiB)"),
        ("0.32.0", refused(2.0, 5.0), CARD, 0.07, 0.85, "0.07 below the default 0.92 (2.50 of 40.00 GiB)"),
        (
            "0.32.0",
            refused(2.0, 0.5),
            NOT_GIVEN,
            0.05,
            0.87,
            "0.05 below the default 0.92 (2.00 GiB, of a GPU whose size is not known)",
        ),
    ],
)
def test_of_a_budget_that_nobody_told_it_is_said_by_how_much(
    version: str | None, torch: TorchOom | None, gpus: object, by: float, *, unset: float, total: str
) -> None:
    change = lower_utilization(unlaunched(version, gpus), torch, "why")
    assert change is not None
    assert (change.after, change.by, change.unset, change.why) == (None, by, unset, f"why: {total}")


def test_no_budget_is_offered_where_more_was_missing_than_it_has() -> None:
    assert lower_utilization(unlaunched(), refused(34.5, 0.0), "why") is None
    assert value(lower_utilization(case("--kv-cache-memory-bytes 512M"), None, "why")) is None
    assert value(lower_utilization(case(f"--kv-cache-memory-bytes {513 * MIB}"), None, "why")) == MIB


@pytest.mark.parametrize(
    ("fraction", "missing", "to", "known"),
    [
        (0.9, 1.0, 0.93, True),
        (0.9, 2.0, 0.95, True),
        (0.9, 4.0, 0.97, True),  # more is not had
        (0.5, 0.01, 0.51, True),
        (0.97, 0.5, None, True),
        (0.9, 1.0, 0.97, False),  # of a card of unknown size
        (0.89, 1.0, 0.92, False),
        (0.5, 2.4, 0.6, False),
        (0.5, 6.0, 0.75, False),
        (0.96, 1.0, 0.97, False),
        (0.97, 1.0, None, False),
    ],
)
def test_a_larger_budget_grows_by_what_is_missing(fraction: float, missing: float, to: float, *, known: bool) -> None:
    gpus = CARD if known else NOT_GIVEN
    change = raise_utilization(case(f"--gpu-memory-utilization {fraction}", gpus=gpus), missing)
    assert value(change) == to
    if change is not None and known:
        assert change.why.startswith(f"({fraction * 40:.2f} + {missing:.2f}) / 40.00")
        assert change.predicted == {"budget_gib": round(to * 40, 2)}
    if change is not None and not known:
        assert change.why.startswith(f"{fraction:g} (the launch) leaves {1 - fraction:.0%} of the GPU")


@pytest.mark.parametrize(
    ("version", "missing", "by", "unset", "named"),
    [
        ("0.32.0", 1.0, 0.03, 0.95, "0.92"),
        ("0.32.0", 4.0, 0.1, 0.97, "0.92"),
        ("0.19.1", 1.0, 0.03, 0.93, "0.9"),
        (None, 1.0, 0.03, 0.95, "0.9 or 0.92"),
        ("0.32.0", 0.001, 0.01, 0.93, "0.92"),
    ],
)
def test_a_larger_budget_than_a_default_names_the_default(
    version: str | None, missing: float, by: float, unset: float, named: str
) -> None:
    change = raise_utilization(unlaunched(version), missing)
    assert change is not None
    assert (change.by, change.unset) == (by, unset)
    assert f"{by:g} above the default {named} ({missing:.2f} of 40.00 GiB)" in change.why


@pytest.mark.parametrize(("weights", "to"), [(None, 9 * GIB), (29.75, 9 * GIB), (29.85, None)])
def test_a_larger_pool_and_the_weights_stay_below_the_highest_budget(weights: float | None, to: int | None) -> None:
    """0.97 of 40 GiB is 38.8."""
    assert value(raise_utilization(case(f"--kv-cache-memory-bytes {8 * GIB}", weights), 1.0)) == to


@pytest.mark.parametrize(
    ("free", "shared", "want", "weights", "to"),
    [
        (20.3, 0.0, 36.0, 19.9, 0.5),
        (20.3, 0.0, 36.0, 20.0, None),
        (8.3, 0.0, 36.0, None, 0.2),  # the smallest budget is 8 GiB
        (8.29, 0.0, 36.0, None, None),
        (6.3, 2.0, 36.0, None, 0.2),
        (4.3, 0.0, 8.0, None, 0.1),  # or half of what the launch asked for
        (4.29, 0.0, 8.0, None, None),
    ],
)
def test_a_budget_that_passes_the_check_must_still_hold_a_model(
    free: float, shared: float, want: float, weights: float | None, to: float | None
) -> None:
    short = Shortage("cuda:0", free, 40.0, 0.9, want, (0,), shared)
    change = pass_free_memory_check(case("--gpu-memory-utilization 0.9", weights), short)
    assert value(change) == to
    if change is not None and to is not None:
        both = f"{free:.2f} + {shared:.2f}" if shared else f"{free:.2f}"
        assert change.why.startswith(f"({both} − 0.3) / 40.00, rounded down")
        assert (change.direction, change.predicted) == (Direction.LOWER, {"budget_gib": to * 40})


@pytest.mark.parametrize(
    ("options", "weights", "torch", "to", "why"),
    [
        ("", None, None, 4096, "4096 of 8192 takes 50% of it"),
        ("", 30.0, oom(2, 0.5, 30), 2048, "2.00 GiB for 8192 tokens is 0.50 GiB for 2048"),
        ("", 30.0, oom(2, 0.5, 36), 512, "8.00 GiB for 8192 tokens is 0.50 GiB for 512"),
        ("", 36.9, oom(2, 0.5, 37), None, ""),  # weights and step leave the KV cache nothing
        ("--max-num-seqs 6000", None, None, 6000, "6000 of 8192 takes 73% of it"),  # no fewer tokens than sequences
        ("--max-num-seqs 8192", None, None, None, ""),
    ],
)
def test_tokens_of_a_profile_run_that_fit_beside_the_weights(
    options: str, weights: float | None, torch: TorchOom | None, to: int | None, why: str
) -> None:
    change = fewer_tokens(case(f"--max-num-batched-tokens 8192 {options}", weights), torch)
    assert value(change) == to
    if change is not None and to is not None:
        assert change.why == f"the peak of a step grows with its tokens; {why}"
        if weights is not None and torch is not None and torch.allocated is not None:
            each = (torch.allocated + torch.asked - weights * GIB) / 8192
            left = 0.92 * 40 - weights - each * to / GIB
            assert change.predicted == {"available_kv_gib": pytest.approx(left, abs=0.01)}


@pytest.mark.parametrize(
    ("options", "torch", "to", "why"),
    [
        ("", None, 4096, "buffers of a step grow with its tokens"),
        ("", refused(2, 1.0), 4096, "2.00 GiB for 8192 tokens is 1.00 GiB for 4096; 1.00 are free"),
        ("", refused(2, 0.99), 2048, "2.00 GiB for 8192 tokens is 0.50 GiB for 2048; 0.99 are free"),
        ("", refused(2, 1.9), 4096, "2.00 GiB for 8192 tokens is 1.00 GiB for 4096; 1.90 are free"),
        ("", refused(2, 0.0), 512, "2.00 GiB for 8192 tokens is 0.12 GiB for 512; 0.00 are free"),
        ("", refused(2, None), 4096, "2.00 GiB for 8192 tokens is 1.00 GiB for 4096"),  # nobody printed what is free
        ("--max-num-seqs 3000", refused(2, 0.5), 3000, "2.00 GiB for 8192 tokens is 0.73 GiB for 3000; 0.50 are free"),
        ("--max-num-seqs 8192", refused(2, 0.5), None, ""),
    ],
)
def test_tokens_of_a_step_beside_the_kv_cache_fit_what_is_free(
    options: str, torch: TorchOom | None, to: int | None, why: str
) -> None:
    change = fewer_tokens(case(f"--max-num-batched-tokens 8192 {options}"), torch, measuring=False)
    assert value(change) == to
    assert change is None or change.why == why


@pytest.mark.parametrize(
    ("length", "measuring", "name", "to"),
    [
        (4095, True, "max-num-batched-tokens", 4096),
        (4096, True, "max-model-len", 2048),
        (4096, False, "max-num-batched-tokens", 4096),
        (4097, False, "max-model-len", 2048),
    ],
)
def test_without_chunked_prefill_no_step_becomes_shorter_than_a_prompt(
    length: int, name: str, to: int, *, measuring: bool
) -> None:
    options = f"--max-num-batched-tokens 8192 --no-enable-chunked-prefill --max-model-len {length}"
    change = fewer_tokens(case(options), None, measuring=measuring)
    assert change is not None
    assert (change.name, change.after) == (name, to)


@pytest.mark.parametrize(
    ("torch", "size", "part"),
    [
        (None, "unknown", "half"),
        (refused(4.0, 0.0), "unknown", "half"),
        (refused(4.01, 0.0), "unknown", "a quarter"),
        (refused(8.01, 0.0), "unknown", "an eighth"),
        (refused(16.01, 0.0), "unknown", "a 16th"),
        (refused(32.01, 0.0), "unknown", "a 32nd"),
        (refused(6.66, 0.0), "40 GiB", "half"),  # two twelfths of the card
        (refused(6.67, 0.0), "40 GiB", "a quarter"),
    ],
)
def test_the_larger_one_tensor_is_the_smaller_a_step_of_unknown_tokens_becomes(
    torch: TorchOom | None, size: str, part: str
) -> None:
    change = fewer_tokens(unlaunched(None, NOT_GIVEN if size == "unknown" else CARD), torch)
    assert change is not None
    assert (change.name, change.after) == ("max-num-batched-tokens", None)
    assert change.why.startswith(f"set {part} of the present value")


@pytest.mark.parametrize(
    ("now", "torch", "to", "filled"),
    [
        (256, None, 128, False),
        (1024, None, 512, False),
        (256, refused(2, 0.5), 32, False),  # a second buffer of that size is alive: half of a quarter
        (256, refused(2, 1.9), 64, False),
        (256, refused(2, 3.9), 128, False),
        (256, refused(2, None), 128, False),
        (256, refused(2, 0.125), 8, False),
        (256, refused(2, 0.124), 8, True),
        (16, None, 8, False),
        (15, None, 8, False),  # nobody said what was free
        (9, refused(2, 0.0), 8, True),
        (8, refused(2, 0.0), None, False),
    ],
)
def test_fewer_sequences_fit_what_was_free(now: int, torch: TorchOom | None, to: int | None, *, filled: bool) -> None:
    change = fewer_sequences(case(f"--max-num-seqs {now}"), torch)
    assert value(change) == to
    if change is not None and to is not None:
        assert f"{to} of {now} rows take {to / now:.0%} of the memory" in change.why
        assert ("next to nothing was free" in change.why) is filled


def test_graphs_are_left_out_once() -> None:
    assert value(eager(case(""))) is True
    assert eager(case("--enforce-eager")) is None


def _dimensions(asked: int, ranks: int, **config: object) -> tuple[int, int, int, str, str] | None:
    snapshot = shot("INFO x", launch=f"vllm serve m --tensor-parallel-size {ranks} --max-num-batched-tokens 8192")
    given = type(snapshot)(
        taken_at=snapshot.taken_at,
        log=snapshot.log,
        launch=snapshot.launch,
        version=snapshot.version,
        model_config=Known(config, "config.json"),
    )
    told = tensor(Case(given), TorchOom(asked=asked, backend="cuda"))
    return None if told is None else (told.count, told.width, told.size, told.option, told.shown)


@pytest.mark.parametrize(
    ("asked", "ranks", "named"),
    [
        (8192 * 14336 * 2, 1, (8192, 14336, 2, "max-num-batched-tokens", "1 × intermediate_size of the model")),
        (8192 * 28672 * 4, 1, (8192, 28672, 4, "max-num-batched-tokens", "2 × intermediate_size of the model")),
        (8192 * 7168 * 2, 2, (8192, 7168, 2, "max-num-batched-tokens", "1 × intermediate_size of the model / 2 GPUs")),
        (8192 * 5000 * 2, 2, (8192, 5000, 2, "max-num-batched-tokens", "1 × hidden_size of the model")),
        (8192 * 5000 * 4, 2, (8192, 5000, 4, "max-num-batched-tokens", "1 × hidden_size of the model")),
        (256 * 128000 * 4, 2, (256, 128000, 4, "max-num-seqs", "1 × vocab_size of the model")),
        (256 * 64000 * 2, 2, (256, 64000, 2, "max-num-seqs", "1 × vocab_size of the model / 2 GPUs")),
        (8192 * 6001 * 2, 2, None),
    ],
)
def test_a_refused_tensor_is_named_by_the_model_s_dimensions(
    asked: int, ranks: int, named: tuple[int, int, int, str, str] | None
) -> None:
    config = {"intermediate_size": 14336, "hidden_size": 5000, "vocab_size": 128000}
    assert _dimensions(asked, ranks, **config) == named
    assert _dimensions(asked, ranks, text_config=config) == named
