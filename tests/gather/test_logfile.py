"""Logs as they come: compressed, rotated, UTF-16, huge, damaged, of another program: no traceback, no wrong ok."""

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.log.read.pieces import SMALL
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

HEAD = (
    "(APIServer pid={pid}) INFO 05-21 10:11:12 [api_server.py:1] vLLM API server version {version}\n"
    "(APIServer pid={pid}) INFO 05-21 10:11:12 [utils.py:1] non-default args: {{'model': 'm', 'max_model_len': 4096}}\n"
    "(EngineCore pid={core}) INFO 05-21 10:11:13 [core.py:1] Initializing a V1 LLM engine (v{version}) with config: "
    "model='m'\n"
    "(APIServer pid={pid}) INFO:     Application startup complete.\n"
)
SERVED = '(APIServer pid={pid}) INFO:     10.0.0.7:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
STATS = (
    "(APIServer pid={pid}) INFO 05-21 10:11:14 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 9.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
)
DEATH = (
    "(EngineCore pid={core}) ERROR 05-21 10:11:15 [core.py:9] EngineCore encountered a fatal error.\n"
    "(EngineCore pid={core}) ERROR 05-21 10:11:15 [core.py:9] Traceback (most recent call last):\n"
    '(EngineCore pid={core}) ERROR 05-21 10:11:15 [core.py:9]   File "/x/vllm/v1/engine/core.py", line 1, '
    "in run_busy_loop\n"
    "(EngineCore pid={core}) ERROR 05-21 10:11:15 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.00 GiB is free. "
    "Including non-PyTorch memory, this process has 78.10 GiB memory in use. Of the allocated memory "
    "70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by "
    "PyTorch but unallocated.\n"
)


def log_of(path: Path) -> Log:
    reading = read_logs([str(path)])
    assert isinstance(reading, Known), reading
    return reading.value


def verdict_of(*paths: Path) -> Verdict:
    return diagnose(Snapshot(taken_at="", log=read_logs([str(p) for p in paths]))).verdict


def life(pid: int, version: str = "0.11.0", requests: int = 3, *, dies: bool = False) -> str:
    names = {"pid": pid, "core": pid + 1, "version": version}
    middle = (SERVED * 5 + STATS).format(**names) * requests
    return HEAD.format(**names) + middle + (DEATH.format(**names) if dies else "")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_compressed(tmp_path: Path, pack) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(life(100, dies=True).encode()))
    assert verdict_of(path) is Verdict.FINDING


def test_a_compressed_log_that_is_cut_short_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(life(100, requests=900).encode())[:-200])
    assert any("stopped early" in note for note in log_of(path).notes)


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_characters_of_two_or_four_bytes(tmp_path: Path, codec: str, dies: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(life(100, dies=dies).encode(codec))
    assert verdict_of(path) is (Verdict.FINDING if dies else Verdict.OK)


@pytest.mark.parametrize("dies", [True, False])
def test_tabs_in_the_place_of_all_blanks(tmp_path: Path, dies: bool) -> None:
    path = tmp_path / "log"
    path.write_text(life(100, dies=dies).replace(" ", "\t"))
    assert verdict_of(path) is (Verdict.FINDING if dies else Verdict.OK)


@pytest.mark.parametrize(("stops", "verdict"), [(True, Verdict.OK), (False, Verdict.UNKNOWN)])
def test_a_record_of_a_terminal_is_left_by_its_person(tmp_path: Path, stops: bool, verdict: Verdict) -> None:
    path = tmp_path / "typescript"
    stop = "INFO:     Shutting down\nINFO:     Application shutdown complete.\nINFO:     Finished server process [1]\n"
    told = life(100) + stop * stops + 'ops@gpu7:~$ exit\nexit\n\nScript done on 2026-11-20 [COMMAND_EXIT_CODE="0"]\n'
    path.write_bytes(f"Script started on 2026-11-20\n{told}".replace("\n", "\r\n").encode())
    assert verdict_of(path) is verdict


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbf" + life(100, dies=True).replace("\n", "\r\n").encode())
    assert verdict_of(path) is Verdict.FINDING


def test_rotated_files_are_put_in_order(tmp_path: Path) -> None:
    (tmp_path / "vllm.log.2.gz").write_bytes(gzip.compress(life(100).encode()))
    (tmp_path / "vllm.log.1").write_text(life(200))
    (tmp_path / "vllm.log").write_text(life(300, "0.12.0"))
    names = [str(tmp_path / n) for n in ("vllm.log", "vllm.log.1", "vllm.log.2.gz")]
    reading = read_logs(names)
    assert isinstance(reading, Known)
    assert reading.value.earlier_runs == 2
    assert "0.12.0" in reading.value.last.lines[0].text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\n\n\n", "empty"),
        (bytes(range(256)) * 400, "binary"),
        (b"\x7fELF" + b"\x00" * 400, "ELF"),
        (b"PK\x03\x04" + b"x" * 100, "zip"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 100, "zstandard"),
    ],
)
def test_what_is_no_log_is_unknown_with_its_reason(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    reading = read_logs([str(path)])
    assert isinstance(reading, Unknown)
    assert why in reading.reason
    assert verdict_of(path) is Verdict.UNKNOWN


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_opened_is_unknown(tmp_path: Path, name: str) -> None:
    assert isinstance(read_logs([str(tmp_path / name)]), Unknown)


def test_a_log_of_another_program_is_not_ok(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("10.0.0.7 - - [21/May/2026] GET / 200\n" * 50)
    assert verdict_of(path) is Verdict.UNKNOWN


def test_invalid_utf_8_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(life(100).encode() + b"\xff\xfe\xfa broken \x80\n" + DEATH.format(pid=100, core=101).encode())
    assert verdict_of(path) is Verdict.FINDING


def test_a_large_log_of_one_life_finds_its_head(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(life(100, "0.19.0", requests=60_000, dies=True))
    log = log_of(path)
    assert path.stat().st_size > 4 * SMALL
    assert log.last.complete_head
    assert log.last.skipped_bytes > SMALL
    assert "0.19.0" in log.last.lines[0].text
    assert verdict_of(path) is Verdict.FINDING


def test_a_large_log_judges_the_last_of_its_lives(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(life(100, "0.18.0", 20_000, dies=True) + life(300, "0.20.0", 40_000) + life(500, "0.21.0", 30_000))
    log = log_of(path)
    assert "0.21.0" in log.last.lines[0].text
    assert verdict_of(path) is Verdict.OK


def test_a_large_log_whose_last_life_is_short(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(life(100, "0.18.0", 60_000) + life(300, "0.20.0", 2, dies=True))
    assert "0.20.0" in log_of(path).last.lines[0].text
    assert verdict_of(path) is Verdict.FINDING


def test_a_large_log_without_any_start_says_that_it_was_not_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(STATS.format(pid=1).replace("(APIServer pid=1) ", "") * 60_000)
    log = log_of(path)
    assert not log.last.complete_head
    assert any("start of this run" in note for note in log.notes)


def test_a_server_that_outlives_its_engine_for_days_still_shows_what_failed(tmp_path: Path) -> None:
    relayed = (
        "(APIServer pid=100) ERROR 05-21 10:11:15 [serving_chat.py:1] Traceback (most recent call last):\n"
        "(APIServer pid=100) ERROR 05-21 10:11:15 [serving_chat.py:1] "
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
        "encountered an issue. See stack trace (above) for the root cause.\n"
        '(APIServer pid=100) INFO:     10.0.0.7:1 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
    )
    path = tmp_path / "log"
    path.write_text(life(100, "0.19.0", requests=30_000, dies=True) + relayed * 40_000)
    answer = diagnose(Snapshot(taken_at="", log=read_logs([str(path)])))
    assert path.stat().st_size > 4 * SMALL
    assert answer.findings[0].code == "VD201"


def test_memory_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(HEAD.format(pid=1, core=2, version="0.11.0").encode())
        for _ in range(100):
            file.write(b"x" * (1 << 20))  # one line of 100 MiB
        file.write(b"\n" + DEATH.format(pid=1, core=2).encode())
    tracemalloc.start()
    answer = verdict_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer is Verdict.FINDING
    assert peak < 40 << 20


QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIET
@given(content=st.binary(max_size=4000))
def test_any_bytes_give_an_answer_and_never_ok(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(content)
    assert verdict_of(path) is not Verdict.OK


@QUIET
@given(
    noise=st.lists(st.text(max_size=80), max_size=8),
    place=st.integers(min_value=0, max_value=200),
    cut=st.integers(min_value=0, max_value=3000),
)
def test_noise_and_cuts_never_break_the_reader(tmp_path: Path, noise: list[str], place: int, cut: int) -> None:
    lines = life(100, dies=True).split("\n")
    lines[place % len(lines) : place % len(lines)] = noise
    text = "\n".join(lines)
    path = tmp_path / "fuzz"
    path.write_text(text[: len(text) - cut % len(text)], encoding="utf-8", errors="replace")
    diagnose(Snapshot(taken_at="", log=read_logs([str(path)])))


@QUIET
@given(data=st.data())
def test_a_death_stays_a_finding_however_processes_interleave(tmp_path: Path, data: st.DataObject) -> None:
    """Lines of other processes between those of the traceback do not hide it."""
    other = [f"(Worker_TP{n % 3} pid=7{n}) INFO 05-21 10:11:15 [w.py:1] still here {n}" for n in range(30)]
    lines = DEATH.format(pid=100, core=101).strip().split("\n")
    for text in other:
        lines.insert(data.draw(st.integers(min_value=0, max_value=len(lines))), text)
    path = tmp_path / "fuzz"
    path.write_text(life(100) + "\n".join(lines) + "\n")
    assert verdict_of(path) is Verdict.FINDING


def test_a_program_that_speaks_of_vllm_is_not_vllm(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("INFO:     Application startup complete.\nproxy to vllm at http://127.0.0.1:8000\n" * 3)
    assert verdict_of(path) is Verdict.UNKNOWN
