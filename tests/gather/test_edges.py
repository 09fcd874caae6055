"""What is read of more than anybody needs: as much as the bound says, and nothing of what is one beyond it."""

import datetime
import json
import os
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from vllm_doctor.gather import (
    archive,
    bounded,
    containers,
    described,
    documents,
    environment_file,
    hub,
    inspected,
    journal,
    json_path,
    kernel,
    metrics,
    nvml,
    procfs,
    program,
    release,
    unit_files,
    weight_files,
)
from vllm_doctor.records.container import Container, End
from vllm_doctor.records.host import Unit
from vllm_doctor.records.reading import Known, Unknown

_KIB, _MIB = 1 << 10, 1 << 20


def _unit(tmp_path: Path, text: str) -> Unit:
    (tmp_path / "unit").write_text(text)
    return Unit("vllm.service", "loaded", "active", "running", "success", fragment=str(tmp_path / "unit"))


def _settings_of_lines(tmp_path: Path, count: int) -> int:
    return len(unit_files.settings(_unit(tmp_path, "Environment=A=1\n" * count)))


def _settings_of_bytes(tmp_path: Path, count: int) -> int:
    return len(unit_files.settings(_unit(tmp_path, "Environment=A=1\n".ljust(count, "#"))))


def _variables_of_bytes(tmp_path: Path, count: int) -> int:
    (tmp_path / "env").write_text("A=1\n".ljust(count, "#"))
    return len(environment_file.environment_files(f"{tmp_path}/env (ignore_errors=no)"))


def _config_of_bytes(tmp_path: Path, count: int) -> int:
    (tmp_path / "config.json").write_text('{"a": 1}'.ljust(count))
    return isinstance(release.read_model_config(str(tmp_path)), Known)


def _kernel_events(_: Path, count: int) -> int:
    return len(kernel.events(["NVRM: Xid 79"] * count))


def _kernel_letters(_: Path, count: int) -> int:
    return len(kernel.events(["NVRM: Xid".ljust(count, "x")])[0].text)


def _metric_letters(_: Path, count: int) -> int:
    line = 'vllm:x{a="'
    return not isinstance(metrics.parse(line.ljust(count - 4, "x") + '"} 1\n'), str)


def _of_members(_: Path, count: int) -> int:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in range(count):
            tar.addfile(tarfile.TarInfo(f"m{number}"))
    try:
        return len(archive.read_members(iter([out.getvalue()]), {f"m{number}": 9 for number in range(count)}))
    except archive.NoArchive:
        return 0


def _levels(_: Path, count: int) -> int:
    return isinstance(bounded.json_value(b"[" * count + b"1" + b"]" * count, "it", ""), Known)


def _digits(_: Path, count: int) -> int:
    return isinstance(bounded.json_value(b"1" * count, "it", ""), Known)


def _one_container() -> dict[str, object]:
    return {"Id": "a" * 64, "Name": "/x", "State": {"Status": "running"}, "Config": {"Image": "i"}}


def _inspected(_: Path, count: int) -> int:
    found = inspected.read(json.dumps([_one_container()] * count).encode(), "it")
    return len(found.value) if isinstance(found, Known) else 0


def _pods(_: Path, count: int) -> int:
    return len(described.pods("Name:  a\nNamespace:  b\n" * count))


@pytest.mark.parametrize(
    ("kept_of", "bound", "kept"),
    [
        (_settings_of_lines, 4000, 4000),
        (_settings_of_bytes, 256 * _KIB, 1),
        (_variables_of_bytes, 64 * _KIB, 1),
        (_config_of_bytes, 4 * _MIB, 1),
        (_kernel_events, 2000, 2000),
        (_kernel_letters, 2000, 2000),
        (_metric_letters, 8192, 1),
        (_of_members, 255, 255),
        (_levels, 64, 1),
        (_digits, 100, 1),
        (_inspected, 256, 256),
        (_pods, 64, 64),
    ],
)
def test_as_much_is_read_as_the_bound_says(
    tmp_path: Path, kept_of: Callable[[Path, int], int], bound: int, kept: int
) -> None:
    """One more is none at all where half of it would mislead, and the bound where the rest says no more."""
    assert kept_of(tmp_path, bound) == kept
    assert kept_of(tmp_path, bound + 1) == (kept if kept == bound and kept_of is not _of_members else 0)


def test_the_newest_kernel_lines_are_kept_with_their_numbers() -> None:
    found = kernel.events([f"NVRM: Xid {n}" for n in range(2001)])
    assert (found[0].text, found[0].number) == ("NVRM: Xid 1", 2)
    assert (found[-1].text, found[-1].number) == ("NVRM: Xid 2000", 2001)


@pytest.mark.parametrize(("line", "told"), [(20, True), (21, False)])
def test_who_renders_a_unit_is_said_at_its_beginning(tmp_path: Path, line: int, *, told: bool) -> None:
    assert unit_files.is_rendered(_unit(tmp_path, "\n" * (line - 1) + "# Rendered by role vllm\n")) is told


@pytest.mark.parametrize(("hours", "seconds", "current"), [(23, 3590, True), (24, 10, False)])
def test_a_container_that_ended_within_a_day_is_asked_about(hours: int, seconds: int, *, current: bool) -> None:
    ended = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(hours=hours, seconds=seconds)
    end = End(1, "", oom_killed=False, started_at=None, finished_at=ended.isoformat())
    gone = inspected.Inspected(Container("x", "docker", state="exited", end=end), "id", (), {})
    assert containers._is_current(gone) is current
    up = msgspec.structs.replace(gone, container=msgspec.structs.replace(gone.container, state="running"))
    assert containers._is_current(up)


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        ("vllm:kv_cache_usage_perc 1.0001", ""),
        ("vllm:kv_cache_usage_perc 1.0002", "vllm:kv_cache_usage_perc is 1.0002, which is impossible"),
        ("vllm:kv_cache_usage_perc 0", ""),
        ("vllm:kv_cache_usage_perc -0.1", "vllm:kv_cache_usage_perc is -0.1, which is impossible"),
        ("vllm:num_requests_running 0", ""),
        ("vllm:num_requests_running -1", "vllm:num_requests_running is -1, which is impossible"),
        ("vllm:num_requests_running 999999", ""),
        ("vllm:num_requests_running 1000000", "vllm:num_requests_running is 1e+06, which is impossible"),
        ("vllm:num_preemptions_total 0", ""),
        ("vllm:num_preemptions_total -1", "vllm:num_preemptions_total is -1, which is impossible"),
        ("vllm:num_preemptions_total +Inf", "vllm:num_preemptions_total is inf, which is impossible"),
        ("vllm:lora_requests_info -1", ""),
    ],
)
def test_a_figure_that_no_server_has_is_refused(sample: str, why: str) -> None:
    told = metrics.parse(sample + "\n")
    assert (told if isinstance(told, str) else "") == why


def test_a_list_of_bytes_is_text_and_what_is_no_byte_is_left_out() -> None:
    """journald writes a field that is no UTF-8 as numbers."""
    assert journal._text([104, 105, -1, 0, 255, 256, "x", 300]) == "hi\0\ufffd"


def test_a_command_line_is_told_up_to_a_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("9 (vllm) S 1 " + " ".join("0" * 40))
    words = ["vllm", "serve", "m" * 501, *(["x"] * 300)]
    (tmp_path / "9" / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
    (found,) = procfs.processes()
    assert (len(found.cmdline), len(found.cmdline[2])) == (200, 500)
    assert (found.rss_bytes, found.state, found.ppid, found.unit) == (None, "S", 1, None)


def test_the_program_is_looked_for_in_the_first_words(tmp_path: Path) -> None:
    (tmp_path / "venv/lib/python3.12/site-packages/vllm-0.11.0.dist-info").mkdir(parents=True)
    program_ = f"{tmp_path}/venv/bin/vllm"
    found = release.version(["env", "A=1", "B=2", "nice", "-n5", program_], None)
    assert found == Known("0.11.0", f"{tmp_path}/venv/lib/python3.12/site-packages/vllm-0.11.0.dist-info")
    assert isinstance(release.version(["env", "A=1", "B=2", "C=3", "nice", "-n5", program_], None), Unknown)


def test_what_is_beside_a_program_that_is_gone_is_looked_at_up_to_a_number(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / f"v{number:03}" / "bin").mkdir(parents=True)
    for number in (63, 64):
        file = tmp_path / f"v{number:03}" / "bin" / "vllm"
        file.touch(mode=0o755)
    found = program.gone(f"{tmp_path}/gone/bin/vllm")
    assert found is not None
    assert (found.missing, found.beside) == (f"{tmp_path}/gone", (f"{tmp_path}/v063",))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("128974848", 128974848), ("1k", 1000), ("2M", 2_000_000), ("3G", 3 * 10**9), ("4T", 4 * 10**12),
        ("5P", 5 * 10**15), ("6E", 6 * 10**18), ("1Ki", 1 << 10), ("2Mi", 2 << 20), ("3Gi", 3 << 30), ("4Ti", 4 << 40),
        ("5Pi", 5 << 50), ("6Ei", 6 << 60), ("1.5Gi", 3 << 29), ("1e9", 10**9), ("2E3", 2000), ("1500m", 1),
        ("2500m", 2), (7, 7), (-7, None), (True, None), ("-1", None), ("1X", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_a_size_as_kubernetes_writes_it(text: object, size: int | None) -> None:
    assert json_path.quantity({"a": {"b": text}}, "a", "b") == size


def test_what_others_write_is_taken_up_to_a_bound() -> None:
    told = {"t": "x" * 2001, "r": list(range(5000)), "n": -1, "z": 0, "most": (1 << 63) - 1, "more": 1 << 63}
    assert len(json_path.text(told, "t")) == 2000
    assert len(json_path.rows(told, "r")) == 4096
    assert [json_path.whole(told, name) for name in ("n", "z", "most", "more", "t")] == [
        None,
        0,
        (1 << 63) - 1,
        None,
        None,
    ]
    moments = ["2026-01-01T00:00:00Z", "1999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "3026-01-01T00:00:00Z"]
    assert [json_path.moment({"a": one}, "a") for one in moments] == [*moments[:2], None, None]


@pytest.mark.parametrize(
    ("size", "words"),
    [(1023, "0 KiB"), (2048, "2 KiB"), ((1 << 20) - 1, "1023 KiB"), (1 << 20, "1 MiB"), (5 << 20, "5 MiB")],
)
def test_a_file_that_is_too_large_is_told_with_the_bound(tmp_path: Path, size: int, words: str) -> None:
    (tmp_path / "f").write_bytes(b"x" * (size + 1))
    name = str(tmp_path / "f")
    assert bounded.whole_file(name, size) == Unknown(
        f"{name}: has more than {words}, which no such file has", f"ls -lL {name}"
    )
    assert bounded.all_of(name, "--it", size) == Unknown(
        f"{name}: has more than {words}", "check the path given with --it"
    )
    assert bounded.whole_file(name, size + 1) == Known(b"x" * (size + 1), name)
    assert bounded.all_of(name, "--it", size + 1) == b"x" * (size + 1)


def test_of_a_long_file_the_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(100)))
    assert bounded.end_of(str(tmp_path / "f"), "--it", 3) == bytes((97, 98, 99))
    assert bounded.end_of(str(tmp_path / "f"), "--it", 100) == bytes(range(100))
    assert bounded.end_of(str(tmp_path / "f"), "--it", 101) == bytes(range(100))


@pytest.mark.parametrize(("size", "kept"), [(0, b""), (2, b"01"), (3, b"012"), (4, b"0123"), (9, b"0123456789"[1:])])
def test_of_a_long_stream_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kept: bytes
) -> None:
    """A pipe has no size: what came longest ago is let go of."""
    blocks = [b"0123456789"[: size + 1][n : n + 1] for n in range(size + (size == 9))] + [b""]
    (tmp_path / "f").touch()
    monkeypatch.setattr(bounded.Opened, "read1", lambda *_: blocks.pop(0))
    assert bounded.end_of(str(tmp_path / "f"), "--it", 9) == kept


def test_of_what_the_kernel_makes_the_first_bytes_are_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc\xff")
    assert [bounded.start(tmp_path / "f", most) for most in (0, 3, 4, 5)] == [b"", b"abc", b"abc\xff", b"abc\xff"]
    assert bounded.text_of_start(tmp_path / "f") == "abc\ufffd"
    assert bounded.start(tmp_path / "none", 9) is bounded.text_of_start(f"{tmp_path}/\0") is None
    assert bounded.start(tmp_path, 9) is None  # a folder opens, and gives nothing


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": [1, "\\ud83d\\ude00"]}', ""),
        ('{"a": [1, "\\ud83d"]}', "it: holds half of a character"),
        ('{"\\uDE00": 1}', "it: holds half of a character"),
        ('[["\\ud83d"]]', "it: holds half of a character"),
        ('{"a":' * 64 + "1" + "}" * 64, ""),
        ('{"a":' * 65 + "1" + "}" * 65, "it: nested deeper than 64 levels"),
        ('{"a":[' * 32 + "]}" * 32, ""),
        ('{"a":[' * 33 + "]}" * 33, "it: nested deeper than 64 levels"),
        ("[" + "[]," * 99 + "[]]", ""),
        ("[" * 9999, "it: nested deeper than 64 levels"),
        ("{", "it: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("1" * 101, "it: not JSON: a number of 101 digits"),
    ],
)
def test_a_json_that_no_reader_could_take_is_refused(text: str, why: str) -> None:
    told = bounded.json_value(text.encode(), "it", "ask again")
    assert told == (Unknown(why, "ask again") if why else Known(json.loads(text), "it"))
    assert bounded.json_value(b'"\xff"', "it", "x") == Unknown("it: is not UTF-8 text", "x")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.touch, ""),
        (os.mkfifo, "a named pipe, which is not read for a service"),
        (lambda path: path.symlink_to("/dev/null"), "a device, not a file"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda _: None, "no such file"),
    ],
)
def test_what_a_service_writes_to_is_a_plain_file(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    make(tmp_path / "f")
    with bounded.opened(f"{tmp_path}/f", theirs=True) as found:
        assert (found.reason if isinstance(found, Unknown) else "") == (why and f"{tmp_path}/f: {why}")
    if isinstance(found, bounded.Opened):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(found.handle)


@pytest.mark.skipif(os.geteuid() != 0, reason="owners can be set by root alone")
def test_another_user_s_link_is_not_followed_for_a_service(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x")
    (tmp_path / "f").symlink_to(tmp_path / "log")
    os.lchown(tmp_path / "f", 1234, 1234)
    with bounded.opened(f"{tmp_path}/f", theirs=True) as found:
        assert found == Unknown(
            f"{tmp_path}/f: a user's link led to another file, which is not read for a service",
            f"namei -l {tmp_path}/f",
        )
    with bounded.opened(f"{tmp_path}/f") as mine:
        assert isinstance(mine, bounded.Opened)
    os.lchown(tmp_path / "f", 0, 0)  # root's link is followed
    with bounded.opened(f"{tmp_path}/f", theirs=True) as roots:
        assert isinstance(roots, bounded.Opened)


def test_what_was_read_ahead_of_standard_input_is_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_AHEAD", bytearray())
    bounded.put_back(b"cd")
    bounded.put_back(b"ab")
    source = bounded.Opened(99, bounded.STDIN, size=None)
    assert (source.read1(3), source.read1(3)) == (b"abc", b"d")
    assert (bounded.title("-"), bounded.title("/x")) == ("standard input", "/x")


@pytest.mark.parametrize(
    ("kind", "word"),
    [("folder", "a directory"), ("pipe", "a named pipe"), ("socket", "a socket"), ("device", "a device")],
)
def test_what_is_no_file_is_named(tmp_path: Path, kind: str, word: str) -> None:
    import socket

    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        path = Path("/dev/null")
    assert bounded.whole_file(path, 9) == Unknown(f"{path}: is {word}, not a file", f"ls -lL {path}")


def _safetensors(header: bytes, data: int, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + b"\0" * data


@pytest.mark.parametrize(
    ("content", "needed"),
    [
        (_safetensors(b'{"a": {"data_offsets": [0, 10]}}', 10), 50),
        (_safetensors(b'{"__metadata__": {"data_offsets": [0, 99]}, "a": {"data_offsets": [0, 10]}}', 3), 93),
        (_safetensors(b'{"a": {"data_offsets": [0, 10]}, "b": {"data_offsets": [10, 30]}}', 0), 103),
        (_safetensors(b"{}", 0), 10),
        (_safetensors(b"{", 0), None),  # shorter than any header
        (_safetensors(b"[]", 0), None),
        (_safetensors(b'{"a": {"data_offsets": [0, 10, 20]}}', 0), 44),
        (_safetensors(b'{"a": {"data_offsets": [0, 2000000000000000000]}}', 0), None),
        (_safetensors(b"{}", 0, (32 << 20) + 1), None),
        (b"short", None),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n", 4976698672),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", None),
    ],
)
def test_what_a_weight_file_needs_stands_in_its_header(tmp_path: Path, content: bytes, needed: int | None) -> None:
    """Eight bytes of length, the header, and the data to the last offset (safetensors' format; Git LFS's pointer)."""
    (tmp_path / "model.safetensors").write_bytes(content)
    assert weight_files._needed(tmp_path / "model.safetensors") == needed


@pytest.mark.parametrize(
    ("kind", "bound"),
    [("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\nstatus: {phase: Pending}\n", 1 << 20)],
)
def test_a_description_in_yaml_is_read_up_to_a_mebibyte(tmp_path: Path, kind: str, bound: int) -> None:
    """YAML takes a hundred times as long to read as JSON, of which sixteen are read."""
    (tmp_path / "pod").write_text(kind.ljust(bound, "\n"))
    assert documents.sort([str(tmp_path / "pod")]).logs == ()
    (tmp_path / "pod").write_text(kind.ljust(bound + 1, "\n"))
    assert documents.sort([str(tmp_path / "pod")]).logs == (str(tmp_path / "pod"),)
    as_json = json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}, "status": {"phase": "x"}})
    (tmp_path / "pod").write_text(as_json.ljust(2 * bound))
    assert documents.sort([str(tmp_path / "pod")]).logs == ()


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06", "580.65.06"),
        ("/usr/lib64/libnvidia-ml.so.535.104", "535.104"),
        ("/usr/lib64/libnvidia-ml.so.1", None),
        ("/usr/lib64/libnvidia-ml.so.580.65.06.bak", None),
        ("", None),
        (None, None),
    ],
)
def test_the_librarys_version_is_its_files(path: str | None, version: str | None) -> None:
    assert nvml._suffix(path) == version


@pytest.mark.parametrize(
    ("number", "told"), [(12080, "12.8"), (13000, "13.0"), (11019, "11.1"), (9020, "9.2"), (0, None), (None, None)]
)
def test_cudas_version_as_people_write_it(number: int | None, told: str | None) -> None:
    assert nvml._cuda(number) == told


@pytest.mark.parametrize(
    ("soft", "within"), [(1 << 20, 1 << 20), (1 << 40, hub._MOST), (resource.RLIM_INFINITY, hub._MOST)]
)
def test_a_config_grows_to_the_smaller_of_both_limits(soft: int, within: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [soft, resource.RLIM_INFINITY]
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    with hub._no_larger():
        pass
    assert told == [(within, now[1]), tuple(now)]
