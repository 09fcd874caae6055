"""A snapshot in one file for someone else: redacted while it is written, with a ledger of what was taken.

A bundle is a gzipped tar of manifest.json, snapshots.json (one for each unit; `diagnose --from` judges them),
diagnoses.json, ledger.json (what was taken, what stayed) and, for people, journal.txt, kernel.txt and metrics.txt. It
is never unpacked to disk.
"""

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from vllm_doctor import __version__
from vllm_doctor.gather.archive import NoArchive, read_members
from vllm_doctor.gather.bounded import CHUNK, ByteSource, json_value, opened, text_of_start, title
from vllm_doctor.gather.unpack import compression, unpacked
from vllm_doctor.log.read.pieces import DamagedData, TooMuch
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.clients import without_clients
from vllm_doctor.redact.identities import SiteNames
from vllm_doctor.redact.ledger import Entry, Redactor, accounts

VERSION = 1
# Sixteen units with eight thousand lines each have a third of it.
MAX_SNAPSHOTS = 64 << 20
MAX_VALUES = 1_500_000
MAX_MANIFEST = 1 << 20
_SNAPSHOTS = "snapshots.json"
_MANIFEST = "manifest.json"
_MACHINE_ID = Path("/etc/machine-id")
# What begins a value of JSON, and texts, which hold the same signs and count for nothing.
_VALUES = re.compile(rb'(?:"(?:[^"\\]|\\.)*+")++|([,{\[])', re.DOTALL)
_AGAIN = "make it again on the host: vllm-doctor bundle -o FILE"


def write_bundle(
    snapshots: Sequence[Snapshot], path: str | os.PathLike[str], diagnoses: Sequence[Diagnosis] = ()
) -> tuple[Entry, ...]:
    """Write the bundle, readable by its owner alone, and return its ledger. Raises OSError."""
    snapshots, of_clients = _without_clients(snapshots)
    read = msgspec.to_builtins(snapshots)
    redactor = Redactor(_names(snapshots, read))
    redactor.note_clients(_SNAPSHOTS, of_clients)
    redactor.learn(read)
    files = {_SNAPSHOTS: _json(redactor.tree(read, _SNAPSHOTS))}
    if diagnoses:
        files["diagnoses.json"] = _json(redactor.tree(msgspec.to_builtins(diagnoses), "diagnoses.json"))
    for name, lines in (part for snapshot in snapshots for part in _for_people(snapshot)):
        files[name] = (
            files.get(name, b"")
            + "".join(f"{redactor.text(line, name, f'line {n}')}\n" for n, line in enumerate(lines, 1)).encode()
        )
    files["ledger.json"] = _json({"taken": msgspec.to_builtins(redactor.ledger), "stayed": redactor.stayed()})
    manifest = {
        "bundle_version": VERSION,
        "vllm_doctor": __version__,
        "taken_at": snapshots[0].taken_at,
        "files": sorted(files),
    }
    target = Path(path)
    half = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:
            _pack(raw, {_MANIFEST: _json(manifest), **files})
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)
    return redactor.ledger


def _without_clients(snapshots: Sequence[Snapshot]) -> tuple[list[Snapshot], int]:
    """The snapshots without what clients may have written into the logs, and how many lines had some of it."""
    kept, count = [], 0
    for snapshot in snapshots:
        if isinstance(snapshot.log, Known):
            log, lines = without_clients(snapshot.log.value)
            count += lines
            snapshot = msgspec.structs.replace(snapshot, log=msgspec.structs.replace(snapshot.log, value=log))  # noqa: PLW2901
        kept.append(snapshot)
    return kept, count


def _names(snapshots: Sequence[Snapshot], read: object) -> SiteNames:
    """What this host and its users are called, and the number that its system has."""
    hosts = [shot.subject.host or "" for shot in snapshots]
    hosts += [shot.machine.value.hostname for shot in snapshots if isinstance(shot.machine, Known)]
    machine = ""
    if any(shot.live for shot in snapshots):
        machine = (text_of_start(_MACHINE_ID, 64) or "").strip()
    return SiteNames(hosts, accounts(read), (machine,))


def _pack(raw: io.BufferedIOBase | io.BufferedWriter, files: dict[str, bytes]) -> None:
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mode = 0o600
            tar.addfile(member, io.BytesIO(data))


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=True).encode()


def _for_people(snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    if isinstance(snapshot.log, Known):
        yield "journal.txt", [line.excerpt or line.text for line in snapshot.log.value.last.lines]
    if isinstance(snapshot.kernel, Known):
        yield "kernel.txt", [f"{event.at or ''} {event.text}".strip() for event in snapshot.kernel.value.events]
    if isinstance(snapshot.metrics, Known):
        yield (
            "metrics.txt",
            [
                f"{sample.name}{{{','.join(f'{k}={v}' for k, v in sample.labels.items())}}} {sample.value:g}"
                for sample in snapshot.metrics.value.scrapes[-1].samples
            ],
        )


def read_bundle(path: str | os.PathLike[str]) -> tuple[Snapshot, ...] | Unknown:
    """The snapshots in a bundle (or in a bare snapshots.json; `-` is standard input); Unknown says why it is none."""
    name = os.fspath(path)
    with opened(name) as source:
        if isinstance(source, Unknown):
            return Unknown(source.reason, "check the path given with --from")
        try:
            return _read(source, title(name))
        except (OSError, DamagedData, TooMuch, NoArchive) as problem:
            words = str(problem) or "it unpacks to more than any bundle has"
            return Unknown(f"{title(name)}: not a vllm-doctor bundle: {excerpt.said(words)}", _AGAIN)


def _read(source: ByteSource, shown: str) -> tuple[Snapshot, ...] | Unknown:
    head = source.read1(CHUNK)
    if head[:1] == b"[":
        return _snapshots(_at_most(_pieces(source, head), MAX_SNAPSHOTS))
    if compression(head) != "gzip":
        raise NoArchive("it is not a gzipped tar archive" if head else "it is empty")
    members = read_members(unpacked(source, "gzip", head), {_MANIFEST: MAX_MANIFEST, _SNAPSHOTS: MAX_SNAPSHOTS})
    for needed in (_MANIFEST, _SNAPSHOTS):
        if needed not in members:
            raise NoArchive(f"there is no {needed} in it")
    told = json_value(members[_MANIFEST], _MANIFEST, "")
    if isinstance(told, Unknown):
        raise NoArchive(told.reason)
    version = told.value.get("bundle_version") if isinstance(told.value, dict) else None
    if version != VERSION:
        return Unknown(
            f"{shown}: bundle version {excerpt.word(str(version))}, this vllm-doctor reads {VERSION}",
            "use the vllm-doctor that made it",
        )
    return _snapshots(members[_SNAPSHOTS])


def _pieces(source: ByteSource, head: bytes) -> Iterator[bytes]:
    yield head
    while block := source.read1(CHUNK):
        yield block


def _at_most(pieces: Iterator[bytes], most: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > most:
            raise NoArchive(f"it has more than {most >> 20} MiB")
    return bytes(data)


def _snapshots(data: bytes) -> tuple[Snapshot, ...]:
    """Raises NoArchive. The values are counted before they are made: each takes up to a hundred times its text."""
    if sum(map(data.count, (b",", b"{", b"["))) > MAX_VALUES:
        values = (found for found in _VALUES.finditer(data) if found[1])
        if next(islice(values, MAX_VALUES, None), None) is not None:
            raise NoArchive(f"{_SNAPSHOTS} has more than {MAX_VALUES} values")
    try:
        found = msgspec.json.decode(data, type=tuple[Snapshot, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        raise NoArchive(f"{_SNAPSHOTS}: {excerpt.said(str(broken))}") from None
    if not found:
        raise NoArchive("it holds no snapshot")
    return found
