"""A snapshot in one file for someone else: redacted while it is written, with a ledger of what was taken.

A bundle is a gzipped tar of manifest.json, snapshots.json (one for each unit; `diagnose --from` judges them),
diagnoses.json, ledger.json and, for people, journal.txt, kernel.txt and metrics.txt. It is never unpacked to disk.
"""

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from vllm_doctor import __version__
from vllm_doctor.gather.archive import Refused, read_members
from vllm_doctor.gather.bounded import CHUNK, Source, json_value, opened, title
from vllm_doctor.gather.unpack import Broken, TooMuch, compression, unpacked
from vllm_doctor.knowledge.gpus import UUID
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.text import HIDDEN, Lines

VERSION = 1
# Sixteen units with eight thousand lines each have a third of it.
MAX_SNAPSHOTS = 64 << 20
MAX_VALUES = 1_500_000
MAX_MANIFEST = 1 << 20
_SNAPSHOTS = "snapshots.json"
_MANIFEST = "manifest.json"
# What begins a value of JSON, and texts, which hold the same signs and count for nothing.
_VALUES = re.compile(rb'(?:"(?:[^"\\]|\\.)*+")++|([,{\[])', re.DOTALL)
_AGAIN = "make it again on the host: vllm-doctor bundle -o FILE"

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_UNITS = "service|socket|target|timer|slice|scope|mount|path"
_IDENTITIES = (
    ("gpu", re.compile(rf"\b{UUID}\b")),
    # Not a version: those stand after a `v`, `-`, `=` or `.`, or begin with 0.
    ("ip", re.compile(rf"(?<![\w.=+-])(?!127\.|0\.){_OCTET}(?:\.{_OCTET}){{3}}(?![\w.])")),
    ("ip", re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}(?![\w:])", re.IGNORECASE)),
    ("user", re.compile(r"(?<=/home/)[\w.-]+")),
    # Not an instance of a systemd unit, vllm@main.service.
    ("mail", re.compile(rf"\b[\w.+-]+@(?![\w.:\\-]+\.(?:{_UNITS})(?:\.d)?(?![\w-]|\.\w))[\w-]+\.[\w.-]+\b")),
)


class Entry(msgspec.Struct, frozen=True):
    """One removal: where it stood, why, what stands there now and how many characters it had (0: not known)."""

    file: str
    where: str
    why: str
    token: str
    characters: int


class Redactor:
    """Removes secrets and identities; the same one has the same token in all files of one bundle, so that what belongs
    together still does."""

    def __init__(self, host: str | None) -> None:
        self._tokens: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._following = Lines()
        self._host = _host_pattern(host)
        self.ledger: list[Entry] = []

    def text(self, value: str, file: str, where: str) -> str:
        """`value` as it may leave the host."""

        def secret(found: str, why: str) -> str:
            return self._put("secret", found, why, file, where)

        self.ledger += [Entry(file, where, "secret hidden when it was read", HIDDEN, 0)] * value.count(HIDDEN)
        value = self._following.scrub(value, secret)
        for kind, pattern in _IDENTITIES:
            value = pattern.sub(partial(self._identity, kind, file, where), value)
        if self._host is not None:
            value = self._host.sub(partial(self._identity, "host", file, where), value)
        return value

    def _identity(self, kind: str, file: str, where: str, found: re.Match[str]) -> str:
        return self._put(kind, found[0], f"{kind} identity", file, where)

    def _put(self, kind: str, found: str, why: str, file: str, where: str) -> str:
        token = self._tokens.get(found)
        if token is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            token = self._tokens[found] = f"<{kind}-{self._counts[kind]}>"
        self.ledger.append(Entry(file, where, why, token, len(found)))
        return token

    def tree(self, value: object, file: str, where: str = "") -> object:
        """The same for all texts of a JSON value, names of mappings included."""
        match value:
            case str():
                return self.text(value, file, where)
            case dict():
                return {self.text(str(k), file, where): self.tree(v, file, f"{where}/{k}") for k, v in value.items()}
            case list() | tuple():
                return [self.tree(item, file, f"{where}/{number}") for number, item in enumerate(value)]
            case _:
                return value


def _host_pattern(host: str | None) -> re.Pattern[str] | None:
    """Where a host's name stands. One of a letter or two is a word like others: alone, or where the journal puts it."""
    if not host or host == "localhost":
        return None
    name = re.escape(host)
    if len(host) > 2:
        return re.compile(rf"(?<![\w-]){name}(?![\w-])")
    return re.compile(rf"^{name}$|(?<=[0-9Z] ){name}(?= [\w@.:-]+\[\d+\]: )")


def write_bundle(
    snapshots: Sequence[Snapshot], path: str | os.PathLike[str], diagnoses: Sequence[Diagnosis] = ()
) -> tuple[Entry, ...]:
    """Write the bundle, readable by its owner alone, and return its ledger. Raises OSError."""
    redactor = Redactor(snapshots[0].subject.host)
    files = {_SNAPSHOTS: _json(redactor.tree(msgspec.to_builtins(snapshots), _SNAPSHOTS))}
    if diagnoses:
        files["diagnoses.json"] = _json(redactor.tree(msgspec.to_builtins(diagnoses), "diagnoses.json"))
    for name, lines in (part for snapshot in snapshots for part in _for_people(snapshot)):
        files[name] = (
            files.get(name, b"")
            + "".join(f"{redactor.text(line, name, f'line {n}')}\n" for n, line in enumerate(lines, 1)).encode()
        )
    files["ledger.json"] = _json(msgspec.to_builtins(redactor.ledger))
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
    return tuple(redactor.ledger)


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
        except (OSError, Broken, TooMuch, Refused) as problem:
            words = str(problem) or "it unpacks to more than a bundle has"
            return Unknown(f"{title(name)}: not a vllm-doctor bundle: {words[:200]}", _AGAIN)


def _read(source: Source, shown: str) -> tuple[Snapshot, ...] | Unknown:
    head = source.read1(CHUNK)
    if head[:1] == b"[":
        return _snapshots(_at_most(_pieces(source, head), MAX_SNAPSHOTS))
    if compression(head) != "gzip":
        raise Refused("it is no gzipped tar" if head else "it is empty")
    members = read_members(unpacked(source, "gzip", head), {_MANIFEST: MAX_MANIFEST, _SNAPSHOTS: MAX_SNAPSHOTS})
    for needed in (_MANIFEST, _SNAPSHOTS):
        if needed not in members:
            raise Refused(f"there is no {needed} in it")
    told = json_value(members[_MANIFEST], _MANIFEST, "")
    if isinstance(told, Unknown):
        raise Refused(told.reason)
    version = told.value.get("bundle_version") if isinstance(told.value, dict) else None
    if version != VERSION:
        return Unknown(
            f"{shown}: bundle version {str(version)[:40]}, this vllm-doctor reads {VERSION}",
            "use the vllm-doctor that made it",
        )
    return _snapshots(members[_SNAPSHOTS])


def _pieces(source: Source, head: bytes) -> Iterator[bytes]:
    yield head
    while block := source.read1(CHUNK):
        yield block


def _at_most(pieces: Iterator[bytes], most: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > most:
            raise Refused(f"it has more than {most >> 20} MiB")
    return bytes(data)


def _snapshots(data: bytes) -> tuple[Snapshot, ...]:
    """Raises Refused. The values are counted before they are made: each takes up to a hundred times its text."""
    if sum(map(data.count, (b",", b"{", b"["))) > MAX_VALUES:
        values = (found for found in _VALUES.finditer(data) if found[1])
        if next(islice(values, MAX_VALUES, None), None) is not None:
            raise Refused(f"{_SNAPSHOTS} has more than {MAX_VALUES} values")
    try:
        found = msgspec.json.decode(data, type=tuple[Snapshot, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        raise Refused(f"{_SNAPSHOTS}: {str(broken)[:160]}") from None
    if not found:
        raise Refused("it holds no snapshot")
    return found
