"""Tasks that ask no host are done in the run itself, and what a run says and leaves is what it is with a fork each."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).parents[2]
WHO = "{{ lookup('ansible.builtin.pipe', 'echo $PPID') }}"  # the process that this template is rendered in
TASKS = """
- ansible.builtin.set_fact: {in_set_fact: "WHO", deep: {list: [1, "{{ inventory_hostname }}"]}}
- ansible.builtin.debug: {msg: "WHO in debug"}
- ansible.builtin.command: echo "WHO in command"
  register: asked
  changed_when: false
- ansible.builtin.debug: {var: asked.stdout}
- name: Skipped
  ansible.builtin.command: "false"
  when: [in_set_fact is defined, inventory_hostname == 'nobody']
  register: skipped
- ansible.builtin.debug: {msg: "{{ skipped.skip_reason }} {{ skipped.false_condition }}"}
- name: Skipped on one
  ansible.builtin.command: echo {{ inventory_hostname }}
  changed_when: true
  when: inventory_hostname == 'a'
  notify: Told
- name: A loop for a host
  ansible.builtin.command: echo {{ item }}
  loop: [1, 2]
  when: item == 2
  changed_when: false
- name: A loop of facts
  ansible.builtin.set_fact: {sum: "{{ sum | default(0) | int + item }}"}
  loop: "{{ [1, 2, 3] }}"
  loop_control: {label: "number {{ item }}"}
- ansible.builtin.debug: {msg: "{{ sum }} {{ deep }} {{ hostvars.b.deep }} {{ item is defined }}"}
- ansible.builtin.assert: {that: "deep.list[1] == 'a'", fail_msg: "I am {{ deep.list[1] }}"}
  ignore_errors: true
- name: Undefined in a condition
  ansible.builtin.command: "true"
  when: nowhere.at_all
  ignore_errors: true
- name: Undefined in a fact
  ansible.builtin.set_fact: {x: "{{ nowhere }}"}
  ignore_errors: true
- name: Hidden
  ansible.builtin.set_fact: {hidden: "{{ nowhere }}"}
  no_log: true
  ignore_errors: true
- name: Once
  ansible.builtin.set_fact: {once: "{{ inventory_hostname }}"}
  run_once: true
- name: For another
  ansible.builtin.set_fact: {of_a: "{{ inventory_hostname }}"}
  delegate_to: a
  delegate_facts: true
  when: inventory_hostname == 'b'
- ansible.builtin.include_tasks: {file: more.yml}
  loop: [x, y]
  loop_control: {loop_var: word}
- block:
    - ansible.builtin.fail: {msg: "{{ inventory_hostname }} fails"}
      when: inventory_hostname == 'b'
  rescue:
    - ansible.builtin.debug: {msg: "rescued: {{ ansible_failed_task.name }} {{ ansible_failed_result.msg }}"}
- ansible.builtin.set_fact: {until: "{{ (until | default(0) | int) + 1 }}"}
  until: until | int > 0
  retries: 2
  delay: 0
"""
HANDLERS = """
- name: Told
  ansible.builtin.debug: {msg: "told {{ once }} {{ of_a | default('nothing') }} {{ until }}"}
  when: inventory_hostname == 'a'
"""


@cache
def played(folder: Path, compiled: str, *words: str) -> str:
    """What a play of all these tasks prints on two hosts, with a fork of each task or without."""
    hosts = {"hosts": {name: {"ansible_connection": "local", "site_reports": ""} for name in "ab"}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": hosts}))
    (folder / "more.yml").write_text('- ansible.builtin.debug: {msg: "{{ word }} of {{ inventory_hostname }}"}\n')
    play = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": yaml.safe_load(TASKS.replace("WHO", WHO)),
        "handlers": yaml.safe_load(HANDLERS),
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    command = [str(REPO / ".venv/bin/ansible-playbook"), "-i", str(folder / "hosts.yml"), str(folder / "play.yml")]
    environment = {**os.environ, "COMPILED_TEMPLATES": compiled, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(
        [*command, *words],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return f"{done.returncode}\n{done.stdout}\n{done.stderr}"


def without_numbers(text: str) -> list[str]:
    """Which host answers first is chance, and so are processes and moments."""
    text = re.sub(r"\b\d+ in (debug|command)\b", r"PID in \1", text)
    text = re.sub(r"\b(start|end|delta|in_set_fact): .*", r"\1", text)
    text = text.replace(" for b, a ", " for a, b ")
    blocks = re.split(r"^(?=TASK |PLAY |RUNNING )", text, flags=re.MULTILINE)
    return [line for block in blocks for line in sorted(block.splitlines())]


@pytest.mark.parametrize("words", [(), ("--check", "--diff", "-v", "--forks", "1")])
def test_a_run_says_the_same_with_and_without_forks(tmp_path: Path, words: tuple[str, ...]) -> None:
    ours, plain = (played(tmp_path, compiled, *words) for compiled in (str(tmp_path / "compiled"), ""))
    assert without_numbers(ours) == without_numbers(plain)
    assert "rescued" in ours


def processes(text: str, where: str) -> list[str]:
    return re.findall(rf"\b(\d+) in {where}\b", text)


def test_what_asks_no_host_is_in_the_run_and_what_asks_one_in_a_fork(tmp_path: Path) -> None:
    ours, plain = played(tmp_path, str(tmp_path / "compiled")), played(tmp_path, "")
    assert len(set(processes(ours, "debug"))) == 1
    assert len(set(processes(plain, "debug"))) == 2
    for text in (ours, plain):
        assert len(set(processes(text, "command"))) == 2
        assert not {*processes(text, "command")} & {*processes(text, "debug")}
