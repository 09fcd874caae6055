"""Where the GPUs' memory went: each term as it was measured, beside the plan; what was not seen says so."""

from pathlib import Path

import msgspec
import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.metrics import parse
from vllm_doctor.launch.command import parse_line
from vllm_doctor.records.finding import Diagnosis, MemoryTerm, Subject
from vllm_doctor.records.host import Gpu, GpuProcess, Metrics, Scrape
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.render import prometheus
from vllm_doctor.render.human import text
from vllm_doctor.rules.engine import diagnose

GIB = 1 << 30
UNIT = "vllm@main.service"
START = """\
(APIServer pid=90) INFO 11-23 04:00:00 [api_server.py:1896] vLLM API server version 0.11.0
(EngineCore_DP0 pid=93) INFO 11-23 04:00:20 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 8.1 seconds
(EngineCore_DP0 pid=93) INFO 11-23 04:00:40 [gpu_worker.py:298] Available KV cache memory: 51.12 GiB
(EngineCore_DP0 pid=93) INFO 11-23 04:00:58 [gpu_model_runner.py:3480] Graph capturing finished in 9 secs, took 0.62 GiB
(APIServer pid=90) INFO:     Application startup complete.
"""
METRICS = """\
vllm:cache_config_info{block_size="16",num_gpu_blocks="26000",engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
"""
LAUNCH = "vllm serve m --max-model-len 32768 --gpu-memory-utilization 0.9"


@pytest.fixture
def shot(tmp_path: Path) -> Snapshot:
    """An H100 with a served Llama 8B and a stranger's process."""
    log = tmp_path / "log"
    log.write_text(START)
    held = (GpuProcess(93, 70 * GIB, unit=UNIT), GpuProcess(7, 2 * GIB, unit="other.service"))
    card = Gpu(
        0,
        "NVIDIA H100 80GB HBM3",
        total_bytes=81559 << 20,
        reserved_bytes=471 << 20,
        free_bytes=7 * GIB,
        processes=held,
    )
    return Snapshot(
        taken_at="",
        subject=Subject(unit=UNIT),
        log=read_logs([str(log)]),
        launch=Known(parse_line(LAUNCH), "test"),
        version=Known("0.11.0", "test"),
        gpus=Known((card, Gpu(1, card.name, total_bytes=card.total_bytes, free_bytes=79 * GIB)), "test"),
        metrics=Known(Metrics("u", (Scrape(0.0, parse(METRICS)),)), "test"),
        model_config=Known(LLAMA_8B, "test"),
        live=True,
    )


def terms(told: Diagnosis) -> dict[str, MemoryTerm]:
    assert told.memory_use is not None
    return {term.name: term for term in told.memory_use.terms}


def test_each_term_is_told_as_measured_and_as_planned(shot: Snapshot) -> None:
    got = terms(diagnose(shot))
    assert got["weights"] == MemoryTerm("weights", 14.99, 14.99, "the log")
    assert (got["KV cache"].measured, got["KV cache"].source) == (51.12, "the log")
    assert got["KV cache"].planned == pytest.approx(51.4, abs=0.5)  # and not the logged figure
    assert got["CUDA graphs"].measured == 0.62
    # 0.9 x 79.19 - 14.99 - 51.12
    assert got["both of these together"].measured == pytest.approx(5.16, abs=0.02)
    assert got["KV cache in use now"].measured == pytest.approx(12.78)
    # 70 - 14.99 - 0.62 - 51.12
    assert got["contexts, and what torch keeps"].measured == 3.27


def test_a_term_that_nothing_tells_is_not_seen_and_no_nought(shot: Snapshot) -> None:
    got = terms(diagnose(shot))
    assert got["memory outside torch"].measured is None
    assert got["memory outside torch"].source.startswith("not seen: this release logs it at VLLM_LOGGING_LEVEL=DEBUG")
    blind = msgspec.structs.replace(shot, log=Unknown("gone"), metrics=Unknown("gone"))
    got = terms(diagnose(blind))
    assert {term.measured for term in got.values()} == {None}
    assert got["weights"].source == "not seen: no log of this start was read"
    assert got["weights"].planned == 14.99


def test_who_holds_the_servers_gpus_and_no_others(shot: Snapshot) -> None:
    told = diagnose(shot).memory_use
    assert told is not None
    (gpu,) = told.gpus
    assert (gpu.gpu, gpu.total, gpu.own, gpu.others, gpu.free) == ("0", 79.19, 70.0, 2.0, 7.0)


def test_processes_whose_memory_is_not_told_are_not_seen(shot: Snapshot) -> None:
    hidden = Gpu(0, "NVIDIA H100 80GB HBM3", total_bytes=81559 << 20, free_bytes=GIB, processes=(GpuProcess(93, None),))
    got = diagnose(msgspec.structs.replace(shot, gpus=Known((hidden,), "test")))
    assert got.memory_use is not None
    assert got.memory_use.gpus[0].own is None
    assert terms(got)["contexts, and what torch keeps"].source.startswith("not seen: NVML tells no memory")


def test_a_server_that_holds_less_than_its_terms_sleeps_or_is_not_listed_whole(shot: Snapshot) -> None:
    asleep = Gpu(
        0, "NVIDIA H100 80GB HBM3", total_bytes=81559 << 20, free_bytes=GIB, processes=(GpuProcess(93, GIB, unit=UNIT),)
    )
    rest = terms(diagnose(msgspec.structs.replace(shot, gpus=Known((asleep,), "test"))))[
        "contexts, and what torch keeps"
    ]
    assert rest.measured is None
    assert "the server sleeps" in rest.source


def test_blocks_of_the_metrics_stand_in_for_a_log_that_is_gone(shot: Snapshot) -> None:
    pool = terms(diagnose(msgspec.structs.replace(shot, log=Unknown("gone"))))["KV cache"]
    assert pool.measured == pytest.approx(26000 * 2 / 1024, abs=0.01)  # 16 tokens x 128 KiB a block
    assert pool.source == "/metrics: 26000 blocks, of 2.00 MiB as planned"


def test_without_a_plan_the_measured_stands_alone_and_what_lacks_is_named(shot: Snapshot) -> None:
    told = diagnose(msgspec.structs.replace(shot, model_config=Unknown("no file")))
    assert terms(told)["weights"] == MemoryTerm("weights", 14.99, None, "the log")
    assert told.memory_use is not None
    assert told.memory_use.why_no_plan == "the model's config.json: --model-config FILE"


def test_of_several_ranks_the_largest_term_and_the_smallest_pool_count(shot: Snapshot, tmp_path: Path) -> None:
    log = tmp_path / "ranks"
    log.write_text(
        "".join(
            f"(Worker_TP{rank} pid=9{rank}) INFO 11-23 04:00:20 [m.py:1] Model loading took {weights} GiB "
            f"and 8.1 seconds\n(Worker_TP{rank} pid=9{rank}) INFO 11-23 04:00:40 [gpu_worker.py:298] "
            f"Available KV cache memory: {pool} GiB\n"
            for rank, (weights, pool) in enumerate(((7.51, 58.1), (7.66, 57.9)))
        )
    )
    got = terms(diagnose(msgspec.structs.replace(shot, log=read_logs([str(log)]))))
    assert (got["weights"].measured, got["weights"].source) == (7.66, "the log, the largest of 2 ranks")
    assert (got["KV cache"].measured, got["KV cache"].source) == (57.9, "the log, the smallest of 2 ranks")


def test_a_log_alone_is_asked_for_it(shot: Snapshot) -> None:
    dead = msgspec.structs.replace(shot, live=False)
    assert diagnose(dead).memory_use is None
    assert terms(diagnose(dead, memory=True))["weights"].measured == 14.99


def test_people_see_it_on_request_and_prometheus_always(shot: Snapshot) -> None:
    told = diagnose(shot)
    assert "Where the GPU's memory went" not in text(told)
    page = text(told, memory=True)
    assert "weights" in page.partition("Where the GPU's memory went")[2]
    assert "GPU 0: 70.00 of 79.19 GiB held by this server, 2.00 by others, 7.00 free (NVML)" in page
    rows = prometheus.text([told], 1.0)
    assert f'vllm_memory_measured_bytes{{term="KV cache",unit="{UNIT}"}} {51.12 * GIB:.12g}'[:60] in rows
    assert 'term="memory outside torch"' not in "".join(
        line for line in rows.splitlines() if line.startswith("vllm_memory_measured")
    )
