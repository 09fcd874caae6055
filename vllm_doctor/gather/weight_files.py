"""Weight files that are not whole, told by their own headers; no tensor is read."""

import grp
import json
import os
import pwd
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.records.host import WeightFile, WeightFiles
from vllm_doctor.records.reading import Known

_MOST_HEADER = 32 << 20
# Commas of a header; one of a hundred thousand tensors has some six for each.
_MOST_VALUES = 1_000_000
# Bytes; no file system holds a longer file, and no sum of ours a longer number.
_LONGEST = 1 << 60
_POINTER = b"version https://git-lfs"
_MOST_CONFIG = 1 << 20
_MOST_BESIDE = 200
_BUDGET_S = 1.5


def checked(folder: str, user: str = "") -> WeightFiles | None:
    """The safetensors files of a local model's folder, as the service's `user` finds them; None where it holds none.

    A header is the length of a JSON text, the text, and the data that its offsets end with: so much the file must have
    (safetensors' format). A pointer of Git LFS names the size of the file that it stands for.
    """
    if not os.path.lexists(folder):
        return _missing(Path(folder))
    closed = _closed(Path(folder), user) if user else None
    if closed is not None:
        return closed
    until = time.monotonic() + _BUDGET_S
    cut: list[WeightFile] = []
    count = 0
    try:
        files = sorted(Path(folder).glob("*.safetensors"))
    except OSError:
        return None
    for file in files:
        if time.monotonic() > until:
            break
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                continue
            needed = _needed(file)
        except (OSError, ValueError):
            continue
        count += 1
        if needed is None or needed != status.st_size:
            at = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
            cut.append(WeightFile(os.fspath(file), status.st_size, needed, at, _copy(file, needed, until)))
    return WeightFiles(count, tuple(cut)) if count else None


def _closed(folder: Path, user: str) -> WeightFiles | None:
    """What of the way to the model's files the user may not pass, told by owners and modes; None where it is open."""
    try:
        who = pwd.getpwnam(user)
        groups = os.getgrouplist(user, who.pw_gid)
        for step in (*reversed(folder.resolve().parents), folder.resolve(), folder.resolve() / "config.json"):
            status = step.stat()
            needs = 0o4 if step.name == "config.json" else 0o5 if step == folder.resolve() else 0o1
            shift = 6 if status.st_uid == who.pw_uid else 3 if status.st_gid in groups else 0
            if who.pw_uid != 0 and (status.st_mode >> shift) & needs != needs:
                why = f"user {user} may not read it: owner {_name(status)}, mode {stat.S_IMODE(status.st_mode):o}"
                own = step == folder.resolve() or step.parent == folder.resolve()
                group = grp.getgrgid(who.pw_gid).gr_name if own else ""
                return WeightFiles(0, denied=os.fspath(step), group=group, why=why)
    except (KeyError, OSError):
        return None
    return None


def _name(status: os.stat_result) -> str:
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return str(status.st_uid)


def _missing(folder: Path) -> WeightFiles | None:
    """The folder is not there; None where nobody may look. Hidden folders are nobody's model."""
    try:
        entries = sorted(folder.parent.iterdir())[:_MOST_BESIDE]
        beside = [e for e in entries if not e.name.startswith(".") and (e / "config.json").is_file()]
    except FileNotFoundError:
        beside = []
    except OSError:
        return None
    return WeightFiles(0, missing=os.fspath(folder), beside=tuple(map(os.fspath, beside)))


def _copy(file: Path, needed: int | None, until: float) -> str:
    """A file of this name that is whole and begins with the same header, in a folder beside that has the same
    config.json; "" where there is none."""
    config = whole_file(file.parent / "config.json", _MOST_CONFIG)
    if needed is None or not isinstance(config, Known):
        return ""
    try:
        beside = sorted(entry for entry in file.parent.parent.iterdir() if entry != file.parent)[:_MOST_BESIDE]
    except OSError:
        return ""
    for folder in beside:
        if time.monotonic() > until:
            break
        other = folder / file.name
        try:
            if not other.is_file() or other.stat().st_size != needed or _needed(other) != needed:
                continue
            same = whole_file(folder / "config.json", _MOST_CONFIG)
            if isinstance(same, Known) and same.value == config.value and _begins_alike(file, other):
                return os.fspath(other)
        except (OSError, ValueError):
            continue
    return ""


def _begins_alike(file: Path, other: Path) -> bool:
    """Have both the same header? Of a file that is cut within its own (a pointer) nothing is known."""
    with file.open("rb") as one, other.open("rb") as two:
        length = int.from_bytes(two.read(8), "little")
        two.seek(0)
        header = two.read(8 + min(length, _MOST_HEADER))
        return one.read(len(header)) == header


def _needed(file: Path) -> int | None:
    """The bytes that the file should have; None where its beginning is no header."""
    with file.open("rb") as data:
        first = data.read(len(_POINTER))
        if first == _POINTER:
            sizes = [line for line in data.read(400).decode(errors="replace").splitlines() if line.startswith("size ")]
            return _size(int(sizes[0][5:25])) if sizes else None
        length = int.from_bytes(first[:8], "little")
        if len(first) < 8 or not 2 <= length <= _MOST_HEADER:
            return None
        data.seek(8)
        text = data.read(length)
        try:
            header = json.loads(text) if text.count(b",") <= _MOST_VALUES >= text.count(b"[") else None
        except (ValueError, RecursionError):
            return None
    if not isinstance(header, dict):
        return None
    tensors = (one for name, one in header.items() if name != "__metadata__" and isinstance(one, dict))
    ends = [one["data_offsets"][1] for one in tensors if _offsets(one)]
    return _size(8 + length + max(ends, default=0))


def _size(told: int) -> int | None:
    return told if 0 <= told <= _LONGEST else None


def _offsets(tensor: dict[str, object]) -> bool:
    found = tensor.get("data_offsets")
    return isinstance(found, list) and len(found) == 2 and isinstance(found[1], int)
