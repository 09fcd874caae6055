"""The store under what happens to files: a kill, no room, ruin, age, and a reader who trusts nobody."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_format import UnitEvent
from vllm_doctor.operate.history.store_reader import Reader, Unreadable
from vllm_doctor.records.sample import CardUse, Counters, Look

UNIT = "vllm@main.service"
NOW = 1_700_000_000.0
CARD = CardUse("GPU-1", 10 << 30, 0, 80 << 30, 70 << 30)


def look(at: float = NOW, **more: object) -> Look:
    counters = Counters(running=2, waiting=1, kv=0.5, prompt=10, generated=20, finished=3, preemptions=0)
    facts: dict[str, object] = {"counters": counters, "host": 5 << 30, "host_limit": 64 << 30, "cards": (CARD,)}
    return Look(UNIT, at, 0, 0, **(facts | more))  # type: ignore[arg-type]


def test_what_is_kept_is_read_again_and_the_writer_is_not_held_up(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    store = Store(path)
    store.keep(look())
    store.event(UnitEvent(NOW, UNIT, "started", "x" * 5000))
    reader = Reader(path)
    row = reader.minutes(UNIT, 0)[0]
    assert (row.running, row.waiting, row.kv, row.generated, row.host) == (2, 1, 0.5, 20, 5 << 30)
    assert (reader.cards(UNIT, 0)[0].own, reader.units()) == (10 << 30, (UNIT,))
    assert len(reader.events(None, 0)[0].text) == 2000
    store.keep(look(NOW + 60))
    assert store.lost == 0
    assert len(reader.minutes(UNIT, NOW + 1)) == 1
    store.close()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    assert len(Reader(path).minutes(UNIT, 0)) == 2  # a store whose writer is gone, where nothing can be written
    tmp_path.chmod(0o755)


WRITER = """
import sys
from pathlib import Path
from tests.operate.guard.test_store import look, NOW
from vllm_doctor.operate.history.store import Store
store = Store(Path(sys.argv[1]))
for n in range(10**9):
    store.keep(look(NOW + 60 * n))
    print(n, flush=True)
"""


def test_a_writer_that_is_killed_leaves_all_that_it_had_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )
    assert writer.stdout is not None
    last = [writer.stdout.readline() for _ in range(200)][-1]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    again = Store(path)
    assert again.notes == []
    assert len(Reader(path).minutes(UNIT, 0)) >= int(last) + 1


def test_no_room_loses_records_says_so_once_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.sqlite", keep_mib=1)
    for n in range(2000):
        store.event(UnitEvent(NOW + n, UNIT, "kernel", "y" * 1900))
    assert store.lost > 0
    assert [n for n in store.notes if "records are lost (database or disk is full)" in n] == store.notes
    lost = store.lost
    store.keep(look(NOW + 400 * 86400))  # all that is too old goes first
    assert store.lost == 0
    assert store.notes[-1].endswith(f"can be written again; {lost} records were lost")


def test_a_folder_that_cannot_be_written_is_said_and_nothing_raises() -> None:
    store = Store(Path("/proc/self/history.sqlite"))
    store.keep(look())
    assert store.lost > 0
    assert "unable to open database file" in store.notes[0]


def test_what_another_left_in_its_place_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for _ in range(4):
        path.mkdir()
        (path / "what.txt").write_text("is whose")
        time.sleep(0.002)
        store = Store(path)
        assert "not readable (it is not a regular file of this user); kept as history.sqlite.spoiled-" in store.notes[0]
        store.keep(look())
        assert store.lost == 0
        store.close()
        path.unlink()
    assert len(list(tmp_path.glob("*.spoiled-*/what.txt"))) == 4  # a folder is nobody's to remove


@pytest.mark.parametrize("ruin", [b"nonsense" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_ruined_store_is_kept_aside_said_and_begun_anew(tmp_path: Path, ruin: bytes) -> None:
    path = tmp_path / "history.sqlite"
    for _ in range(4):
        path.write_bytes(ruin)
        time.sleep(0.002)
        store = Store(path)
        assert "a new store was begun" in store.notes[0]
        store.keep(look())
        assert store.lost == 0
        store.close()
    aside = [p for p in tmp_path.iterdir() if "spoiled" in p.name]
    assert len(aside) == 2  # the older ones are gone
    assert all(p.read_bytes() == ruin for p in aside)


def test_a_page_that_is_ruined_inside_is_found_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    store = Store(path)
    for n in range(500):
        store.keep(look(NOW + 60 * n))
    store.close()
    data = bytearray(path.read_bytes())
    data[3 * 4096 + 100 : 6 * 4096] = os.urandom(3 * 4096 - 100)
    path.write_bytes(data)
    assert "a new store was begun" in Store(path).notes[0]


def test_what_is_older_than_asked_goes_and_what_is_too_much_goes_by_age(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    store = Store(path, keep_days=1, keep_mib=1)
    for n in range(0, 3 * 1440, 2):
        store.keep(look(NOW + 60 * n))
    rows = Reader(path).minutes(UNIT, 0)
    assert rows[-1].at - rows[0].at <= 25 * 3600
    assert path.stat().st_size <= 1 << 20
    assert store.lost == 0


@pytest.mark.parametrize(
    "word",
    [
        "DROP TABLE event; CREATE TABLE event (at REAL, unit INTEGER, kind TEXT, big BLOB, text AS (instr(big, big)))",
        "CREATE TRIGGER seen AFTER INSERT ON event BEGIN SELECT 1; END",
        "CREATE TABLE more (x)",
    ],
)
def test_a_store_with_more_in_it_than_ours_is_not_read(tmp_path: Path, word: str) -> None:
    path = tmp_path / "history.sqlite"
    Store(path).close()
    base = sqlite3.connect(path)
    base.executescript(word)
    base.close()
    with pytest.raises(Unreadable, match="no store of this release"):
        Reader(path)


def test_a_reader_runs_nothing_that_the_store_brings_along(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    Store(path).close()
    base = sqlite3.connect(path)
    base.executescript(
        "DROP TABLE event; CREATE VIEW event AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) "
        "SELECT x AS id, x AS at, 1 AS unit, 'a' AS kind, 'b' AS text FROM r;"
    )
    base.close()
    with pytest.raises(Unreadable, match="no store of this release"):
        Reader(path)


def test_a_value_of_another_type_is_unreadable_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    store = Store(path)
    store.keep(look())
    store.close()
    base = sqlite3.connect(path)
    base.execute("UPDATE minute SET running = 'many'")
    base.commit()
    base.close()
    with pytest.raises(Unreadable, match="running"):
        Reader(path).minutes(UNIT, 0)
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "none")


@pytest.mark.parametrize("gone", ["history.sqlite", "history.sqlite-wal"])
def test_a_file_that_was_taken_away_under_the_writer_is_begun_anew_and_that_is_said(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "history.sqlite"
    store = Store(path)
    store.keep(look())
    (tmp_path / gone).unlink()
    store.keep(look(NOW + 60))
    assert store.notes == [f"{path}: somebody removed it; records go into the file that is there now"]
    assert [row.at for row in Reader(path).minutes(UNIT, NOW + 1)] == [NOW + 60]
    store.close()
