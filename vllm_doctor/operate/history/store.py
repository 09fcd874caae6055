"""The records of weeks in one SQLite file with one writer, the guard; `diagnose`, `history` and `watch` only read it.

It survives a kill (write-ahead log), a full disk (what cannot be written is counted and said) and its own ruin (the
file is kept aside and a new one begun). It is bounded by age and by size. Readers take it for what a stranger wrote.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.records import excerpt
from vllm_doctor.records.sample import Look

SCHEMA = 1
NAME = "history.sqlite"
FOLDER = Path("/var/lib/vllm-doctor-guard")
_PAGE = 4096
_WAL_BYTES = 4 << 20
_SPOILED = 2
_MOST_TEXT = 2000
_READ_S = 1.0
_TABLES = """
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


class Store:
    """The writer. Nothing that it does raises for a full disk or a ruined file; `lost` counts what was not kept."""

    def __init__(self, path: Path, *, keep_days: float = 35.0, keep_mib: int = 100) -> None:
        """Open or begin it. Raises OSError where the folder cannot be made."""
        self.path, self.lost, self.notes = path, 0, list[str]()
        self._keep_s, self._keep_bytes = keep_days * 86400, keep_mib << 20
        self._units: dict[str, int] = {}
        self._pruned = 0.0
        self._inodes = (0, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._base: sqlite3.Connection | None = None
        self._open()

    def _open(self) -> None:
        for attempt in range(2):
            try:
                self._base = self._opened()
            except sqlite3.OperationalError as refused:  # full, read-only, locked: not ruined
                if attempt or not self._is_anothers():
                    self._failed(refused)
                    return
                self._put_aside("it is not a regular file of this user")
            except sqlite3.DatabaseError as ruined:
                if attempt:
                    self._failed(ruined)
                    return
                self._put_aside(str(ruined))
            else:
                with contextlib.suppress(OSError):
                    self._inodes = (self.path.stat().st_ino, self._log().stat().st_ino)
                return

    def _opened(self) -> sqlite3.Connection:
        base = sqlite3.connect(self.path, timeout=2.0, isolation_level=None)
        try:
            base.execute("PRAGMA auto_vacuum=INCREMENTAL")
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            base.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
            base.execute("PRAGMA cache_size=-512")
            # The smallest file that holds what is to be kept; the kernel of SQLite then refuses more.
            base.execute(f"PRAGMA max_page_count={max(64, self._keep_bytes // _PAGE)}")
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                base.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={SCHEMA};COMMIT;")
            elif version != SCHEMA:
                raise sqlite3.DatabaseError(f"its schema is {version}, not {SCHEMA}")
            said = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if said != "ok":
                raise sqlite3.DatabaseError(excerpt.said(str(said)))
        except BaseException:
            base.close()
            raise
        self._units = {}  # numbers of another file say nothing here
        return base

    def _is_anothers(self) -> bool:
        """A folder, or what another user made there (root's hand): it would keep every record from being written."""
        beside = (self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm"))
        return any(one.exists() and not (one.is_file() and os.access(one, os.W_OK)) for one in beside)

    def _is_gone(self) -> bool:
        """SQLite goes on writing into a file that was removed or replaced; nobody would ever read that."""
        try:
            return (self.path.stat().st_ino, self._log().stat().st_ino) != self._inodes
        except OSError:
            return True

    def _log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _put_aside(self, why: str) -> None:
        """The ruined file stays for whoever wants to look; the older of such files go."""
        aside = self.path.with_name(f"{self.path.name}.spoiled-{time.time_ns() // 1_000_000}")
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self.path.with_name(self.path.name + end).rename(aside.with_name(aside.name + end))
        kept = sorted({p.name.removesuffix("-wal").removesuffix("-shm") for p in self.path.parent.glob("*.spoiled-*")})
        for name in kept[:-_SPOILED]:
            for end in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):  # a folder stays: it was never ours
                    self.path.with_name(name + end).unlink(missing_ok=True)
        self._units = {}
        if not self.path.exists():
            self.notes.append(f"{self.path}: not readable ({why}); kept as {aside.name}, and a new store was begun")

    def _failed(self, why: Exception) -> None:
        self.lost += 1
        self._pruned = 0.0  # the next record makes room first
        if self.lost == 1:
            self.notes.append(f"{self.path}: records are lost ({why}): make room, or look at the folder's owner")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection | None]:
        """One transaction; where it fails the record is lost, and that is counted."""
        if self._base is not None and self._is_gone():
            self.close()
            self.notes.append(f"{self.path}: somebody removed it; records go into the file that is there now")
        if self._base is None:
            self._open()
        base = self._base
        if base is None:
            yield None
            return
        try:
            base.execute("BEGIN IMMEDIATE")
            yield base
            base.execute("COMMIT")
            if self.lost:
                self.notes.append(f"{self.path}: can be written again; {self.lost} records were lost")
                self.lost = 0
        except sqlite3.DatabaseError as problem:
            with contextlib.suppress(sqlite3.Error):
                base.execute("ROLLBACK")
            self._failed(problem)
            if not isinstance(problem, sqlite3.OperationalError):  # malformed under our hands
                base.close()
                self._base = None
                self._put_aside(str(problem))

    def _id(self, base: sqlite3.Connection, unit: str) -> int:
        if unit not in self._units:
            base.execute("INSERT OR IGNORE INTO unit (name) VALUES (?)", (unit,))
            self._units[unit] = int(base.execute("SELECT id FROM unit WHERE name=?", (unit,)).fetchone()[0])
        return self._units[unit]

    def keep(self, look: Look) -> None:
        """One record of this look, in place of one of the same minute."""
        at, c = int(look.at), look.counters
        if abs(look.at - self._pruned) > 3600:
            self._pruned = look.at
            self._prune(look.at)
        with self._writing() as base:
            if base is None:
                return
            unit = self._id(base, look.unit)
            figures = (None,) * 7 if c is None else (
                _whole(c.running), _whole(c.waiting), None if c.kv is None else round(c.kv * 10000), _whole(c.prompt),
                _whole(c.generated), _whole(c.finished), _whole(c.preemptions),
            )  # fmt: skip
            base.execute(
                "INSERT OR REPLACE INTO minute VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (at, unit, look.active, look.health, *figures, look.host, look.host_limit),
            )
            base.executemany(
                "INSERT OR REPLACE INTO card VALUES (?,?,?,?,?,?,?)",
                [(at, unit, one.uuid, one.own, one.others, one.total, one.free) for one in look.cards],
            )

    def event(self, event: UnitEvent) -> None:
        """Write down something that happened."""
        with self._writing() as base:
            if base is not None:
                unit = self._id(base, event.unit)
                base.execute(
                    "INSERT INTO event (at, unit, kind, text) VALUES (?,?,?,?)",
                    (event.at, unit, event.kind, event.text[:_MOST_TEXT]),
                )

    def _prune(self, now: float) -> None:
        """Forget what is too old, then, a day at a time, what is too much."""
        oldest = now - self._keep_s
        while True:
            with self._writing() as base:
                if base is None:
                    return
                for table in ("minute", "card", "event"):
                    base.execute(f"DELETE FROM {table} WHERE at < ?", (oldest,))  # noqa: S608 - our own names
            if self._base is None:
                return
            with contextlib.suppress(sqlite3.Error):
                self._base.execute("PRAGMA incremental_vacuum")
                self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if self.size() < 0.9 * self._keep_bytes or oldest >= now:
                return
            oldest += max(3600.0, self._keep_s / 32)

    def size(self) -> int:
        """Bytes of the file's pages in use."""
        if self._base is None:
            return 0
        pages, free = (self._base.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count"))
        return int(pages - free) * _PAGE

    def close(self) -> None:
        """Nothing more is written."""
        if self._base is not None:
            self._base.close()
            self._base = None


def _whole(value: float | None) -> int | None:
    return None if value is None or not abs(value) < 1 << 62 else int(value)


def _schema(base: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """All that the file says of its tables; SQLite's own entries have no text."""
    rows = base.execute(
        "SELECT type, name, tbl_name, substr(sql, 1, 4000) FROM sqlite_master WHERE sql IS NOT NULL LIMIT 50"
    )
    return frozenset(tuple(str(field) for field in row) for row in rows)


@cache
def _ours() -> frozenset[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.executescript(_TABLES)
        return _schema(base)


class Unreadable(Exception):  # noqa: N818 - it names what the operator meets
    """The store is there and cannot be read; the text says why."""


class Reader:
    """What the store holds. It was written by another user, so nothing in it is run, and reading has a deadline."""

    def __init__(self, path: Path, within_s: float = _READ_S) -> None:
        """Raises FileNotFoundError where there is none, Unreadable where it cannot be read."""
        if not path.exists():
            raise FileNotFoundError(path)
        if not path.is_file():  # a pipe would be waited for, for ever
            raise Unreadable(f"{path}: no file")
        end = time.monotonic() + within_s
        try:
            self._base = _read_only(path)
            self._base.execute("PRAGMA trusted_schema=OFF")
            self._base.set_progress_handler(lambda: int(time.monotonic() > end), 5000)
            made = _schema(self._base)
            version = self._base.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as problem:
            raise Unreadable(f"{path}: {problem}") from None
        if version != SCHEMA or made != _ours():  # a column that is computed would run what its author wrote
            raise Unreadable(f"{path}: no store of this release of vllm-doctor")
        self.path = path

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        try:
            return self._base.execute(query, values).fetchall()
        except (sqlite3.Error, OverflowError) as problem:
            raise Unreadable(f"{self.path}: {problem}") from None

    def _taken(self, kind: type, rows: list[tuple[object, ...]]) -> list[object]:
        """Rows as records; SQLite keeps whatever type was written."""
        fields = [f.name for f in msgspec.structs.fields(kind)]
        try:
            return [msgspec.convert(dict(zip(fields, row, strict=True)), kind, strict=True) for row in rows]
        except (msgspec.ValidationError, UnicodeDecodeError) as wrong:
            raise Unreadable(f"{self.path}: {excerpt.said(str(wrong))}") from None

    def units(self) -> tuple[str, ...]:
        """The units that it knows."""
        return tuple(excerpt.name(str(row[0])) for row in self._rows("SELECT name FROM unit ORDER BY name LIMIT 1000"))

    def minutes(self, unit: str, since: float) -> list[Minute]:
        """Records of a unit, oldest first."""
        rows = self._rows(
            "SELECT m.at, active, health, running, waiting, kv / 10000.0, prompt, generated, finished, preemptions, "
            "host, host_limit FROM minute m JOIN unit u ON u.id = m.unit "
            "WHERE u.name = ? AND m.at >= ? ORDER BY m.at LIMIT 100000",
            unit,
            since,
        )
        return self._taken(Minute, rows)  # type: ignore[return-value]

    def cards(self, unit: str, since: float) -> list[CardMinute]:
        """Records of the memory of a unit's GPUs, oldest first for each."""
        rows = self._rows(
            "SELECT c.at, uuid, own, others, total, free FROM card c JOIN unit u ON u.id = c.unit "
            "WHERE u.name = ? AND c.at >= ? ORDER BY uuid, c.at LIMIT 400000",
            unit,
            since,
        )
        return self._taken(CardMinute, rows)  # type: ignore[return-value]

    def fullest(self, unit: str, since: float) -> list[CardPeak]:
        """Each GPU of a unit at the moment when most of it was held."""
        rows = self._rows(
            "SELECT c.uuid, c.at, c.own, c.others, MAX(c.own + c.others) FROM card c JOIN unit u ON u.id = c.unit "
            "WHERE u.name = ? AND c.at >= ? AND c.own IS NOT NULL AND c.others IS NOT NULL GROUP BY c.uuid LIMIT 64",
            unit,
            since,
        )
        told = [(*row[:4], self._held_by_others(unit, row[0], row[1])) for row in rows]
        return self._taken(CardPeak, told)  # type: ignore[return-value]

    def _held_by_others(self, unit: str, uuid: object, at: object) -> object:
        """What the other units held of this GPU in that record."""
        return self._rows(
            "SELECT COALESCE(SUM(c.own), 0) FROM unit u JOIN card c ON c.unit = u.id AND c.uuid = ? AND c.at = ? "
            "WHERE u.name != ?",
            uuid,
            at,
            unit,
        )[0][0]

    def events(self, unit: str | None, since: float, most: int = 1000) -> list[UnitEvent]:
        """The newest events, oldest first; of all units where none is named."""
        rows = self._rows(
            f"SELECT e.at, substr(u.name, 1, 300), substr(kind, 1, 60), substr(text, 1, {_MOST_TEXT}) "  # noqa: S608
            "FROM event e JOIN unit u ON u.id = e.unit "
            "WHERE (? IS NULL OR u.name = ?) AND e.at >= ? ORDER BY e.at DESC, e.id DESC LIMIT ?",
            unit,
            unit,
            since,
            most,
        )
        return list(reversed(self._taken(UnitEvent, rows)))  # type: ignore[arg-type]

    def close(self) -> None:
        """Done."""
        self._base.close()


def _read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing. Without a writer's files beside it the store is as it stands."""
    address = path.absolute().as_uri()
    still = not path.with_name(path.name + "-wal").exists()
    base = sqlite3.connect(f"{address}?mode=ro{'&immutable=1' if still else ''}", uri=True, timeout=0.5)
    base.execute("PRAGMA query_only=ON")
    return base
