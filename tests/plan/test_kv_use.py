"""Blocks used, free, held by a request, lost; against figures worked out by hand."""

import math

import pytest

from vllm_doctor.plan.usage.allocator import allocator
from vllm_doctor.plan.usage.kv_use import kv_use
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import Gpu, GpuProcess, Metrics, Sample, Scrape
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.render.fragmentation import block_advice, report

GIB = 1 << 30


def lengths(name: str, buckets: dict[str, float], total: float) -> list[Sample]:
    count = list(buckets.values())[-1]
    found = [Sample(f"{name}_bucket", {"engine": "0", "le": le}, n) for le, n in buckets.items()]
    return [*found, Sample(f"{name}_count", {"engine": "0"}, count), Sample(f"{name}_sum", {"engine": "0"}, total)]


def metrics(
    *more: Sample, size: str = "128", blocks: str = "512", usage: float = 0.25, running: float = 8.0
) -> Metrics:
    samples = [
        Sample("vllm:cache_config_info", {"engine": "0", "block_size": size, "num_gpu_blocks": blocks}, 1.0),
        Sample("vllm:kv_cache_usage_perc", {"engine": "0"}, usage),
        Sample("vllm:num_requests_running", {"engine": "0"}, running),
        Sample("vllm:num_requests_waiting", {"engine": "0"}, 0.0),
        *more,
    ]
    return Metrics("u", (Scrape(1.0, tuple(samples)),))


EXACTLY_100 = [
    *lengths("vllm:request_prompt_tokens", {"99": 0.0, "100": 40.0, "+Inf": 40.0}, 4000.0),
    *lengths("vllm:request_generation_tokens", {"1": 0.0, "28": 40.0, "+Inf": 40.0}, 28 * 40.0),
]


def test_used_free_and_per_request() -> None:
    use = kv_use(metrics(), max_model_len=2048, version="0.32.0")
    assert (use.blocks, use.tokens, use.used_blocks, use.free_blocks) == (512, 65536, 128, 384)
    assert use.blocks_per_running == 16
    assert use.more_longest == 384 // (2048 // 128)
    assert use.more_mean is None
    assert use.waste == ()


def test_waste_of_lengths_that_are_known_exactly() -> None:
    """Every request takes 100 + 28 = 128 tokens: no block size up to 128 loses any, 256 loses 128 of 256."""
    use = kv_use(metrics(*EXACTLY_100), max_model_len=2048, version="0.32.0")
    lost = {w.block_size: (w.tokens, w.share) for w in use.waste}
    assert lost[128] == (0.0, 0.0)
    assert lost[16] == (0.0, 0.0)
    assert lost[256] == (128.0, 0.5)
    assert use.more_mean == 384


@pytest.mark.parametrize("size", [16, 64, 128])
def test_waste_of_evenly_spread_lengths_is_half_a_block(size: int) -> None:
    spread = lengths("vllm:request_prompt_tokens", {"1000": 0.0, "2000": 100.0, "+Inf": 100.0}, 150000.0)
    use = kv_use(metrics(*spread), max_model_len=None, version=None)
    found = next(w for w in use.waste if w.block_size == size)
    assert found.tokens == pytest.approx((size - 1) / 2, rel=0.15)
    assert found.allowed is None


def test_few_requests_say_nothing() -> None:
    few = lengths("vllm:request_prompt_tokens", {"100": 5.0, "+Inf": 5.0}, 400.0)
    assert kv_use(metrics(*few), max_model_len=None, version="0.32.0").waste == ()


def test_two_engines_have_two_pools() -> None:
    second = Sample("vllm:kv_cache_usage_perc", {"engine": "1"}, 0.75)
    use = kv_use(metrics(second), max_model_len=None, version=None)
    assert use.blocks == 1024
    assert use.used_blocks == 512


def test_a_server_that_tells_nothing_is_not_zero() -> None:
    use = kv_use(Metrics("u", (Scrape(1.0, ()),)), max_model_len=None, version=None)
    assert (use.blocks, use.used_share, use.running, use.more_longest) == (None, None, None, None)
    assert "does not export" in report(use, allocator(Snapshot(taken_at="")), "human", Subject())


def test_advice_only_where_the_version_takes_the_size() -> None:
    short = [
        *lengths("vllm:request_prompt_tokens", {"9": 0.0, "20": 50.0, "+Inf": 50.0}, 700.0),
        *lengths("vllm:request_generation_tokens", {"1": 0.0, "5": 50.0, "+Inf": 50.0}, 100.0),
    ]
    large = kv_use(metrics(*short), max_model_len=None, version="0.32.0")
    assert "--block-size 16" in block_advice(large)
    unknown = kv_use(metrics(*short), max_model_len=None, version=None)
    assert block_advice(unknown).startswith("keep 128")
    already = kv_use(metrics(*short, size="16"), max_model_len=None, version="0.32.0")
    assert block_advice(already).startswith("keep 16")


def oom(asked: str, unallocated: str) -> Snapshot:
    text = (
        f"CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 79 GiB "
        "of which 512.00 MiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and "
        f"{unallocated} is reserved by PyTorch but unallocated."
    )
    return Snapshot(taken_at="", log=Known(Log("journal", RunLines((LogLine(9, text),))), "journal"))


def test_fragmentation_is_claimed_only_where_the_memory_would_have_served() -> None:
    torn = allocator(oom("2.00 GiB", "9.00 GiB")).error
    slack = allocator(oom("2.00 GiB", "6.00 GiB")).error
    short = allocator(oom("2.00 GiB", "1.00 GiB")).error
    assert torn is not None
    assert short is not None
    assert slack is not None
    assert (torn.line, torn.fragmented, slack.fragmented, short.fragmented) == (9, True, False, False)
    assert math.isclose(torn.asked, 2 * GIB)


@pytest.mark.parametrize(
    ("pools", "fragmented"), [("", True), (" with 1.20 GiB allocated in private pools (e.g., CUDA Graphs),", True),
                              (" with 1.60 GiB allocated in private pools (e.g., CUDA Graphs),", False)],
)  # fmt: skip
def test_private_pools_of_graphs_serve_no_request(pools: str, fragmented: bool) -> None:
    text = (
        "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.00 GiB is "
        f"free. Of the allocated memory 18.00 GiB is allocated by PyTorch,{pools} and 3.00 GiB is reserved by PyTorch "
        "but unallocated."
    )
    error = allocator(Snapshot(taken_at="", log=Known(Log("journal", RunLines((LogLine(1, text),))), "journal"))).error
    assert error is not None
    assert error.fragmented is fragmented


def test_the_wording_of_torch_2_0_is_read() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.69 GiB total capacity; 18.00 GiB already allocated; "
        "700.00 MiB free; 21.50 GiB reserved in total by PyTorch)"
    )
    error = allocator(Snapshot(taken_at="", log=Known(Log("journal", RunLines((LogLine(1, text),))), "journal"))).error
    assert error is not None
    assert (error.unallocated, error.fragmented) == (round(3.5 * GIB), True)


def test_what_torch_does_not_say_is_unknown_and_no_shortage() -> None:
    text = "HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 15.92 GiB"
    shot = Snapshot(taken_at="", log=Known(Log("journal", RunLines((LogLine(3, text),))), "journal"))
    use = kv_use(Metrics("u", (Scrape(1.0, ()),)), max_model_len=None, version=None)
    assert "asked 1.50 GiB, the message does not say how much torch held unused" in report(
        use, allocator(shot), "human", Subject()
    )


def test_who_holds_the_cards() -> None:
    card = Gpu(
        0, "NVIDIA L4", total_bytes=24 * GIB, free_bytes=2 * GIB,
        processes=(GpuProcess(1, 20 * GIB, unit="vllm.service"), GpuProcess(2, 2 * GIB), GpuProcess(3, None)),
    )  # fmt: skip
    shot = Snapshot(taken_at="", subject=Subject(unit="vllm.service"), gpus=Known((card,), "NVML"))
    (held,) = allocator(shot).cards
    assert (held.ours, held.others) == (20 * GIB, None)
