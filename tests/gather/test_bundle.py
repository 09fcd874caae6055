"""Canaries in every collector; none may leave in a bundle. And a bundle is judged as the host was."""

import gzip
import io
import json
import os
import tarfile
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_doctor.gather import archive, bundle
from vllm_doctor.gather.bundle import read_bundle, write_bundle
from vllm_doctor.records.container import Container, Event
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import (
    Driver,
    Gpu,
    GpuProcess,
    Kernel,
    KernelEvent,
    Launch,
    Listener,
    Machine,
    Metrics,
    Probe,
    Process,
    Sample,
    Scrape,
    Unit,
)
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.past import Growth, Past
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Signal, Snapshot
from vllm_doctor.rules.engine import diagnose

TOKEN = "hf_CanaryCanaryCanaryCanary42"  # noqa: S105 - a canary
HOST = "gpu-node-7.internal"
UUID = "GPU-deadbeef-1111-2222-3333-444444444444"
ADDRESS = "10.11.12.13"
CANARIES = (TOKEN, HOST, UUID, ADDRESS, "s3cr3t-password", "alice")
POISON = (
    f"--api-key s3cr3t-password HF_TOKEN={TOKEN} http://root:s3cr3t-password@{ADDRESS}/ {HOST} {UUID} /home/alice/x"
)


def poisoned() -> Snapshot:
    """A snapshot whose every collector met every secret."""
    line = LogLine(1, f"INFO {POISON}", "INFO", "APIServer", 7, "2026-01-01T00:00:00+00:00", "m.py:1", f"x {POISON}")
    return Snapshot(
        taken_at="2026-01-01T00:00:00+00:00",
        subject=Subject(host=HOST, unit="vllm.service", gpu=UUID),
        log=Known(Log(f"journal {HOST}", RunLines((line,)), 0, (POISON,)), "journal"),
        kernel=Known(Kernel((KernelEvent(POISON, None, 1),), "boot"), "journalctl"),
        unit=Known(
            Unit("vllm.service", "loaded", "active", "running", "success", properties={"ExecStart": POISON}),
            "systemctl",
        ),
        launch=Known(Launch(("vllm", "serve", POISON), POISON, {"x": POISON}, {"NAME": POISON}), "/proc/7/cmdline"),
        version=Known("0.32.0", POISON),
        metrics=Known(
            Metrics(f"http://{ADDRESS}:8000/metrics", (Scrape(1.0, (Sample("vllm:x", {"l": POISON}, 1.0),)),)), "m"
        ),
        gpus=Known((Gpu(0, "NVIDIA L4", UUID, processes=(GpuProcess(7, 1, POISON),)),), "NVML"),
        driver=Known(Driver(module="580.105.08"), POISON),
        machine=Known(
            Machine(
                HOST,
                processes=(Process(7, 1, POISON, (POISON,)),),
                listeners=(Listener(8000, 7, POISON, None),),
                disk_free={"/home/alice/models": 5},
            ),
            "/proc",
        ),
        probe=Known(Probe(health_error=POISON, models=(POISON,), server=POISON), "probe"),
        model_config=Known({"model_type": "llama", "note": POISON}, "config.json"),
        container=Known(
            Container("llm", "docker", POISON, "exited", POISON, POISON, events=(Event(POISON, POISON),), node=HOST),
            POISON,
        ),
        past=Known(Past((Growth(POISON, 0.1, 0.0, 0.2, 5.0, 1.0, None, sure=False),), POISON), POISON),
        live=True,
    )


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {m.name: (tar.extractfile(m) or io.BytesIO()).read() for m in tar.getmembers()}


def test_no_canary_of_any_collector_leaves(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    snapshot = poisoned()
    assert all(isinstance(getattr(snapshot, s.value), Known) for s in Signal), "a collector without a canary"
    ledger = write_bundle([snapshot], path, [diagnose(snapshot)])
    plain = gzip.decompress(path.read_bytes())
    for canary in CANARIES:
        assert canary.encode() not in plain, canary
    assert {"snapshots.json", "journal.txt", "kernel.txt", "metrics.txt"} <= {entry.file for entry in ledger}
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_body_of_a_private_key_in_the_log_stays_at_home(tmp_path: Path) -> None:
    body = "MIIEow" + "aB3+" * 14
    texts = ("-----BEGIN RSA PRIVATE KEY-----", body, "-----END RSA PRIVATE KEY-----")
    lines = tuple(LogLine(n, text, "INFO", "APIServer", 7, None, None, f"vllm: {text}") for n, text in enumerate(texts))
    write_bundle([Snapshot(taken_at="t", log=Known(Log("journal", RunLines(lines)), "journal"))], tmp_path / "b")
    assert body.encode() not in gzip.decompress((tmp_path / "b").read_bytes())


def test_the_ledger_also_tells_what_was_hidden_when_it_was_read(tmp_path: Path) -> None:
    kernel = Kernel((KernelEvent("token=[hidden] and [hidden]"),))
    ledger = write_bundle([Snapshot(taken_at="t", kernel=Known(kernel, "k"))], tmp_path / "b")
    told = [entry for entry in ledger if entry.file == "snapshots.json"]
    assert [(e.why, e.token, e.count) for e in told] == [("secret hidden when it was read", "[hidden]", 2)]


def test_a_host_of_one_letter_has_its_name_taken_too(tmp_path: Path) -> None:
    text = "2026-11-20T10:00:00+00:00 a vllm[7]: a word of a log"
    shot = Snapshot(taken_at="t", subject=Subject(host="a"), kernel=Known(Kernel((KernelEvent(text),)), "k"))
    write_bundle([shot], tmp_path / "b")
    read = read_bundle(tmp_path / "b")
    assert not isinstance(read, Unknown)
    assert read[0].subject.host == "<host-1>"
    assert isinstance(read[0].kernel, Known)
    assert read[0].kernel.value.events[0].text == text.replace(" a vllm", " <host-1> vllm")


def test_the_same_secret_has_the_same_token_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    write_bundle([poisoned()], path)
    files = contents(path)
    ledger = json.loads(files["ledger.json"])["taken"]
    tokens = {
        entry["token"] for entry in ledger if entry["characters"] == len(UUID) and entry["token"].startswith("<gpu")
    }
    assert tokens == {"<gpu-1>"}
    assert b"<gpu-1>" in files["journal.txt"]
    assert b"<gpu-1>" in files["kernel.txt"]


def test_what_is_needed_to_judge_survives(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    snapshot = poisoned()
    write_bundle([snapshot], path)
    replayed = read_bundle(path)
    assert not isinstance(replayed, Unknown)
    assert isinstance(replayed[0].driver, Known)
    assert replayed[0].driver.value.module == "580.105.08"
    assert diagnose(replayed[0]).verdict == diagnose(snapshot).verdict


def test_an_instance_of_a_unit_is_no_mail_address(tmp_path: Path) -> None:
    texts = (
        "vllm@main.service: Failed",
        "/etc/systemd/system/vllm@main.service.d",
        "ask ops@example.org or x@y.service.org",
    )
    shot = Snapshot(taken_at="t", kernel=Known(Kernel(tuple(KernelEvent(text) for text in texts)), "k"))
    write_bundle([shot], tmp_path / "b")
    read = read_bundle(tmp_path / "b")
    assert not isinstance(read, Unknown)
    kernel = read[0].kernel
    assert isinstance(kernel, Known)
    assert [event.text for event in kernel.value.events] == [*texts[:2], "ask <mail-1> or <mail-2>"]


def test_versions_are_no_addresses(tmp_path: Path) -> None:
    told = "vLLM 0.10.1.1, v1.2.3.4, lib-1.2.3.4, x==1.2.3.4, 127.0.0.1:8000, 0.0.0.0:8000"
    snapshot = msgspec.structs.replace(poisoned(), version=Known(told, "x"))
    path = tmp_path / "b.tar.gz"
    write_bundle([snapshot], path)
    replayed = read_bundle(path)
    assert not isinstance(replayed, Unknown)
    assert replayed[0].version == Known(told, "x")


def tar_of(files: dict[str, bytes], link: bool = False) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(member)
            else:
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


NO_BUNDLES = {  # named: an archive holds the time it was made, and a name made from it would differ between workers
    "empty": b"",
    "text": b"not a bundle",
    "empty list": b"[]",
    "list of a number": b"[1]",
    "snapshot of one key": b'[{"taken_at": 3}]',
    "gzip of text": gzip.compress(b"junk"),
    "another archive": tar_of({"other": b"x"}),
    "manifest alone": tar_of({"manifest.json": b"{}"}),
    "unknown version": tar_of({"manifest.json": b'{"bundle_version": 99}'}),
    "nested without end": tar_of({"manifest.json": b'{"bundle_version": 1}', "snapshots.json": b"[" * 100000}),
    "links": tar_of({"manifest.json": b"", "snapshots.json": b""}, link=True),
    "cut short": tar_of({"manifest.json": b'{"bundle_version": 1}', "snapshots.json": b"[]"})[:60],
}


@pytest.mark.parametrize("data", NO_BUNDLES.values(), ids=NO_BUNDLES)
def test_what_is_no_bundle_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b"
    path.write_bytes(data)
    found = read_bundle(path)
    assert isinstance(found, Unknown)
    assert str(path) in found.reason


def test_a_bundle_may_come_through_a_pipe_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, pipe = tmp_path / "b", tmp_path / "pipe"
    write_bundle([poisoned()], path)
    straight = read_bundle(path)
    assert not isinstance(straight, Unknown)
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()), daemon=True)
    writer.start()
    assert read_bundle(pipe) == straight
    with path.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert read_bundle("-") == straight


def test_what_unpacks_to_an_absurd_size_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b"
    path.write_bytes(tar_of({"junk": b"0" * 5000, "manifest.json": b"{}"}))
    monkeypatch.setattr(archive, "MAX_UNPACKED", 4000)
    read = read_bundle(path)
    assert isinstance(read, Unknown)
    assert "which cannot be right" in read.reason


def test_a_bare_list_of_snapshots_of_an_absurd_size_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b"
    path.write_bytes(b"[" + b" " * 5000)
    monkeypatch.setattr(bundle, "MAX_SNAPSHOTS", 4000)
    read = read_bundle(path)
    assert isinstance(read, Unknown)
    assert "more than" in read.reason


def names_that_claim(size: int, kind: bytes) -> bytes:
    """A header of names, of which tarfile would read so many bytes before it says that there is a member."""
    head = tarfile.TarInfo("p")
    head.size, head.type = size, kind
    return gzip.compress(head.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16))


HOSTILE = {
    "pax names of 3 GiB": (names_that_claim(3 << 30, tarfile.XHDTYPE), "which cannot be right"),
    "a GNU name of 3 GiB": (names_that_claim(3 << 30, tarfile.GNUTYPE_LONGNAME), "which cannot be right"),
    "names of a size below zero": (names_that_claim(-512, tarfile.XHDTYPE), "which cannot be right"),
    "empty members without end": (tar_of(dict.fromkeys(map(str, range(1000)), b"")), "256 members"),
    "a gzip name without end": (b"\x1f\x8b\x08\x08\0\0\0\0\0\x03" + b"A" * (4 << 20), "ends in the middle"),
    "more values than are held": (
        tar_of(
            {
                "manifest.json": b'{"bundle_version": 1}',
                "snapshots.json": b"[" + b"[]," * (bundle.MAX_VALUES // 2) + b"[]]",
            }
        ),
        "more than 1500000 values",
    ),
    "snapshots of more bytes than are held": (
        tar_of({"manifest.json": b'{"bundle_version": 1}', "snapshots.json": b" " * (bundle.MAX_SNAPSHOTS + 1)}),
        "which cannot be right: at most 67108864",
    ),
}


@pytest.mark.parametrize(("data", "why"), HOSTILE.values(), ids=HOSTILE)
def test_what_would_take_the_machine_is_refused_while_it_is_read(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "b"
    path.write_bytes(data)
    found = read_bundle(path)
    assert isinstance(found, Unknown)
    assert why in found.reason


def test_commas_in_texts_are_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b"
    write_bundle([msgspec.structs.replace(poisoned(), version=Known("1", ",[{" * 500))], path)
    monkeypatch.setattr(bundle, "MAX_VALUES", 600)
    assert not isinstance(read_bundle(path), Unknown)


def test_a_bundle_that_another_tar_packed_again_is_read(tmp_path: Path) -> None:
    """One whose members carry pax headers, as bsdtar and Python write them for times with parts of a second."""
    path, again = tmp_path / "b", tmp_path / "again"
    write_bundle([poisoned()], path)
    with tarfile.open(path) as old, tarfile.open(again, "w:gz", format=tarfile.PAX_FORMAT) as new:
        for member in old:
            member.mtime = 1.5
            new.addfile(member, old.extractfile(member))
    assert read_bundle(again) == read_bundle(path)


def test_a_missing_file_or_a_folder_is_said(tmp_path: Path) -> None:
    assert isinstance(read_bundle(tmp_path / "none"), Unknown)
    assert isinstance(read_bundle(tmp_path), Unknown)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("b") / "b"
    path.write_bytes(data)
    assert isinstance(read_bundle(path), Unknown)
