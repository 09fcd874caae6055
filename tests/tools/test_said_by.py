"""The table of who says which sentence grows by a release, and no line of an earlier one moves (release.py said)."""

import json
from pathlib import Path

import release
from releases import said_by

from tests.tools.small_wheel import wheel

LONG = """
def settle(self):
    if self.block > 8:
        raise ValueError(f"this model takes no block of {self.block} tokens")
    assert self.ranks == 1, "only one rank may write the file of this table"
"""
NEXT = """
class Room:
    def opened(self):
        raise NotImplementedError("the door of this room is not yet built in")
"""


def table(folder: Path) -> dict[str, list[str]]:
    return json.loads((folder / "said_by.json").read_text(encoding="utf-8"))


def said(folder: Path, version: str, more: dict[str, str]) -> list[tuple[str, ...]]:
    """Adds the release; each row as (function, kind, file, releases)."""
    assert release.said([wheel(folder, version, more=more)], folder / "said_by.json") == 0
    told = table(folder)
    rows = (row.split() for row in told["rows"])
    named = [(told["functions"][int(f)], told["kinds"][int(k)], told["files"][int(p)], r) for _, p, f, k, r in rows]
    return sorted(row for row in named if "v1/room" in row[2])


def test_a_raise_and_an_assert_with_a_sentence_are_written_down(tmp_path: Path) -> None:
    assert said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": LONG}) == [
        ("settle", "AssertionError", "vllm/v1/room/a.py", "0-"),
        ("settle", "ValueError", "vllm/v1/room/a.py", "0-"),
    ]


def test_a_sentence_that_a_release_lacks_ends_with_the_one_before(tmp_path: Path) -> None:
    said(tmp_path, "0.98.0", {"vllm/v1/room/b.py": LONG})
    first = table(tmp_path)
    rows = said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": NEXT})
    assert [(row[0], row[3]) for row in rows] == [("opened", "1-"), ("settle", "0-0"), ("settle", "0-0")]
    second = table(tmp_path)
    assert second["files"][: len(first["files"])] == first["files"]  # so that no row of the first moves


def test_a_release_in_between_and_one_read_again_find_their_place(tmp_path: Path) -> None:
    for version in ("0.97.0", "0.99.0", "0.98.0", "0.98.0"):
        rows = said(tmp_path, version, {"vllm/v1/room/a.py": LONG})
    assert {row[3] for row in rows} == {"0-"}
    assert table(tmp_path)["releases"] == ["0.97.0", "0.98.0", "0.99.0"]


def test_what_is_no_wheel_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": LONG})
    before = (tmp_path / "said_by.json").read_bytes()
    (tmp_path / "none.whl").write_bytes(b"PK")
    good = wheel(tmp_path, "0.98.0")
    assert release.said([good, tmp_path / "none.whl"], tmp_path / "said_by.json") == 2
    assert (tmp_path / "said_by.json").read_bytes() == before


def test_the_table_reaches_the_newest_release() -> None:
    told = json.loads(said_by.FILE.read_text(encoding="utf-8"))
    newest = max(release.store.versions(), key=release.as_version)
    assert told["releases"][-1] == newest
