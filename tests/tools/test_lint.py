"""Pre-commit runs the very checks of `make lint`; ansible-lint finds what it always found."""

import os
import subprocess
import sys
from pathlib import Path

import lint
import yaml

REPO = Path(__file__).resolve().parents[2]


def test_precommit_has_every_check_and_no_other() -> None:
    config = yaml.safe_load((REPO / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"]: hook["entry"].split() for repo in config["repos"] for hook in repo["hooks"]}
    assert hooks == {name: [".venv/bin/python", "tools/lint.py", name] for name in lint.CHECKS}


def test_an_unknown_check_is_refused() -> None:
    assert lint.main(["spelling"]) == 2


def test_ansible_lint_has_no_global_skips() -> None:
    config = yaml.safe_load((REPO / ".ansible-lint").read_text())
    assert config["profile"] == "production"
    assert not {"skip_list", "warn_list"} & config.keys()


BAD = """\
- name: A play
  hosts: all
  tasks:
    - name: lower case
      ansible.builtin.command: "echo {{a}}"
    - name: Write
      copy: src=a dest=b
      become_user: foo
    - name: Nest
      block:
        - name: Get
          ansible.builtin.package:
            name: foo
            state: latest
"""
BROKEN = """\
- name: A play
  hosts: all
  tasks:
    - nosuchmodule: {a: 1}
"""
# With each task normalized once and each glob compiled once it finds what ansible-lint finds in these two files.
FOUND = {
    "broken.playbook.yml:4:7: syntax-check[unknown-module]",
    "site.yml:4:13: name[casing]",
    "site.yml:4: no-changed-when",
    "site.yml:5:32: jinja[spacing]",
    "site.yml:6: no-free-form",
    "site.yml:6: partial-become[task]",
    "site.yml:6: risky-file-permissions",
    "site.yml:7:7: fqcn[action-core]",
    "site.yml:11: package-latest",
}


def test_ansible_lint_finds_what_it_finds_when_its_work_is_done_once(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text(BAD)
    (tmp_path / "broken.playbook.yml").write_text(BROKEN)
    words = ["--offline", "--strict", "-q", "--format", "pep8", "--profile", "production", "--project-dir", "."]
    done = subprocess.run(
        [sys.executable, REPO / "tools" / "ansible_lint.py", *words],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1", "PATH": f"{lint.BIN}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    found = {line.partition("[/]")[0].removesuffix(" (warning)") for line in done.stdout.splitlines()}
    assert found == FOUND
