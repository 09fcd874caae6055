"""Tars of a stranger, writers that are slow, and what is counted of a container: one step to each side of a bound."""

import os
import select
import tarfile
import time
from collections.abc import Iterator

import pytest

from vllm_doctor.gather import archive, bounded, bundle, inspected, live, procfs, release
from vllm_doctor.gather.systemd import Found
from vllm_doctor.records.host import Launch, Unit
from vllm_doctor.records.reading import Known


def _member(name: str, size: int, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    head = tarfile.TarInfo(name)
    head.size, head.type = size, kind
    return head.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % 512)


def _read(*members: bytes, wanted: int = 4, piece: int = 100) -> dict[str, bytes] | str:
    whole = b"".join(members)
    try:
        return archive.read_members((whole[at : at + piece] for at in range(0, len(whole), piece)), {"a": wanted})
    except archive.NoArchive as why:
        return str(why)


@pytest.mark.parametrize(
    ("member", "told"),
    [
        (_member("a", 4, b"1234"), {"a": b"1234"}),
        (_member("a", 5, b"12345"), "a in it has 5 bytes, which cannot be right: at most 4 are read"),
        (_member("a", 0, b""), {"a": b""}),
        (_member("a", -1, b""), "a in it has -1 bytes, which cannot be right: at most 4 are read"),
        (_member("b", 700, b"x" * 700) + _member("a", 2, b"12"), {"a": b"12"}),
        (_member("b", 512, b"x" * 512) + _member("a", 2, b"12"), {"a": b"12"}),
        (_member("x", 64 << 10, b"x" * (64 << 10), tarfile.XHDTYPE) + _member("a", 1, b"1"), {"a": b"1"}),
        (_member("x", (64 << 10) + 1, b"", tarfile.XHDTYPE),
         "x in it has 65537 bytes, which cannot be right: at most 65536 are read"),
        (_member("a", 0, b"", tarfile.SYMTYPE), "a in it is not an ordinary file"),
        (_member("a", 4, b"")[:512] + b"12", "a in it is cut short"),
        (_member("a", 4, b"")[:511], {}),
        (b"\0" * 1024 + _member("a", 4, b"1234"), {}),
    ],
)  # fmt: skip
def test_of_a_tar_the_wanted_files_are_read_up_to_their_size(member: bytes, told: object) -> None:
    assert _read(member) == told
    assert _read(member, piece=37) == told


def test_a_stream_is_taken_up_to_what_it_may_unpack_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, kept in ((2048, True), (2047, False)):
        monkeypatch.setattr(archive, "MAX_UNPACKED", most)
        told = _read(_member("a", 4, b"1234") + b"\0" * 1024, piece=512)
        assert told == {"a": b"1234"}, most  # the empty block that ends it is the last that is taken
        long = _read(_member("b", 512, b"x" * 512), _member("a", 4, b"1234"))
        assert (long == {"a": b"1234"}) is kept


def test_values_of_a_bundle_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_VALUES", 3)
    counted: list[int] = []
    found = bundle._VALUES

    class Counting:
        def finditer(self, data: bytes) -> Iterator[object]:
            counted.append(len(data))
            return found.finditer(data)

    monkeypatch.setattr(bundle, "_VALUES", Counting())
    for data, looked_at in ((b"[{,", False), (b"[{,[", True)):
        counted.clear()
        with pytest.raises(archive.NoArchive):
            bundle._snapshots(data)
        assert bool(counted) is looked_at


class _Pipe:
    """A pipe by the clock of this test: what each read gives, and whether anybody had written then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *reads: tuple[bool, bytes | None]) -> None:
        self.reads, self.now, self.waits = list(reads), 0.0, list[float]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(select, "select", self._select)
        monkeypatch.setattr(os, "read", self._read)

    def _select(self, handles: list[int], _: object, __: object, wait: float) -> tuple[list[int], list[int], list[int]]:
        self.waits.append(wait)
        ready = self.reads[0][0] if self.reads else False
        self.now += 0.0 if ready else wait
        return (handles if ready else []), [], []

    def _read(self, _: int, __: int) -> bytes:
        block = self.reads.pop(0)[1] if self.reads else None
        if block is None:
            raise BlockingIOError
        return block


def test_a_pipe_that_nobody_has_opened_is_waited_for_and_one_whose_writer_left_is_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = _Pipe(monkeypatch, (False, b""), (False, b""), (True, b"abc"), (True, b""), (False, b""))
    source = bounded.Opened(99, "/tmp/p", size=None)
    assert source.read1(9) == b"abc"
    assert pipe.waits == [bounded.TOLD_S, 1.0, 1.0]
    assert (source.read1(9), source.read1(9)) == (b"", b"")
    assert source._come == 3


@pytest.mark.parametrize(
    ("block", "why", "after"),
    [
        (b"", "nobody wrote to this pipe within 10 s", 11.0),
        (None, "its writer was silent for 600 s", 601.0),
    ],
)
def test_a_writer_that_does_not_come_is_given_up(
    monkeypatch: pytest.MonkeyPatch, block: bytes | None, why: str, after: float
) -> None:
    pipe = _Pipe(monkeypatch, *[(False, block)] * 700)
    with pytest.raises(TimeoutError, match=why):
        bounded.Opened(99, "/tmp/p", size=None).read1(9)
    assert pipe.now == after


def test_who_waits_at_a_terminal_is_told_once_how_much_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _Pipe(monkeypatch, (True, b"x" * 3000), (False, None), (False, None), (False, None), (True, b"y"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    source = bounded.Opened(99, "/tmp/p", size=None)
    assert source.read1(3000) == b"x" * 3000
    assert source.read1(9) == b"y"
    told = capsys.readouterr().err
    assert told.count("reading /tmp/p, 2 KiB so far") == told.count("vllm-doctor") == 1


@pytest.mark.parametrize(
    ("host", "gpus"),
    [
        ({"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]}, -1),
        ({"DeviceRequests": [{"Count": 2, "Capabilities": [["gpu"]]}, {"Count": 1, "Capabilities": [["gpu"]]}]}, 3),
        ({"DeviceRequests": [{"Count": 0, "Capabilities": [["gpu"]]}]}, None),
        ({"DeviceRequests": [{"Count": 0, "Capabilities": [["gpu"]], "DeviceIDs": ["0", "3"]}]}, 2),
        ({"DeviceRequests": [{"Count": 9, "Capabilities": [["tpu"]]}], "Runtime": "runc"}, 0),
        ({"DeviceRequests": [], "Runtime": "nvidia"}, None),
        ({"DeviceRequests": [], "Privileged": True}, None),
        ({"Devices": [{"PathOnHost": f"/dev/nvidia{n}"} for n in range(2)]}, 2),
        ({}, None),
    ],
)
def test_how_many_gpus_a_container_was_given(host: dict[str, object], gpus: int | None) -> None:
    assert inspected._gpus({"HostConfig": host}) == gpus


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({"Test": ["CMD", "curl", "x"]}, (0.0, 30.0, 30.0, 3, "curl x")),
        ({"Test": ["CMD", "curl"], "StartPeriod": 10**9, "Interval": 2 * 10**9, "Timeout": 3 * 10**9, "Retries": 1},
         (1.0, 2.0, 3.0, 1, "curl")),
        ({"Test": ["CMD", "a"], "Interval": 0, "Timeout": 0, "Retries": 0}, (0.0, 30.0, 30.0, 3, "a")),
        ({"Test": ["NONE"]}, None),
        ({"Test": ["CMD", "NONE"]}, (0.0, 30.0, 30.0, 3, "NONE")),
        ({"Test": []}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_health_check_has_the_runtime_s_defaults(check: dict[str, object], told: tuple[object, ...] | None) -> None:
    got = inspected._checks({"Config": {"Healthcheck": check}})
    assert [tuple(getattr(one, name) for name in one.__struct_fields__[1:6]) for one in got] == ([told] if told else [])


@pytest.mark.parametrize(
    ("running", "unit", "argv", "source"),
    [
        (("python3", "/v/vllm", "serve", "m"), ("/v/vllm", "serve", "m"), ("/v/vllm", "serve", "m"), "/proc/7/cmdline"),
        (("/v/vllm", "serve", "m"), ("/v/vllm", "serve", "m"), ("/v/vllm", "serve", "m"), "/proc/7/cmdline"),
        (("/v/vllm", "serve", "n"), ("/v/vllm", "serve", "m"), ("/v/vllm", "serve", "n"), "/proc/7/cmdline"),
        (("sleep", "9"), ("/v/vllm", "serve", "m"), ("/v/vllm", "serve", "m"), "ExecStart of v.service"),
        (("/v/vllm", "serve", "n"), (), ("/v/vllm", "serve", "n"), "/proc/7/cmdline"),
    ],
)
def test_the_running_process_s_own_words_are_the_launch(
    monkeypatch: pytest.MonkeyPatch,
    running: tuple[str, ...],
    unit: tuple[str, ...],
    argv: tuple[str, ...],
    source: str,
) -> None:
    monkeypatch.setattr(procfs, "cmdline", lambda _: running)
    monkeypatch.setattr(release, "launch_environment", lambda _, env: env)
    told, env = live._launch(
        Found(Unit("v.service", "loaded", "active", "running", "success"), unit, {"A": "1"}, "", None), 7
    )
    assert isinstance(told, Known)
    assert isinstance(told.value, Launch)
    assert (told.value.argv, told.source, env) == (argv, source, {"A": "1"})
