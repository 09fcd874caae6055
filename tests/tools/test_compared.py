"""A known issue claims a release only where somebody has compared what its failing line rests on."""

import textwrap
from dataclasses import replace as changed
from pathlib import Path

import known_issues
import msgspec
import pytest
from releases.compared import Compared, compared, compared_packages, runs, uncompared
from releases.compared_packages import unshown
from releases.comparing import Found, differences, kept
from releases.failing_places import Place, Release, rests_on

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.known_issues import Issue, Proof, issues
from vllm_doctor.records.verdict import Direction

RELEASES = ("1.0", "1.1", "1.2", "1.3")
TAKE = "def take(config):\n    assert config.width\n"
PLACE = Place((r"old\.py:",), "assert config\\.width", "")


def issue(since: str | None = None, fixed: str | None = None) -> Issue:
    return Issue(*("id", "", "", "", ""), code="assert config\\.width", calls=(r"old\.py:",), since=since, fixed=fixed)


def rests(text: str, place: Place = PLACE) -> str:
    return rests_on(place, Release({"vllm/old.py": textwrap.dedent(text)}))[1]


# Entries of before the comparison that are still to be read: a reading takes one away, none is added.
TO_READ = 0
TO_READ_OF_PACKAGES = 8


def test_no_entry_claims_a_release_that_nobody_has_compared() -> None:
    releases, known = compared()
    told = [one.id for one in issues() if uncompared(one, known.get(one.id), releases)]
    assert len(told) <= TO_READ, told


def test_no_entry_claims_a_release_of_another_package_that_nobody_has_compared() -> None:
    told = [one.id for one in issues() if known_issues.of_packages(one)]
    assert len(told) <= TO_READ_OF_PACKAGES, told


def test_each_row_is_of_an_entry() -> None:
    _, known = compared()
    assert list(known) == [one.id for one in issues()]
    assert {name for _, rows in compared_packages().values() for name in rows} <= known.keys()


def test_an_entry_without_a_place_says_whose_code_fails() -> None:
    _, known = compared()
    assert [name for name, row in known.items() if bool(row.bodies) == bool(row.nowhere)] == []


@pytest.mark.parametrize(
    ("since", "fixed", "bodies", "read", "told"),
    [
        ("1.1", "1.3", "1.0 -, 1.1-1.2 aa, 1.3 bb", "aa", []),
        ("1.1", "1.3", "1.0 -, 1.1 aa, 1.2 cc, 1.3 bb", "aa", ["1.2: nobody has read what it rests on there (cc)"]),
        ("1.1", "1.3", "1.0 -, 1.1 aa, 1.2 cc, 1.3 bb", "aa cc", []),
        ("1.1", "1.3", "1.0-1.2 aa, 1.3 bb", "aa", ["1.0: fails alike, beside its releases"]),
        ("1.1", "1.3", "1.0 -, 1.1-1.3 aa", "aa", ["1.3: fails alike, beside its releases"]),
        ("1.1", "1.2", "1.0 -, 1.1 aa, 1.2 -, 1.3 aa", "aa", ["1.3: fails alike, beside its releases"]),
        ("1.1", "1.3", "1.0-1.1 -, 1.2 aa, 1.3 bb", "aa", ["1.1: the place where it fails is not there"]),
        (None, "1.3", "1.0-1.1 -, 1.2 aa, 1.3 bb", "aa", []),
        (None, None, "1.0 -, 1.1-1.2 aa, 1.3 -", "aa", ["1.3: the place where it fails is not there"]),
        (None, None, "1.0-1.2 aa", "aa", ["1.3: nobody has compared it"]),
        ("1.1", "1.3", "1.0-1.3 -", "", ["no release of it has the place where it fails"]),
    ],
)
def test_what_an_entry_claims_is_held_against_what_was_read(
    since: str | None, fixed: str | None, bodies: str, read: str, told: list[str]
) -> None:
    assert uncompared(issue(since, fixed), Compared(bodies=bodies, read=read), RELEASES) == told


def test_a_reason_stands_for_a_border_and_never_for_what_is_unread() -> None:
    row = Compared(bodies="1.0-1.1 aa, 1.2 cc, 1.3 aa", read="aa", but="its default changed")
    assert uncompared(issue("1.1", "1.3"), row, RELEASES) == ["1.2: nobody has read what it rests on there (cc)"]


def test_an_entry_that_nobody_has_placed_is_told() -> None:
    assert uncompared(issue(), None, RELEASES)[0].startswith("nobody has said where it fails")
    assert uncompared(issue(), Compared(nowhere="another package"), RELEASES) == []


def test_what_does_not_lead_to_the_line_changes_nothing() -> None:
    other = '''
    def take(config: Config) -> int:
        """Words."""
        logger.info("taken")
        other(config)
        assert config.width  # why
        return 7
    '''
    assert rests(other) == rests(TAKE) != ""


@pytest.mark.parametrize(
    "other",
    [
        "def take(config):\n    if config.on:\n        assert config.width\n",
        "def take(config):\n    if not config.on:\n        return\n    assert config.width\n",
        "def take(config):\n    config = given()\n    assert config.width\n",
        "def take(config):\n    try:\n        assert config.width\n    except AssertionError:\n        pass\n",
        "def take(config):\n    if config.on:\n        pass\n    else:\n        assert config.width\n",
        TAKE + "\ndef give(config):\n    if config.on:\n        take(config)\n",
    ],
)
def test_what_leads_to_the_line_is_told_apart(other: str) -> None:
    assert rests(other) != rests(TAKE)
    assert rests(other)


def test_the_same_line_in_another_file_rests_on_the_same() -> None:
    moved = Release({"vllm/new/old.py": TAKE, "vllm/other.py": TAKE})
    assert rests_on(PLACE, moved) == (["vllm/new/old.py:take"], rests(TAKE))


def test_a_sentence_is_found_where_it_is_raised() -> None:
    text = "def take(n):\n    if n > 7:\n        raise ValueError(f'{n} is more '\n            'than the room is')\n"
    found = rests(text, Place((), "", r"\d+ is more than the room is"))
    assert "if n > 7" in found
    assert rests(text, Place((), "", "is less than the room")) == ""


def test_a_function_without_its_line_is_compared_as_a_whole() -> None:
    text = "def take(config):\n    return config.width\n"
    assert rests(text, Place((r"old\.py:take$",), "", "no attribute 'width'")) == text.strip()


def test_two_releases_that_share_a_file_read_it_once() -> None:
    first = Release({"vllm/old.py": TAKE})
    second = Release({"vllm/moved.py": TAKE}, first)
    assert second.files["vllm/moved.py"] is first.files["vllm/old.py"]


def test_what_was_read_and_is_no_longer_there_is_forgotten() -> None:
    found = {"1.0": Found(("vllm/old.py:take",), "a"), "1.1": Found(("vllm/old.py:take",), "b")}
    row = kept(Compared(read=f"{found['1.0'].digest} 000000"), found)
    assert row.read == found["1.0"].digest
    assert row.bodies == f"1.0 {found['1.0'].digest}, 1.1 {found['1.1'].digest}"
    assert row.where == "vllm/old.py:take"


def test_a_release_that_is_not_there_now_keeps_what_was_found() -> None:
    row = Compared(where="vllm/old.py:take", bodies="1.0-1.1 aa", read="aa")
    assert kept(row, {"1.2": Found((), "")}, RELEASES) == Compared(
        where="vllm/old.py:take", bodies="1.0-1.1 aa, 1.2 -", read="aa"
    )


def test_what_a_person_said_of_another_package_stays() -> None:
    row = Compared(nowhere="another package fails")
    assert kept(row, {"1.0": Found(("vllm/old.py:take",), "a")}) == row


def test_the_differences_are_what_there_is_to_read() -> None:
    found = {"1.0": Found(("f",), "a\nb"), "1.1": Found(("f",), "a\nb"), "1.2": Found(("f",), "a\nc")}
    assert [row for row in differences(found) if row[0] in "+-" and "---" not in row] == ["-b", "+c"]


def test_runs_of_releases_are_read_back() -> None:
    found = {"1.0": "aa", "1.1": "aa", "1.2": "-", "1.3": "bb"}
    assert Compared(bodies=runs(found)).digests(RELEASES) == found


def test_the_command_keeps_what_it_found_and_marks_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_rows: dict[str, Compared] = {}
    monkeypatch.setattr(known_issues, "issues", lambda: (issue("1.0", "1.2"),))
    monkeypatch.setattr(known_issues, "compared", lambda: ((), {}))
    monkeypatch.setattr(known_issues, "write", lambda vllm, _: kept_rows.update(vllm[1]))
    for release, text in {"1.0": TAKE, "1.1": TAKE, "1.2": "def take(config):\n    pass\n"}.items():
        (tmp_path / f"vllm-{release}/vllm").mkdir(parents=True)
        (tmp_path / f"vllm-{release}/vllm/old.py").write_text(text, encoding="utf-8")
    assert known_issues.main(["compare", str(tmp_path), "id", "--read"]) == 0
    assert "assert config.width" in capsys.readouterr().out
    digest = kept_rows["id"].read
    assert kept_rows["id"].bodies == f"1.0-1.1 {digest}, 1.2 -"


def test_a_source_that_is_no_python_of_today_has_no_place() -> None:
    assert rests_on(PLACE, Release({"vllm/old.py": "assert config.width print 1\n"})) == ([], "")


def installs(to: str, command: str | None = None) -> Issue:
    answer = Answer(kind="package", options=("openai",), direction=Direction.UPGRADE, to=to, command=command, why="")
    return msgspec.structs.replace(issue(), answers=(answer,))


def proved(last: str, first: str) -> Issue:
    return msgspec.structs.replace(
        issue(), proof=(Proof(package="openai", last=last, first=first, file="a.py", gone="b"),)
    )


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (installs("1.2"), []),
        (installs("1.1"), ["'openai==1.1' permits what fails alike: 1.1"]),
        (installs("1.2", "pip install 'openai>=1.1'"), ["'openai>=1.1' permits what fails alike: 1.1"]),
        (installs("1.2", "pip install -U 'openai[x]>=1.2,<2'   # openai==1.1 before"), []),
        (installs("1.5"), ["'openai==1.5': no release of it was compared"]),
        (installs("<1.2"), ["'openai<1.2' permits what fails alike: 1.1"]),
        (proved("1.1", "1.2"), []),
        (proved("1.0", "1.1"), []),
        (proved("1.2", "1.3"), ["openai 1.2 and 1.3 of its proof fail alike, or nobody has compared them"]),
    ],
)
def test_what_an_entry_says_of_a_package_is_held_against_its_releases(one: Issue, told: list[str]) -> None:
    row = Compared(bodies="1.0 -, 1.1 aa, 1.2-1.3 bb", read="aa", but="an older one than vLLM asks for")
    assert unshown(one, "openai", row, RELEASES) == told


def test_vllm_meets_a_package_where_it_permits_a_release_that_fails() -> None:
    row = Compared(bodies="1.91.0 -, 1.92.0-1.99.1 aa, 2.25.0 bb", read="- aa")
    releases = ("1.91.0", "1.92.0", "1.99.1", "2.25.0")
    assert unshown(issue("0.10.1", "0.19.0"), "openai", row, releases) == [
        "0.4.3 to 0.9.1: requires openai>=1.52.0, of which some fail alike, beside its releases"
    ]
    assert unshown(issue("0.10.1"), "openai", row, releases)[0] == (
        "0.19.0 to 0.33.0: requires openai>=2.25.0, of which none fails"
    )


def test_a_release_of_a_package_that_nobody_has_compared_is_told() -> None:
    row = Compared(bodies="1.0 aa", read="aa", but="why")
    assert unshown(issue(), "openai", row, ("1.0", "1.1")) == ["openai 1.1: nobody has compared it"]
    assert unshown(issue(), "openai", Compared(bodies="1.0 aa"), ("1.0",)) == [
        "no release of openai that was compared fails"
    ]


def test_what_a_file_defines_outside_of_its_functions_is_a_place() -> None:
    of = Place((r"old\.py:<module>",), r"class Wide\b", "")
    assert rests("class Wide(Base):\n    width = 7\n", of) == "class Wide(Base):\n    width = 7"
    assert rests("def take():\n    class Wide:\n        pass\n", of) == ""
    assert "if new:" in rests("if new:\n    from a import (\n        Wide,\n    )\n", changed(of, code=r"\bWide,"))
