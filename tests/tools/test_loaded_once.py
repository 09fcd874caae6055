"""What the templates of tasks need is loaded by the process that tasks are forked from, not by each of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
# A filter of a role that is included in the middle of the run, which writes down who loads it.
FILTER = """
import os
from pathlib import Path
with Path({file!r}).open("a") as file:
    file.write(f"{{os.getpid()}} {{os.getppid()}}\\n")
class FilterModule:
    def filters(self):
        return {{"twice": lambda value: value * 2}}
"""
PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  vars: {site_reports: ""}
  tasks:
    - ansible.builtin.include_role: {name: LATE}
"""
TASKS = """
- ansible.builtin.debug: {msg: "{{ 'one' | TWICE }}"}
- ansible.builtin.debug: {msg: "{{ 'two' | TWICE }}"}
"""
COLLECTION = "collections/ansible_collections/of/site"


def loaded_by(folder: Path, role: str, filters: str, prefix: str) -> list[str]:
    """The processes that loaded the role's filter in a run over three hosts, each with its parent."""
    file = folder / "loaded"
    tasks = TASKS.replace("TWICE", f"{prefix}twice")
    for name, text in ((f"{filters}/twice.py", FILTER.format(file=str(file))), (f"{role}/tasks/main.yml", tasks)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    (folder / "play.yml").write_text(PLAY.replace("LATE", f"{prefix}late"))
    played = subprocess.Popen(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "a,b,c,", folder / "play.yml"],
        cwd=REPO,
        env={
            **os.environ,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_ROLES_PATH": str(folder / "roles"),
            "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = played.communicate()
    assert played.returncode == 0, said
    assert said.count("oneone") == said.count("twotwo") == 3
    return [line.replace(str(played.pid), "the run") for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("role", "filters", "prefix"),
    [
        ("roles/late", "roles/late/filter_plugins", ""),
        (f"{COLLECTION}/roles/late", f"{COLLECTION}/plugins/filter", "of.site."),
    ],
    ids=["beside the tasks", "of a collection"],
)
def test_a_filter_of_a_role_that_comes_late_is_loaded_once_and_before_the_forks(
    tmp_path: Path, role: str, filters: str, prefix: str
) -> None:
    (loaded,) = loaded_by(tmp_path, role, filters, prefix)
    assert loaded.startswith("the run ")
