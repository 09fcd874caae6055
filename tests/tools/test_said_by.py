"""The tables of who says which sentence grow by a release, and no line of an earlier one moves (release.py said)."""

import ast
import json
import zipfile
from pathlib import Path

import pytest
import release
from releases import library, said_by
from releases.raised import raised

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


def table(folder: Path, package: str = "vllm") -> dict[str, list[str]]:
    return json.loads((folder / f"{package}.json").read_text(encoding="utf-8"))


def said(folder: Path, version: str, more: dict[str, str]) -> list[tuple[str, ...]]:
    """Adds the release; each row as (function, kind, file, releases)."""
    assert release.said([wheel(folder, version, more=more)], folder) == 0
    told = table(folder)
    rows = (row.split() for row in told["rows"])
    named = [(told["functions"][int(f)], told["kinds"][int(k)], told["files"][int(p)], r) for _, p, f, k, r in rows]
    return sorted(row for row in named if "v1/room" in row[2])


def test_a_raise_and_an_assert_with_a_sentence_are_written_down(tmp_path: Path) -> None:
    assert said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": LONG}) == [
        ("settle", "AssertionError", "vllm/v1/room/a.py", "0-"),
        ("settle", "ValueError", "vllm/v1/room/a.py", "0-"),
    ]


SHORT = """
_TOLD = "the lid of {} is shut"

def shut(self, block):
    message = f"unknown block {block}"
    if block:
        raise KeyError(message)
    message += " of the room"
    if self.lid:
        raise ValueError(_TOLD.format(self.lid))
    elif self.ranks:
        raise ValueError("no door stands for %s" % self.ranks)
    elif self.tables:
        raise ValueError(self.told + " is shut here")
    raise ValueError(message)

def long(self):
    told = f"this model takes no block of {self.block} tokens"
    raise RuntimeError(told)
"""


def test_a_short_sentence_is_written_down_whole_whatever_it_was_put_together_from(tmp_path: Path) -> None:
    assert said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": SHORT}) == [
        ("long", "RuntimeError", "vllm/v1/room/a.py", "0-"),
    ]
    told = table(tmp_path)
    own = [row for row in told["short"] if told["files"][int(row.split()[-4])].endswith("room/a.py")]
    assert [row.partition("\t")[0] for row in own] == [
        "no door stands for {}",
        "the lid of {} is shut",
        "unknown block {}",
        "{} is shut here",
    ]


def test_a_short_sentence_that_a_release_lacks_ends_with_the_one_before(tmp_path: Path) -> None:
    said(tmp_path, "0.98.0", {"vllm/v1/room/b.py": SHORT})
    said(tmp_path, "0.99.0", {"vllm/v1/room/b.py": SHORT.replace("no door stands for", "no window stands for")})
    spans = {row.partition("\t")[0]: row.split()[-1] for row in table(tmp_path)["short"]}
    assert spans["no door stands for {}"] == "0-0"
    assert spans["no window stands for {}"] == "1-"
    assert spans["unknown block {}"] == "0-"


ANSWERS = """
async def create(self, request):
    if request.room:
        return self.create_error_response("this server was started without the room of the request")
    return self.create_error_response(f"no table of this name stands in {self.room}", err_type="NotFoundError")
"""


def test_an_error_that_a_request_is_answered_with_is_written_down_by_its_type(tmp_path: Path) -> None:
    assert said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": ANSWERS}) == [
        ("create", "BadRequestError", "vllm/v1/room/a.py", "0-"),
        ("create", "NotFoundError", "vllm/v1/room/a.py", "0-"),
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


OF_PYTHON = """
def bind(name):
    raise TypeError(f"{name}() got multiple values for argument {name!r}")
"""


def test_what_python_says_itself_tells_nobody(tmp_path: Path) -> None:
    """A binder of arguments in Python's place raises in Python's own words."""
    assert said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": OF_PYTHON}) == []


def test_what_is_no_wheel_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    said(tmp_path, "0.99.0", {"vllm/v1/room/a.py": LONG})
    before = (tmp_path / "vllm.json").read_bytes()
    (tmp_path / "none.whl").write_bytes(b"PK")
    good = wheel(tmp_path, "0.98.0")
    assert release.said([good, tmp_path / "none.whl"], tmp_path) == 2
    assert (tmp_path / "vllm.json").read_bytes() == before


def test_the_table_reaches_the_newest_release() -> None:
    told = table(said_by.FOLDER)
    newest = max(release.store.versions(), key=release.as_version)
    assert told["releases"][-1] == newest


def of_library(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    place = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
        for path, text in files.items():
            archive.writestr(path, text)
    return place


def test_a_library_has_a_table_of_its_own_with_the_files_that_vllm_reaches(tmp_path: Path) -> None:
    files = {"mistral_common/tokens/a.py": LONG, "mistral_common/app/b.py": NEXT, "other/c.py": NEXT}
    old = of_library(tmp_path, "mistral_common", "1.8.5", {**files, "mistral_common/d.py": NEXT})
    new = of_library(tmp_path, "Mistral.Common", "1.11.0+cu1", files)
    assert release.said([old, new], tmp_path) == 0
    told = table(tmp_path, "mistral-common")
    assert told["releases"] == ["1.8.5", "1.11.0"]
    assert told["files"] == ["mistral_common/d.py", "mistral_common/tokens/a.py"]
    assert sorted(row.split()[-1] for row in told["rows"]) == ["0-", "0-", "0-0"]
    assert not (tmp_path / "vllm.json").exists()


@pytest.mark.parametrize(
    ("name", "version", "file"),
    [("idle", "1.0", "idle/a.py"), ("torch", "2.9.0.dev1", "torch/hub.py"), ("torch", "2.9.0", "torch/other.py")],
)
def test_what_is_no_release_of_a_library_that_is_listed_is_refused(
    tmp_path: Path, name: str, version: str, file: str
) -> None:
    assert release.said([of_library(tmp_path, name, version, {file: LONG})], tmp_path) == 2
    assert not list(tmp_path.glob("*.json"))


def test_every_library_that_is_listed_has_a_table() -> None:
    ours = {said_by.OWN, said_by.COMPILED}
    assert {file.stem for file in said_by.FOLDER.glob("*.json")} == {*library.libraries(), *ours}


def test_a_sentence_stands_in_its_classes_and_functions() -> None:
    """Refusals that name an option are read by the same walk, and tell the class too."""
    found = list(raised(ast.parse(NEXT)))
    assert [(one.where, one.function, one.kind) for one in found] == [("Room.opened", "opened", "NotImplementedError")]
