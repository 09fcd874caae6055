"""The variables stage, run by ansible-playbook itself on hosts that do not exist: refused, with the line to change."""

import itertools
import os
import re

import pytest
import yaml

from tests.playbook import play
from tests.roles.vllm.plugins import REPO

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: vllm_doctor.hosts.vllm, tasks_from: preflight}
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FINE: dict[str, object] = {"vllm_model": "org/llama", "vllm_revision": COMMIT, "vllm_version": "0.32.0"}

# host: (its variables, the variable whose line is named, what is said)
BAD: dict[str, tuple[dict[str, object], str, str]] = {
    "no-lock": ({"vllm_version": "0.30.0"}, "vllm_version", 'vllm_version: "0.31.0", or make the lock'),
    "no-lock-auto": ({"vllm_version": "0.30.0", "vllm_variant": "auto"}, "vllm_version", "vLLM 0.30.0+auto"),
    "no-model": ({"vllm_model": None}, "vllm_model", "vllm@main: no model"),
    "branch": ({"vllm_revision": "main"}, "vllm_revision", "git ls-remote https://huggingface.co/org/llama main"),
    "shadow": ({"vllm_extra_args": {"port": 9}}, "", "vllm_port: 9"),
    "open-secret": ({"vllm_environment": {"S3_SECRET": "{{ 'x' }}"}}, "vllm_environment", "put it into vllm_secrets"),
    "wide-token": ({"vllm_secrets": {"HF_TOKEN": "{{ 'x' }}"}}, "vllm_secrets", "set vllm_hub_token"),
    "unknown-flag": ({"vllm_extra_args": {"max-num-seq": 1}}, "vllm_extra_args", "max-num-seqs"),
}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each host."""
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "play.yml").write_text(PLAY)
    (folder / "host_vars").mkdir()
    hosts = {"fine": FINE, **{name: {**FINE, **case[0]} for name, case in BAD.items()}}
    for name, values in hosts.items():
        (folder / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(values, sort_keys=True))
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": dict.fromkeys(hosts, None)}}))
    done = play(
        ["-i", "hosts.yml", "play.yml"],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPO / "collections"),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "ANSIBLE_NOCOLOR": "1",
        },
    )
    assert done.returncode != 0, done.stdout
    return cells(done.stdout[done.stdout.index("Refused before any host was touched") :])


def cells(text: str) -> dict[str, str]:
    """{host: what its rows say}, from a table whose cells are broken over lines."""
    lines = text.splitlines()
    top = next(number for number, line in enumerate(lines) if line.lstrip().startswith("----"))
    starts = [match.start() for match in re.finditer("-+", lines[top])]
    found: dict[str, list[list[str]]] = {}
    name = ""
    for line in itertools.takewhile(str.strip, lines[top + 1 :]):
        parts = [line[one:other].strip() for one, other in itertools.zip_longest(starts, starts[1:])]
        if parts[0]:
            name = parts[0]
            found.setdefault(name, []).append([])
        found[name][-1].append("\0".join(parts))

    def columns(row: list[str]) -> str:
        parts = zip(*(line.split("\0") for line in row), strict=True)
        return " ".join(" ".join(filter(None, column)) for column in parts)

    return {host: "\n".join(map(columns, rows)) for host, rows in found.items()}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_the_line_to_change(blocks: dict[str, str], name: str) -> None:
    values, variable, says = BAD[name]
    assert says in blocks[name]
    lines = yaml.safe_dump({**FINE, **values}, sort_keys=True).splitlines()
    number = next((i for i, line in enumerate(lines, 1) if variable and line.startswith(variable)), None)
    assert number is None or f"host_vars/{name}.yml:{number}" in blocks[name], blocks[name]


def test_a_good_host_beside_them_has_no_complaint(blocks: dict[str, str]) -> None:
    assert "fine" not in blocks
