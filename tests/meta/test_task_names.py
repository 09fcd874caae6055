"""The name of a task says what it does, as an imperative: `Install the driver`, not `The driver is there`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
VERBS = {
    "Adopt",
    "Allow",
    "Announce",
    "Apply",
    "Ask",
    "Begin",
    "Block",
    "Bring",
    "Build",
    "Call",
    "Change",
    "Check",
    "Choose",
    "Compare",
    "Compile",
    "Compose",
    "Compute",
    "Configure",
    "Copy",
    "Create",
    "Deal",
    "Decide",
    "Define",
    "Delete",
    "Disable",
    "Download",
    "Drain",
    "Enable",
    "End",
    "Exchange",
    "Exclude",
    "Export",
    "Fail",
    "Fetch",
    "Find",
    "Finish",
    "Forget",
    "Free",
    "Gather",
    "Generate",
    "Give",
    "Hold",
    "Install",
    "Judge",
    "Keep",
    "Learn",
    "Leave",
    "Let",
    "List",
    "Load",
    "Lock",
    "Look",
    "Make",
    "Mark",
    "Name",
    "Note",
    "Open",
    "Override",
    "Pause",
    "Pin",
    "Place",
    "Plan",
    "Postpone",
    "Prepare",
    "Prove",
    "Put",
    "Read",
    "Record",
    "Refresh",
    "Refuse",
    "Reload",
    "Remember",
    "Remove",
    "Render",
    "Repair",
    "Require",
    "Reset",
    "Restart",
    "Restore",
    "Resume",
    "Run",
    "Save",
    "Say",
    "Serve",
    "Set",
    "Show",
    "Skip",
    "Sort",
    "Start",
    "Stop",
    "Take",
    "Tell",
    "Unload",
    "Unlock",
    "Use",
    "Validate",
    "Verify",
    "Wait",
    "Write",
}
FILES = [*REPO.glob("roles/*/tasks/*.yml"), REPO / "site.yml", *REPO.glob("playbooks/*.yml")]


def tasks(items: Any) -> Iterator[str]:
    """The names of tasks, also of those in blocks and plays."""
    for item in items or []:
        if "hosts" not in item and "ansible.builtin.import_playbook" not in item:
            yield str(item.get("name", "without a name"))
        for inner in ("tasks", "pre_tasks", "block", "rescue", "always"):
            yield from tasks(item.get(inner))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(REPO)))
def test_every_task_s_name_begins_with_a_verb(file: Path) -> None:
    names = list(tasks(yaml.safe_load(file.read_text())))
    assert [name for name in names if name.split()[0].strip(",") not in VERBS] == []
