"""One entry of a structured log: journalctl -o json, docker's json-file driver, a cloud's log service, a logger."""

import json

import msgspec

from vllm_doctor.log.read.client_answer import answer_in
from vllm_doctor.log.read.printable import printable_text, shorten

# Where an entry of journald, docker, a cloud's log service or a logger has its text, and where its time.
ENTRIES = (
    ("MESSAGE", "__REALTIME_TIMESTAMP"), ("log", "time"), ("textPayload", "timestamp"), ("message", "timestamp"),
    ("msg", "ts"), ("LogEntry", "TimeGenerated"), ("LogMessage", "TimeGenerated"), ("event", "timestamp"),
    ("line", "timestamp"), ("body", "timestamp"),
)  # fmt: skip
# Between an entry and these fields, where a collector or a logger sets them apart.
PAYLOADS = ("jsonPayload", "fields", "record")


class LogEntry(msgspec.Struct, frozen=True):
    """What one says, when, and the number of the process."""

    text: str
    at: str | None = None
    pid: int | None = None


def entry_of(text: str) -> LogEntry:
    """journalctl -o json, docker's json-file driver, or a structured logger; any other text as it is."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return LogEntry(text)
    if not isinstance(row, dict):
        return LogEntry(text)
    if (refusal := answer_in(row)) is not None:
        return LogEntry(refusal)
    for payload in PAYLOADS:
        if isinstance(inner := row.get(payload), dict) and not row.keys() & {"message", "textPayload"}:
            row = {**row, **inner}
    for key, stamp in ENTRIES:
        value = row.get(key)
        if isinstance(value, list) and all(isinstance(b, int) and 0 <= b < 256 for b in value):
            value = bytes(value).decode("utf-8", "replace")  # journald writes a message that is no UTF-8 as bytes
        if isinstance(value, str):
            pid = row.get("_PID")
            at = row.get(stamp)
            owner = int(pid) if isinstance(pid, str) and pid.isdecimal() and len(pid) < 11 else None
            return LogEntry(printable_text(shorten(value.rstrip("\n"))), at if isinstance(at, str) else None, owner)
    return LogEntry(text)


def unquoted(text: str) -> str:
    """A message that was written as one JSON string, its lines apart; the same text where it is none."""
    try:
        told = json.loads(text)
    except ValueError:
        return text
    return told.rstrip() if isinstance(told, str) else text
