"""What a stranger may hand over, as data: how it is made, how it is given, and how the doctor may end.

Each row is a file (or a pipe) and the words that give it. None may take more than `MOST_MIB` or `MOST_S`.
"""

import bz2
import gzip
import json
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MOST_MIB = 300
MOST_S = 15.0
_MIB = 1 << 20
_BEGIN = b"INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.10.0\n"


class Input(NamedTuple):
    """One hostile input; `ends` are the exit codes that answer it. `long`: for `make hostile` alone."""

    make: Callable[[Path], object]
    words: tuple[str, ...]
    ends: tuple[int, ...]
    long: bool = False


def _packed(pack: Callable[[bytes], bytes], blocks: int, block: bytes = b"x" * _MIB) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        packed = pack(block)
        with path.open("wb") as file:
            file.write(pack(_BEGIN))
            for _ in range(blocks):
                file.write(packed)

    return make


def _text(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _names(kind: bytes) -> Callable[[Path], object]:
    head = tarfile.TarInfo("p")
    head.size, head.type = 3 << 30, kind
    return _text(gzip.compress(head.tobuf(tarfile.GNU_FORMAT)) + gzip.compress(bytes(_MIB)) * 1024)


def _bundle(snapshots: bytes) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        files = {"manifest.json": b'{"bundle_version": 1}', "snapshots.json": snapshots}
        with gzip.open(path, "wb", 1) as packed:
            for name, data in files.items():
                head = tarfile.TarInfo(name)
                head.size = len(data)
                packed.write(head.tobuf() + data + bytes(-len(data) % 512))
            packed.write(bytes(1024))

    return make


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


_LINES = json.dumps([{"taken_at": "t", "log": {"type": "known", "source": "log", "value": {
    "source": "log", "earlier_lives": 0, "last": {"lines": ["@"]}}}}]).encode()  # fmt: skip
_LINE = b'{"number": 1, "text": ""},'
_LOG, _FROM = ("diagnose", "--log"), ("diagnose", "--from")
_PLAN = ("plan", "--gpu", "NVIDIA H100 80GB HBM3", "--vllm-version", "0.33.0")
_CONFIG = (*_PLAN, "--model-config")
_METRICS, _KERNEL = ("diagnose", "--metrics"), ("diagnose", "--kernel-log")

INPUTS = {
    "pax names of 3 GiB": Input(_names(tarfile.XHDTYPE), _FROM, (2,)),
    "a GNU name of 3 GiB": Input(_names(tarfile.GNUTYPE_LONGNAME), _FROM, (2,)),
    "a bundle of six million lines": Input(
        _bundle(_LINES.replace(b'"@"', _LINE * 6_500_000 + _LINE[:-1])), _FROM, (2,), long=True
    ),
    "a bundle of as many values as are held": Input(_bundle(b"[" + b"[]," * 700_000 + b"[]]"), _FROM, (2,)),
    "gzip members without content": Input(_text(gzip.compress(b"", 1) * 3_000_000), _FROM, (2,), long=True),
    "a gzip name of 60 MiB": Input(_text(b"\x1f\x8b\x08\x08\0\0\0\0\0\x03" + b"A" * (60 * _MIB)), _LOG, (3,)),
    "a bomb of 500 MiB in gzip": Input(_packed(gzip.compress, 500), _LOG, (3,)),
    "a bomb of 100 GiB in gzip": Input(_packed(gzip.compress, 100 << 10), _LOG, (3,), long=True),
    "a bomb of 20 GiB in xz": Input(_packed(lzma.compress, 20 << 10), _LOG, (3,), long=True),
    "a bomb of 20 GiB in bzip2": Input(_packed(bz2.compress, 20 << 10), _LOG, (3,), long=True),
    "four million bytes of carriage returns": Input(_text(_BEGIN + b"a\r" * 2_000_000), _LOG, (3,)),
    "four million bytes of empty lines": Input(_text(_BEGIN + b"\n" * 4_000_000), _LOG, (0, 3)),
    "ten thousand stops of one server": Input(
        _text(_BEGIN + b"INFO:     Shutting down\nINFO:     Application shutdown complete.\n" * 10_000), _LOG, (0, 3)
    ),
    "a line of JSON nested without end": Input(_text(_BEGIN + b"[" * 200_000 + b"\n" + b"{" * 200_000), _LOG, (0, 3)),
    "a path of tokens": Input(_text(_BEGIN + b'INFO: "GET /' + b"token-" * 5_000 + b' HTTP/1.1" 404\n'), _LOG, (0, 3)),
    "a hundred long lines of each sign": Input(
        _text(_BEGIN + b"\n".join(bytes([sign]) * 30_000 for sign in range(32, 127)) + b"\n"), _LOG, (0, 3)
    ),
    "a log that is a link to itself": Input(_link_to_itself, _LOG, (3,)),
    "a config that is nested": Input(_text(b"[" * 200_000), _CONFIG, (2,)),
    "a config with a number of 400 digits": Input(_text(b'{"hidden_size": 1' + b"0" * 400 + b"}"), _CONFIG, (2,)),
    "a config that is a pipe": Input(os.mkfifo, _CONFIG, (2,), long=True),
    "a start to learn that is a device": Input(lambda path: path.symlink_to("/dev/zero"), (*_PLAN, "--learn"), (2,)),
    "a launch of two thousand options that nobody has": Input(
        _text(b"vllm serve m " + b" ".join(b"--max-model-lem%d 3" % n for n in range(2000))),
        ("diagnose", "--vllm-version", "0.33.0", "--launch"),
        (1,),
    ),
    "metrics of one long line": Input(
        _text(b"vllm:x{" + b",".join(b'a%d="x"' % n for n in range(200_000)) + b"} 1\n"),
        ("diagnose", "--metrics"),
        (3,),
    ),
    "metrics without end": Input(
        _text(b'vllm:x{a="b"} 1.0\n' * 2_000_000), ("diagnose", "--metrics"), (0, 3), long=True
    ),
    "a kernel log of 30 MiB": Input(
        _text(b"NVRM: Xid a b c d\n" * 1_700_000), ("diagnose", "--kernel-log"), (0, 1, 3), long=True
    ),
}
