"""The store as `diagnose`, `history` and `watch` read it, for what a stranger wrote."""

import sqlite3
import time
from pathlib import Path

import msgspec

from vllm_doctor.operate.history.store_format import (
    MOST_TEXT,
    SCHEMA,
    CardMinute,
    CardPeak,
    Minute,
    UnitEvent,
    our_schema,
    schema_of,
)
from vllm_doctor.records import excerpt

_READ_S = 1.0


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
            made = schema_of(self._base)
            version = self._base.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as problem:
            raise Unreadable(f"{path}: {problem}") from None
        if version != SCHEMA or made != our_schema():  # a column that is computed would run what its author wrote
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
            f"SELECT e.at, substr(u.name, 1, 300), substr(kind, 1, 60), substr(text, 1, {MOST_TEXT}) "  # noqa: S608
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
