"""A date of the planner's table that the code of two releases does not show is told."""

from pathlib import Path

import pytest
from release import main
from releases import dated
from releases.wheel import Wheel
from releases.wheel import read as read_wheel

from tests.tools.small_wheel import wheel
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.plan.behaviour import BehaviourRow

OLD = "class Config:\n    SIZES = 8\n    def check(self):\n        return self.free > 0\n"
NEW = OLD.replace("> 0", ">= 1").replace("8", "16")


def row(source: str, since: str | None = "0.3", until: str | None = None) -> BehaviourRow:
    return BehaviourRow("one", since, until, "what it does", source)


def release(folder: Path, version: str, text: str) -> Wheel:
    folder.mkdir()
    return read_wheel(wheel(folder, version=version, more={"vllm/config/one.py": text}))


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("config/one.py Config.check", True),
        ("config/one.py SIZES", True),
        ("config/one.py", True),
        ("one.py free", True),  # no function: the lines that have it
        ("config/one.py Config.check; envs.py VLLM_X", True),  # one of two places is another
        ("envs.py VLLM_X", False),
        ("config/gone.py Config.check", False),
        ("envs.py VLLM_X (config/one.py says it otherwise)", False),
    ],
)
def test_a_date_shows_where_what_the_row_names_is_another(tmp_path: Path, source: str, shown: bool) -> None:
    old, new = release(tmp_path / "old", "0.2.7", OLD), release(tmp_path / "new", "0.3.0", NEW)
    told = list(dated.unshown(old, new, dated.bounds([row(source)])))
    assert (told == []) == shown
    assert list(dated.unshown(old, new, dated.bounds([row(source, since="0.4")]))) == []  # not between these two


def test_the_line_says_which_date_and_what_is_the_same(tmp_path: Path) -> None:
    old, new = release(tmp_path / "old", "0.2.7", OLD), release(tmp_path / "new", "0.3.0", OLD)
    asked = dated.bounds([row("config/one.py Config.check", since=None, until="0.3")])
    assert list(dated.unshown(old, new, asked)) == [
        "one: until 0.3: config/one.py check says the same in 0.2.7 and 0.3.0"
    ]


def test_the_command_reads_wheels_from_the_oldest_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for version in ("0.19.1", "0.20.0"):
        (tmp_path / version).mkdir()
        files.append(str(wheel(tmp_path / version, version=version)))
    assert main(["dated", *files]) == 0
    assert "estimates_graphs: since 0.20: envs.py VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS" in capsys.readouterr().out
    assert main(["dated", *reversed(files)]) == 2
    assert "0.19.1 after 0.20.0; needed: the oldest release first" in capsys.readouterr().err


def test_each_bound_of_the_table_is_a_release_and_names_a_file() -> None:
    asked = dated.of_table()
    assert len({one.name for one in asked}) > 200
    assert all(one.file.endswith(".py") and one.at >= as_version("0.2") for one in asked)


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("config/one.py One.check, SIZES", [("config/one.py", ("check", "SIZES"))]),
        ("config.py check, later config/one.py", [("config.py", ("check",)), ("config/one.py", ())]),
        ("a.py one, b.py two; vLLM issue 1", [("a.py", ("one",)), ("b.py", ("two",))]),
        ("config/vllm.py (read in a.py)", [("config/vllm.py", ())]),
        ("v1/attention/backends", []),
    ],
)
def test_the_places_of_a_source(source: str, places: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [(one.file, one.names) for one in dated.bounds([row(source)])] == places
