"""The records of weeks in one SQLite file with one writer, the guard; `diagnose`, `history` and `watch` only read it.

It survives a kill (write-ahead log), a full disk (what cannot be written is counted and said) and its own ruin (the
file is kept aside and a new one begun). It is bounded by age and by size. Readers take it for what a stranger wrote.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from vllm_doctor.operate.history.store_format import (
    MOST_TEXT,
    SCHEMA,
    TABLES,
    UnitEvent,
)
from vllm_doctor.records import excerpt
from vllm_doctor.records.sample import Look

_PAGE = 4096
_WAL_BYTES = 4 << 20
_SPOILED = 2


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
                base.executescript(f"BEGIN;{TABLES}PRAGMA user_version={SCHEMA};COMMIT;")
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
                    (event.at, unit, event.kind, event.text[:MOST_TEXT]),
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
