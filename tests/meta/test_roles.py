"""What holds for every role, read from its files."""

import re
from pathlib import Path

import pytest

ROLES = Path(__file__).resolve().parents[2] / "roles"
TASKS = sorted(
    path for kind in ("tasks", "handlers") for path in ROLES.glob(f"*/{kind}/*.yml") if "molecule" not in path.parts
)


def test_there_are_tasks_to_read() -> None:
    assert len(TASKS) > 40


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(ROLES)))
def test_no_task_reads_the_text_of_nvidia_smi(path: Path) -> None:
    """Its own manual calls the text no stable interface; the local fact and preflight_facts ask NVML and sysfs."""
    commands = [line for line in path.read_text().splitlines() if "nvidia-smi" in line and "msg" not in line]
    assert not [line for line in commands if re.search(r"(command|shell|argv|cmd):", line)]
