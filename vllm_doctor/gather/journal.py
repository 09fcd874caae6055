"""The journal of a unit, scoped to one invocation; what systemd itself said about the invocations before it."""

import datetime
import json
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vllm_doctor.gather.processes import NotRun, Ran, run
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Known, Reading, Unknown

HEAD_LINES = 4000
TAIL_LINES = 4000
MAX_BYTES = 24 << 20
# A start of vLLM up to its KV cache is some hundred lines, each about 600 bytes as JSON.
_START_BYTES = 768 << 10
_JOURNALS = (Path("/var/log/journal"), Path("/run/log/journal"))
_HOST = socket.gethostname()
_FIELDS = "MESSAGE,_PID,SYSLOG_IDENTIFIER,_COMM"
_ENDED_BY_ITSELF = re.compile("Failed with result|Scheduled restart job")
_DENIED = ("insufficient permissions", "not seeing messages from other users", "Permission denied")


class Entries(msgspec.Struct, frozen=True):
    """Lines in `short-iso` form. `gap` is true when only the head and the tail of a long run were read."""

    lines: tuple[str, ...]
    gap: bool = False


class Invocation(msgspec.Struct, frozen=True):
    """One invocation of the unit, as systemd told of it; `failed` with the words of its failure. `began` and `last`
    are when systemd first and last spoke of it, seconds since the epoch: where it ended, its end."""

    invocation: str
    said: tuple[str, ...]
    failed: bool
    began: float
    last: float


def remedy() -> str:
    """The command that lets this user read the system's journal."""
    return f"sudo usermod -aG systemd-journal {_user()} (then log in again), or: sudo vllm-doctor diagnose"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def invocations(unit: str, deadline_s: float, *, since: float | None = None) -> Reading[tuple[Invocation, ...]]:
    """The unit's invocations, oldest first, from systemd's own few messages: of this boot, or with `since` (seconds
    since the epoch) all that the journal still has from then on."""
    scope = "-b" if since is None else f"--since=@{since:.0f}"
    got = _journalctl([scope, "_PID=1", f"UNIT={unit}", "-n", "2000"], "MESSAGE,INVOCATION_ID", deadline_s)
    if isinstance(got, Unknown):
        return got
    said: dict[str, list[tuple[float, str]]] = {}
    for row in _rows(got.out):
        said.setdefault(_text(row.get("INVOCATION_ID")), []).append((_at(row) or 0.0, _text(row.get("MESSAGE"))))
    runs = tuple(
        Invocation(
            invocation,
            tuple(dict.fromkeys(line for _, line in lines)),
            any(_ENDED_BY_ITSELF.search(line) for _, line in lines),
            began=lines[0][0],
            last=lines[-1][0],
        )
        for invocation, lines in said.items()
        if invocation
    )
    return Known(runs, f"journalctl {scope} UNIT={unit}")


def entries(invocation: str, deadline_s: float) -> Reading[Entries]:
    """What the service wrote in this invocation and what systemd said of it: the head and the tail of a long run."""
    scope = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    tail = _journalctl(["-n", str(TAIL_LINES), *scope], _FIELDS, deadline_s)
    if isinstance(tail, Unknown):
        return tail
    last = list(_rows(tail.out))
    if len(last) < TAIL_LINES:
        return Known(Entries(tuple(_line(row) for row in last)), "journal")
    first = _journalctl(scope, _FIELDS, deadline_s, max_bytes=HEAD_LINES * 600)
    if isinstance(first, Unknown):
        return first
    head = list(_rows(first.out))[:HEAD_LINES]
    cursors = {_text(row.get("__CURSOR")) for row in last}
    before = [row for row in head if _text(row.get("__CURSOR")) not in cursors]
    joined = len(before) < len(head)
    return Known(Entries(tuple(_line(row) for row in before + last), gap=not joined), "journal")


def head(invocation: str, deadline_s: float) -> tuple[str, ...]:
    """The first lines that the service wrote in an invocation, as many as its start needs; none where they cannot be
    read."""
    got = _journalctl([f"_SYSTEMD_INVOCATION_ID={invocation}"], _FIELDS, deadline_s, max_bytes=_START_BYTES)
    return tuple(_line(row) for row in _rows(got.out)) if isinstance(got, Ran) else ()


def silent_s(invocation: str, now: float, deadline_s: float) -> float | None:
    """Seconds since the service wrote its last line in this invocation; None where there is none to be read."""
    got = _journalctl(["-n", "1", f"_SYSTEMD_INVOCATION_ID={invocation}"], "MESSAGE", deadline_s)
    row = next(_rows(got.out), None) if isinstance(got, Ran) else None
    at = _at(row) if row is not None else None
    return max(0.0, now - at) if at is not None else None


def _journalctl(arguments: list[str], fields: str, deadline_s: float, max_bytes: int = MAX_BYTES) -> Ran | Unknown:
    got = run(
        ["journalctl", "--no-pager", "-o", "json", f"--output-fields={fields}", *arguments],
        deadline_s=deadline_s,
        max_bytes=max_bytes,
    )
    if isinstance(got, NotRun):
        hint = (
            "install systemd's journal"
            if got.missing
            else "read it by hand: journalctl --disk-usage; journalctl --verify"
        )
        return Unknown(f"journal: {got.reason}", hint)
    if not got.out.strip() and (any(word in got.err for word in _DENIED) or _hidden()):
        return Unknown("journal: no permission to read the system's journal", remedy())
    if got.code != 0 and not got.out.strip():
        said = got.err.strip().splitlines()[-1:] or [f"exit code {got.code}"]
        if "No journal files were found" in got.err:
            return Unknown(
                "journal: no journal files on this host",
                "journald must run and keep a journal: systemctl status systemd-journald",
            )
        return Unknown(f"journal: journalctl failed: {excerpt.said(said[0])}", "journalctl -b -n 5")
    return got


def _hidden() -> bool:
    """Is there a journal of the system, and none of its files for this user? journalctl does not always say so."""
    files = [file for folder in _JOURNALS for file in folder.glob("*/system.journal")]
    return bool(files) and not any(os.access(file, os.R_OK) for file in files)


def _rows(out: bytes) -> Iterator[dict[str, object]]:
    for line in out.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the last line of output that was cut
        if isinstance(row, dict):
            yield row


def _text(value: object) -> str:
    """A field's text; journald writes what is no UTF-8 as a list of bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return bytes(b for b in _bytes(value)).decode("utf-8", "replace")
    return ""


def _bytes(value: Iterable[object]) -> Iterator[int]:
    return (b for b in value if isinstance(b, int) and 0 <= b < 256)


def _line(row: dict[str, object]) -> str:
    name = _text(row.get("SYSLOG_IDENTIFIER")) or _text(row.get("_COMM")) or "vllm"
    return f"{when(row)} {_HOST} {name.replace(' ', '_')}[{_text(row.get('_PID')) or 0}]: {_text(row.get('MESSAGE'))}"


def when(row: dict[str, object]) -> str:
    """The entry's time in ISO 8601, UTC."""
    return datetime.datetime.fromtimestamp(_at(row) or 0.0, tz=datetime.UTC).isoformat(timespec="seconds")


def _at(row: dict[str, object]) -> float | None:
    """The entry's time, seconds since the epoch; None where it has none."""
    stamp = _text(row.get("__REALTIME_TIMESTAMP"))
    return int(stamp) / 1e6 if re.fullmatch(r"[0-9]{1,17}", stamp) else None
