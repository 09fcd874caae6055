"""What the store's file is: where it lies, its tables, and the records in it."""

import contextlib
import os
import sqlite3
from functools import cache
from pathlib import Path

import msgspec

SCHEMA = 1
NAME = "history.sqlite"
FOLDER = Path("/var/lib/vllm-doctor-guard")
# Characters of an event's text that are kept.
MOST_TEXT = 2000
TABLES = """
CREATE TABLE unit (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE minute (
  at INTEGER NOT NULL, unit INTEGER NOT NULL, active TEXT, health INTEGER, running INTEGER, waiting INTEGER, kv INTEGER,
  prompt INTEGER, generated INTEGER, finished INTEGER, preemptions INTEGER, host INTEGER, host_limit INTEGER,
  PRIMARY KEY (unit, at)) WITHOUT ROWID;
CREATE TABLE card (
  at INTEGER NOT NULL, unit INTEGER NOT NULL, uuid TEXT NOT NULL, own INTEGER, others INTEGER, total INTEGER,
  free INTEGER,
  PRIMARY KEY (unit, uuid, at)) WITHOUT ROWID;
CREATE TABLE event (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, unit INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX event_at ON event (unit, at);
"""


class UnitEvent(msgspec.Struct, frozen=True):
    """Something that happened to a unit, at seconds since the epoch."""

    at: float
    unit: str
    kind: str
    text: str


class Minute(msgspec.Struct, frozen=True):
    """One record of serving; see records.sample.Look."""

    at: float
    active: str
    health: int | None
    running: float | None
    waiting: float | None
    kv: float | None
    prompt: float | None
    generated: float | None
    finished: float | None
    preemptions: float | None
    host: int | None
    host_limit: int | None


class CardMinute(msgspec.Struct, frozen=True):
    """One record of a GPU's memory, bytes."""

    at: float
    uuid: str
    own: int | None
    others: int | None
    total: int | None
    free: int | None


class CardPeak(msgspec.Struct, frozen=True):
    """A GPU's memory when most of it was held, bytes; `servers` is the part of `others` that the guard's other units
    held at that moment."""

    uuid: str
    at: float
    own: int
    others: int
    servers: int


def store_file() -> Path:
    """The store of this host."""
    given = os.environ.get("VLLM_DOCTOR_STATE")
    return (Path(given) if given else FOLDER) / NAME


def schema_of(base: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """All that the file says of its tables; SQLite's own entries have no text."""
    rows = base.execute(
        "SELECT type, name, tbl_name, substr(sql, 1, 4000) FROM sqlite_master WHERE sql IS NOT NULL LIMIT 50"
    )
    return frozenset(tuple(str(field) for field in row) for row in rows)


@cache
def our_schema() -> frozenset[tuple[str, ...]]:
    """What a file says of its tables that this release made."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.executescript(TABLES)
        return schema_of(base)
