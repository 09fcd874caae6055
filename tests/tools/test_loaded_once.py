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
            **{name: value for name, value in os.environ.items() if name != "COMPILED_TEMPLATES"},  # tasks are forked
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


def told(program: str) -> str:
    """What a program says that has the callback loaded, in a process of its own: it changes Ansible's loader."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, 'tools/before_forks')\n{program}"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(REPO / "collections")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SAME_ANSWERS = """
from ansible.plugins.loader import filter_loader, init_plugin_loader
init_plugin_loader()
import loaded_once
loaded_once.keep_ours()
assert len(loaded_once._kept) > 20
for name, kept in loaded_once._kept.items():
    asked = loaded_once._ask(name)
    assert filter_loader.get(name) is kept
    assert (kept.j2_function.__qualname__, kept._load_name, kept.ansible_name, kept._original_path) == (
        asked.j2_function.__qualname__, asked._load_name, asked.ansible_name, asked._original_path), name
assert filter_loader.get("ansible.builtin.bool").j2_function("yes") is True
assert filter_loader.get("vllm_doctor.hosts.nothing_of_this_name") is None
"""


def test_our_filters_are_kept_as_ansible_core_finds_them() -> None:
    assert told(SAME_ANSWERS) == ""


LEFT_ALONE = """
import gc, os
import loaded_once
held = [[] for _ in range(1000)]
if (child := os.fork()) == 0:
    seen = {id(one) for one in gc.get_objects()}
    os._exit(not (gc.isenabled() and gc.get_freeze_count() > 1000 and seen.isdisjoint(map(id, held))))
_, status = os.waitpid(child, 0)
seen = {id(one) for one in gc.get_objects()}
print(os.waitstatus_to_exitcode(status), gc.get_freeze_count(), all(id(one) in seen for one in held))
"""


def test_the_garbage_collector_of_a_fork_leaves_alone_what_the_run_holds_and_that_of_the_run_does_not() -> None:
    assert told(LEFT_ALONE) == "0 0 True\n"


def test_a_run_looks_seldom_for_garbage_and_not_at_its_end(tmp_path: Path) -> None:
    """The plugin's own words, in a process that has a cycle when it ends."""
    program = """
import sys; sys.path.insert(0, sys.argv[1])
if sys.argv[2]: import loaded_once
import gc
class Cycle:
    def __init__(self): self.me = self
    def __del__(self): print("collected")
kept = Cycle()
print(gc.get_threshold()[0] > 50_000)
"""
    folder = str(REPO / "tools" / "before_forks")
    command = [sys.executable, "-c", program, folder]
    said = [
        subprocess.run([*command, word], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
        for word in ("", "ours")
    ]
    assert said == [["False", "collected"], ["True"]]
