"""A log of a report becomes the draft of a known issue (tools/known_issues.py)."""

import json
import zipfile
from pathlib import Path

import known_issues
import pytest

from vllm_doctor.knowledge.known_issues import Issue, Proof

ADDRESS = "https://github.com/vllm-project/vllm/issues/1"
TORN = """\
Traceback (most recent call last):
  File "/opt/v/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 341, in run
    self.step()
  File "/opt/v/lib/python3.12/site-packages/vllm/v1/example.py", line 41, in peculiar
    return table[place]
IndexError: place 41 of 'example' is not in a table of 7
"""


def test_a_draft_matches_what_it_was_made_of(tmp_path: Path) -> None:
    log = tmp_path / "report.log"
    log.write_text(TORN, encoding="utf-8")
    made = known_issues.draft(str(log), ADDRESS)
    assert isinstance(made, dict)
    assert made["said"] == "place .{1,200} of .{1,200} is not in a table of .{1,200}"
    assert made["calls"] == [r"engine/core\.py:run$", r"v1/example\.py:peculiar$"]
    assert Issue(**{k: v for k, v in made.items() if k not in {"calls", "answers", "proof"}}).kind == "IndexError"


def test_a_log_without_a_failure_gives_no_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "report.log"
    log.write_text("INFO:     Application startup complete.\n", encoding="utf-8")
    assert known_issues.main(["draft", str(log), ADDRESS]) == 1
    assert "no traceback" in capsys.readouterr().out


def test_the_draft_is_printed_as_an_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "report.log"
    log.write_text(TORN, encoding="utf-8")
    assert known_issues.main(["draft", str(log), ADDRESS]) == 0
    assert json.loads(capsys.readouterr().out)["address"] == ADDRESS


def test_the_check_counts_the_entries_that_a_release_has_mended(capsys: pytest.CaptureFixture[str]) -> None:
    status = known_issues.main(["check", "0.32.0"])
    told = capsys.readouterr().out
    assert "known issues" in told
    assert (status == 0) == told.endswith(" 0 of them mended in 0.32.0\n")


def test_what_is_no_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert known_issues.main(["check", "newest"]) == 2
    assert "not a release" in capsys.readouterr().err


def test_the_queue_counts_the_same_failure_once_however_its_numbers_differ(tmp_path: Path) -> None:
    logs = {"a": TORN, "b": TORN.replace("41 of", "7 of"), "c": "INFO:     Application startup complete.\n"}
    for name, text in logs.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    rows = known_issues.queue([str(tmp_path / name) for name in logs])
    assert rows == [(2, "IndexError: place * of * is not in a table of * in example.py:peculiar", str(tmp_path / "a"))]


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    assert len(known_issues.sample(30, 1)) == 30
    assert known_issues.sample(30, 1) == known_issues.sample(30, 1) != known_issues.sample(30, 2)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("assert x\n", "assert y\n", None),
        ("assert x\n", "assert x\n", "2.0 still has in a/core.py: assert x"),
        ("assert y\n", "assert y\n", "1.0 does not have in a/core.py: assert x"),
    ],
)
def test_a_line_that_went_proves_a_mend(tmp_path: Path, before: str, after: str, told: str | None) -> None:
    write(tmp_path / "vllm-1.0/a/core.py", before)
    write(tmp_path / "vllm-2.0/a/core.py", after)
    assert refuted(tmp_path, gone="assert x") == told


def test_a_line_that_went_into_another_folder_proves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "vllm-1.0/a/core.py", "assert x\n")
    write(tmp_path / "vllm-2.0/b/core.py", "assert x\n")
    assert refuted(tmp_path, gone="assert x") == "2.0 still has in b/core.py: assert x"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("", "if x:\n", None),
        ("if x:\n", "if x:\n", "1.0 already has in a/core.py: if x:"),
        ("", "", "2.0 does not have in a/core.py: if x:"),
    ],
)
def test_a_line_that_came_proves_a_mend(tmp_path: Path, before: str, after: str, told: str | None) -> None:
    write(tmp_path / "vllm-1.0/a/core.py", before)
    write(tmp_path / "vllm-2.0/a/core.py", after)
    assert refuted(tmp_path, came="if x:") == told


def test_a_release_whose_code_is_not_there_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert known_issues.main(["prove", str(tmp_path)]) == 1
    assert "release not in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("calls", "since", "told"),
    [
        (r"old\.py:take$", None, []),
        (r"torch/nn\.py:forward$", None, []),
        (r"new\.py:", None, [r"2.0 has, and 1.0 does not: new\.py:"]),
        (r"old\.py:take$", "0.9", [r"0.9 does not have, and 1.0 does: old\.py:take$"]),
    ],
)
def test_the_calls_of_an_entry_stand_in_the_releases_it_is_met_in(
    tmp_path: Path, calls: str, since: str | None, told: list[str]
) -> None:
    write(tmp_path / "vllm-0.9/vllm/old.py", "def give():\n")
    write(tmp_path / "vllm-1.0/vllm/old.py", "def take():\n    assert x\n")
    write(tmp_path / "vllm-2.0/vllm/new.py", "async def take():\n")
    proof = Proof(last="1.0", first="2.0", file="vllm/old.py", gone="assert x")
    assert (
        known_issues.misplaced(Issue("id", "", "", "", "", calls=(calls,), since=since, proof=(proof,)), tmp_path)
        == told
    )


LINE = "def take():\n    assert x\n"


@pytest.mark.parametrize(
    ("before", "first", "calls", "told"),
    [
        ("def take():\n    assert y\n", LINE, r"old\.py:take$", []),
        (LINE, LINE, r"old\.py:take$", [r"0.9 has as well: old\.py:take$, assert x"]),
        ("def give():\n    assert x\n", LINE, r"old\.py:take$", []),
        (LINE, "def take():\n    assert y\n", r"old\.py:", ["1.0 does not have: assert x"]),
    ],
)
def test_an_entry_whose_first_release_the_code_does_not_show_is_to_be_read(
    tmp_path: Path, before: str, first: str, calls: str, told: list[str]
) -> None:
    for release, text in {"0.9": before, "1.0": first, "1.1": LINE, "2.0": "def take():\n"}.items():
        write(tmp_path / f"vllm-{release}/vllm/old.py", text)
    proof = Proof(last="1.1", first="2.0", file="vllm/old.py", gone="assert x")
    one = Issue("id", "", "", "", "", code="assert x", calls=(calls,), since="1.0", fixed="2.0", proof=(proof,))
    assert known_issues.begun(one, tmp_path) == told


def test_a_file_alone_does_not_say_that_an_entry_begins_earlier(tmp_path: Path) -> None:
    for release in ("0.9", "1.0"):
        write(tmp_path / f"vllm-{release}/vllm/old.py", LINE)
    assert known_issues.begun(Issue("id", "", "", "", "", calls=(r"old\.py:",), since="1.0"), tmp_path) == []
    assert known_issues.begun(Issue("id", "", "", "", "", calls=(r"old\.py:take$",)), tmp_path) == []


NEWER = "2.0 does not have, and 1.0 does: "


@pytest.mark.parametrize(
    ("newest", "fixed", "told"),
    [
        ("def take():\n    assert x\n    config.width\n", None, []),
        ("def take():\n    assert y\n    config.width\n", None, ["assert x"]),
        ("def take():\n    assert x\n    config.get('w')\n", None, ["width"]),
        ("def give():\n    assert x\n    config.width\n", None, [r"old\.py:take$", "assert x", "width"]),
        ("def give():\n", "2.0", []),
    ],
)
def test_the_last_release_of_an_entry_has_its_calls_its_line_and_the_name_that_its_message_misses(
    tmp_path: Path, newest: str, fixed: str | None, told: list[str]
) -> None:
    write(tmp_path / "vllm-1.0/vllm/old.py", "def take():\n    assert x\n    config.width\n")
    write(tmp_path / "vllm-2.0/vllm/old.py", newest)
    one = Issue(
        *("id", "", "", "", ""),
        said="'Config' object has no attribute 'width'",
        code="assert x",
        calls=(r"old\.py:take$", r"torch/nn\.py:forward$"),
        fixed=fixed,
    )
    assert known_issues.outlived(one, tmp_path) == [NEWER + what for what in told]


@pytest.mark.parametrize(
    ("older", "told"),
    [
        ("def take():\n    assert x\n", ["1.0: vllm/older.py:take"]),
        ("def take():\n    assert y\n", []),
        ("def give():\n    assert x\n", []),
    ],
)
def test_a_call_whose_function_stood_in_another_file_is_told(tmp_path: Path, older: str, told: list[str]) -> None:
    write(tmp_path / "vllm-1.0/vllm/older.py", older)
    write(tmp_path / "vllm-2.0/vllm/old.py", "def take():\n    assert x\n")
    one = Issue("id", "", "", "", "", code="assert x", calls=(r"old\.py:take$", r"torch/nn\.py:take$"))
    assert known_issues.moved(one, tmp_path) == told


def test_a_post_release_without_the_line_ends_no_entry(tmp_path: Path) -> None:
    write(tmp_path / "vllm-1.0/vllm/old.py", "def take():\n    assert x\n")
    write(tmp_path / "vllm-1.0.post1/vllm/old.py", "def take():\n")
    one = Issue("id", "", "", "", "", code="assert x", calls=(r"old\.py:take$",))
    assert known_issues.outlived(one, tmp_path) == []


def test_calls_are_found_in_a_wheel_as_in_a_folder(tmp_path: Path) -> None:
    wheel(tmp_path / "vllm-1.0-py3-none-any.whl", {"vllm/old.py": "def take():\n"})
    code = known_issues._release(tmp_path, "vllm", "1.0")
    assert code is not None
    assert known_issues.has_call(code, r"vllm/old\.py:take$")
    assert not known_issues.has_call(code, r"vllm/old\.py:give$")


def test_a_wheel_is_read_as_a_folder_is_and_by_its_package(tmp_path: Path) -> None:
    wheel(tmp_path / "a_package-1.0-py3-none-any.whl", {"a/core.py": "assert x\n"})
    wheel(tmp_path / "a_package-2.0-py3-none-any.whl", {"b/core.py": "assert y\n"})
    assert refuted(tmp_path, package="a-package", gone="assert x") is None
    assert refuted(tmp_path, gone="assert x") == f"release not in {tmp_path}: vllm 1.0, vllm 2.0"
    wheel(tmp_path / "a_package-2.0-py3-none-any.whl", {"b/core.py": "assert x\n"})
    assert refuted(tmp_path, package="a-package", gone="assert x") == "2.0 still has in b/core.py: assert x"


def refuted(sources: Path, **line: str) -> str | None:
    proof = Proof(last="1.0", first="2.0", file="a/core.py", **line)
    return known_issues.refuted(proof, sources)


def wheel(file: Path, files: dict[str, str]) -> None:
    with zipfile.ZipFile(file, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
