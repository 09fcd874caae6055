"""Input that no program should be given: it costs bounded memory, has an answer, and the answer is no wrong ok."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.gather.test_logfile import DEATH, HEAD
from vllm_doctor.gather import bounded, journal
from vllm_doctor.gather.logfile import read_logs, text_lines
from vllm_doctor.knowledge import serving
from vllm_doctor.log.read import pieces
from vllm_doctor.records.host import Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

MIB = 1 << 20
LONG = 500 * MIB
# An interpreter with the doctor in it maps about 250 MiB; a line that is held whole would need 500 more.
ALLOWED = 600 * MIB
BEGIN = HEAD.format(pid=1, core=2, version="0.11.0").encode()
END = b"\n" + DEATH.format(pid=1, core=2).encode()


def doctor(*words: str, stdin: Iterable[bytes] = ()) -> tuple[int, dict[str, object], str]:
    """The command in an address space that a line of 500 MiB does not fit into."""
    entry = "from vllm_doctor.cli.main import entry; entry()"
    command = [sys.executable, "-c", entry, "diagnose", "--format", "json", *words]
    with subprocess.Popen(
        ["sh", "-c", f'ulimit -v {ALLOWED >> 10}; exec "$@"', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        for block in stdin:
            child.stdin.write(block)
        out, err = child.communicate()
    return child.returncode, json.loads(out) if out else {}, err.decode()


def in_a_file(folder: Path) -> list[str]:
    path = folder / "log"
    with path.open("wb") as file:
        file.write(BEGIN + b"x" * MIB)
        file.seek(LONG)  # a hole: the line is there, and the disk is spared
        file.write(b"x" * MIB + END)
    return ["--log", str(path)]


def in_a_compressed_file(folder: Path) -> list[str]:
    path = folder / "log.gz"
    block = gzip.compress(b"x" * MIB, 1)
    with path.open("wb") as file:
        file.write(gzip.compress(BEGIN) + block * (LONG // MIB) + gzip.compress(END))
    return ["--log", str(path)]


@pytest.mark.parametrize("given", [in_a_file, in_a_compressed_file])
def test_a_line_of_500_mib_is_not_held(tmp_path: Path, given: Callable[[Path], list[str]]) -> None:
    code, answer, err = doctor(*given(tmp_path))
    assert (code, answer["verdict"]) == (1, "finding"), err


def test_a_line_of_500_mib_on_standard_input_is_not_held() -> None:
    def stream() -> Iterator[bytes]:
        yield BEGIN
        for _ in range(LONG // MIB):
            yield b"x" * MIB
        yield END

    code, answer, err = doctor("--log", "-", stdin=stream())
    assert (code, answer["verdict"]) == (1, "finding"), err


@pytest.mark.parametrize("option", ["--kernel-log", "--metrics", "--nvidia-smi", "--model-config"])
def test_a_file_beside_the_log_may_be_of_any_size(tmp_path: Path, option: str) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(LONG)
    log = tmp_path / "log"
    log.write_bytes(BEGIN)
    code, answer, err = doctor("--log", str(log), option, str(path))
    assert code in {0, 3}, err
    assert answer["verdict"] != "finding"


@pytest.mark.parametrize("option", ["--kernel-log", "--metrics", "--nvidia-smi", "--model-config"])
def test_a_device_is_no_file_and_is_not_read_for_ever(option: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(BEGIN)
    _, answer, err = doctor("--log", str(log), option, "/dev/zero")
    assert "a device" in json.dumps(answer["unknown"]), err


def test_a_clock_that_jumps_changes_no_verdict(tmp_path: Path) -> None:
    """Order in the log counts, not the time that a line gives."""
    path = tmp_path / "log"
    text = (BEGIN + END).decode()
    path.write_text(text)
    straight = diagnose(Snapshot(taken_at="", log=read_logs([str(path)])))
    lines = text.splitlines()
    jumping = [line.replace("05-21", f"{1 + n % 12:02}-{28 - n % 27:02}") for n, line in enumerate(lines)]
    assert jumping != lines
    path.write_text("\n".join(jumping) + "\n")
    jumped = diagnose(Snapshot(taken_at="", log=read_logs([str(path)])))
    assert [(f.code, f.phase) for f in jumped.findings] == [(f.code, f.phase) for f in straight.findings]


@pytest.mark.parametrize("after", [1000.0, 900.0])
def test_a_clock_that_jumps_between_two_scrapes_gives_no_rate(after: float) -> None:
    scrapes = tuple(
        Scrape(at, (Sample("vllm:num_preemptions_total", {}, value),)) for at, value in ((1000.0, 5.0), (after, 50.0))
    )
    assert serving.rate(Metrics("", scrapes), serving.PREEMPTIONS) is None


@pytest.mark.parametrize("stamp", ["", "-5", "\u0663", "9" * 17, "9" * 400, "soon"])
def test_a_time_that_cannot_be_is_a_time_all_the_same(stamp: str) -> None:
    assert journal.when({"__REALTIME_TIMESTAMP": stamp}).endswith("+00:00")


def test_only_one_option_may_ask_for_standard_input(tmp_path: Path) -> None:
    code, _, err = doctor("--log", "-", "--kernel-log", "-")
    assert code == 2
    assert "--log - and --kernel-log -" in err


def test_the_kernel_log_may_come_from_standard_input() -> None:
    xid = b"[  1.5] NVRM: Xid (PCI:0000:17:00): 79, pid=7, name=VLLM::EngineCor, GPU has fallen off the bus.\n"
    code, answer, err = doctor("--kernel-log", "-", stdin=[xid])
    assert (code, answer["phase"]) == (1, "gpu-fault"), err


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_log_may_come_through_a_pipe_packed_or_not(tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(packed(BEGIN + END))
    code, answer, err = doctor("--log", "-", stdin=[path.read_bytes()])
    assert (code, answer["verdict"]) == (1, "finding"), err
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'cat "$0" > "$1"', path, pipe]):
        code, answer, err = doctor("--log", str(pipe))
    assert (code, answer["verdict"]) == (1, "finding"), err


def learnt(path: Path) -> list[str]:
    lines = text_lines(str(path))
    assert not isinstance(lines, Unknown), lines.reason
    return [line.rstrip("\r") for line in lines if line]


@pytest.mark.parametrize(
    "packed", [bytes, gzip.compress, bz2.compress, lzma.compress, lambda text: text.decode().encode("utf-16")]
)
def test_what_a_start_logged_is_learnt_from_any_file_that_a_log_is_read_from(
    tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(packed(b"one\ntwo \xc3\xa9\n"))
    assert learnt(path) == ["one", "two \u00e9"]


def test_utf_16_whose_characters_are_torn_between_two_reads_is_read() -> None:
    text = BEGIN.decode().encode("utf-16")
    read = pieces.stream(text[at : at + 333] for at in range(0, len(text), 333))
    assert isinstance(read, pieces.Read)
    assert read.pieces[0].data.decode().lstrip("\ufeff") == BEGIN.decode()


def test_an_xz_that_asks_for_gigabytes_is_broken_not_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "log.xz"
    path.write_bytes(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]))
    read = text_lines(str(path))
    assert read == [] or isinstance(read, Unknown)


def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "TOLD_S", 0.05)
    monkeypatch.setattr(bounded, "WRITER_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = read_logs([str(pipe)])
    assert isinstance(read, Unknown)
    assert "nobody wrote" in read.reason


def test_carriage_returns_without_number_are_no_progress_bar(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(BEGIN + b"\r" + b"a\r" * 400_000 + END)
    read = read_logs([str(path)])
    assert isinstance(read, Known)
    assert len(read.value.last.lines) < 70_000
    assert any("left out" in line.text for line in read.value.last.lines)
