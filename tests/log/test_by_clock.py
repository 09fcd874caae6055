"""What processes wrote one after another is read in the order of their clocks, where these tell one."""

from pathlib import Path

from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.read.by_clock import in_order_of_time
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

WATCHDOG = (
    "[rank0]:[E314 10:01:01.222 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for 600011 milliseconds "
    "before timing out."
)
STATS = (
    "Engine 000: Avg prompt throughput: 20.0 tokens/s, Avg generation throughput: 12.0 tokens/s, Running: 4 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 1.0%"
)
NO_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.25 GiB "
    "of which 1.10 GiB is free."
)
LEADER = [
    "(EngineCore_DP0 pid=101) INFO 03-14 09:40:21 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: x",
    "(APIServer pid=1) INFO:     Application startup complete.",
    f"(APIServer pid=1) INFO 03-14 09:50:55 [loggers.py:127] {STATS}",
    f"(Worker_TP0 pid=301) {WATCHDOG}",
]
OTHER_RANK = [
    "(RayWorkerWrapper pid=77, ip=10.0.0.2) INFO 03-14 09:40:31 [gpu_model_runner.py:2338] Starting to load model /m",
    f"(RayWorkerWrapper pid=77, ip=10.0.0.2) ERROR 03-14 09:51:01 [worker_base.py:301] {NO_MEMORY}",
]


def lines_of(texts: list[str]) -> list[LogLine]:
    return [*log_of_lines(texts, "x").last.lines]


def in_time(*files: list[str]) -> list[str] | None:
    found = in_order_of_time([lines_of(texts) for texts in files])
    return None if found is None else [line.text for line in found]


def code_of(folder: Path, *files: list[str]) -> str:
    names = [folder / f"{number}.log" for number in range(len(files))]
    for name, texts in zip(names, files, strict=True):
        name.write_text("\n".join(texts), encoding="utf-8")
    read = read_logs([str(name) for name in names])
    assert isinstance(read, Known)
    return diagnose(Snapshot(taken_at="2026-01-01", log=read)).findings[0].code


def test_the_rank_that_failed_first_is_the_cause_in_whatever_order_the_files_are_given(tmp_path: Path) -> None:
    assert code_of(tmp_path, LEADER, OTHER_RANK) == "VD201"
    assert code_of(tmp_path, OTHER_RANK, LEADER) == "VD201"


def test_pods_whose_logs_stand_one_after_another(tmp_path: Path) -> None:
    pods = [f"[pod/q-0/vllm] {text}" for text in LEADER] + [f"[pod/q-0-1/vllm] {text}" for text in OTHER_RANK]
    assert code_of(tmp_path, pods) == "VD201"


def test_a_line_without_a_time_stays_below_its_own() -> None:
    assert in_time(
        ["(A pid=1) INFO 03-14 09:11:09 [a.py:1] late", "its call"], ["INFO 03-14 09:11:01 [b.py:1] early"]
    ) == [
        "early",
        "late",
        "its call",
    ]


def test_what_uvicorn_writes_without_a_time_comes_before_the_next_line() -> None:
    server = ["INFO 03-14 09:11:01 [a.py:1] begins", "INFO:     Started", "INFO 03-14 09:11:30 [a.py:1] serves"]
    assert in_time(server, ["(W pid=2) INFO 03-14 09:11:10 [b.py:1] loads"]) == ["begins", "loads", "Started", "serves"]


def test_lines_in_order_are_left_alone() -> None:
    assert in_time(["INFO 03-14 09:11:01 [a.py:1] one"], ["INFO 03-14 09:11:09 [a.py:1] two"]) is None


def test_a_line_that_comes_some_seconds_late_is_no_other_part() -> None:
    late = ["(A pid=1) INFO 03-14 09:11:09 [a.py:1] one", "(B pid=2) INFO 03-14 09:11:05 [a.py:1] two"]
    assert in_time(late) is None


def test_a_clock_of_one_process_that_goes_back_tells_no_order() -> None:
    again = ["(A pid=1) INFO 03-14 09:11:09 [a.py:1] one", "(A pid=1) INFO 03-14 08:00:00 [a.py:1] two"]
    assert in_time(again) is None


def test_two_servers_are_told_apart_and_not_mixed() -> None:
    def server(pid: int, hour: int) -> list[str]:
        return [
            f"(APIServer pid={pid}) INFO 03-14 {hour:02d}:00:00 [api_server.py:1] vLLM API server version 0.11.0",
            f"(APIServer pid={pid}) INFO 03-14 {hour + 2:02d}:00:00 [loggers.py:1] serves",
        ]

    assert in_time(server(1, 9), server(2, 8)) is None


def test_the_turn_of_a_year_is_no_step_back() -> None:
    assert in_time(["(A pid=1) INFO 12-31 23:59:50 [a.py:1] x", "(B pid=2) INFO 01-01 00:00:10 [a.py:1] y"]) is None
