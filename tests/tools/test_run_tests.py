"""make test leaves no room of the Python tests out, and none is run twice."""

from pathlib import Path

import run_tests
from podman import REPO

TESTS = REPO / "tests"
# Jobs that boot hosts.
ON_HOSTS = {"tests/sandbox", "tests/site"}


def rooms() -> set[str]:
    """The folders of tests, wherever in them a file of tests lies."""
    return {f"tests/{path.relative_to(TESTS).parts[0]}" for path in TESTS.rglob("test_*.py")}


def chosen(words: list[str]) -> set[str]:
    """The rooms of which pytest is given these words."""
    named = {word for word in words if word.startswith("tests/")}
    left_out = {word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")}
    assert all(Path(REPO, room).is_dir() for room in named | left_out)
    return named or rooms() - left_out


def test_each_room_is_run_by_one_process() -> None:
    jobs = [chosen(job.command) for job in run_tests.python_tests()]
    run = [room for job in jobs for room in job]
    assert len(run) == len(set(run))
    assert set(run) == rooms() - ON_HOSTS


def test_the_jobs_write_different_logs() -> None:
    names = [job.name for job in (*run_tests.python_tests(), *run_tests.on_hosts_of_their_own())]
    assert len(set(names)) == len(names)
