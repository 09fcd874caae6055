#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What the doctor on a host plans for the launches of its services, and what it says of them with its numbers."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCUMENTATION = r"""
module: vllm_plan
short_description: Plan the launches of a host's services, on the host
description:
  - Asks the doctor for each service, puts the plan's numbers where the inventory says nothing, and asks what becomes of
    that. One question to the host for all services. Changes nothing.
options:
  units:
    description: The services, as the role composes them.
    type: list
    elements: dict
    required: true
  program:
    description: The doctor's program.
    type: path
    required: true
  release:
    description: The folder of the release of services that have none of their own.
    type: path
    required: true
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: Plan the launches
  vllm_doctor.hosts.vllm_plan:
    units: "{{ units }}"
    program: /usr/local/bin/vllm-doctor
    release: /opt/vllm/current
  register: answer
"""

RETURN = r"""
plans:
  description: >-
    For each service its C(unit) as it came, its first C(answer), the C(planned) unit and what is C(judged) of that; an
    answer has rc, stdout (JSON) and stderr.
  returned: always
  type: list
"""

TIMEOUT_S = 600
ANSWERED = (0, 1, 3)  # it starts; it does not; uncertain or unknown: what the doctor says then is an answer, too
# Nothing of these is memory; a key or an address need not reach the plan.
ASIDE = {
    "host",
    "port",
    "api-key",
    "served-model-name",
    "shutdown-timeout",
    "max-num-queued-reqs",
    "chat-template",
    "lora-modules",
    "middleware",
}


def command(unit: Mapping[str, Any], program: str, release: str) -> list[str]:
    """Write the doctor's command line for the launch of a unit, as the release at `release` would be started."""
    count = ["--gpus", str(len(unit["gpus"]))] if unit["gpus"] else []
    words = [program, "plan", "--format", "json", "--vllm-version", unit["version"], *count, "--"]
    words += [f"{name}={value}" for name, value in unit["environment"].items() if name.startswith("VLLM_")]
    words += [f"{release}/bin/vllm", "serve", str(unit["model"])]
    for name, value in unit["arguments"].items():
        words += [] if name in ASIDE else _words(name, value)
    return words


def _words(name: str, value: object) -> list[str]:
    if value is None or value is False:
        return [] if value is None else [f"--no-{name}"]
    if value is True:
        return [f"--{name}"]
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value)]
    return [f"--{name}", *map(str, value)] if isinstance(value, list | tuple) else [f"--{name}", str(value)]


def planned(unit: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """Put the plan's answer, a JSON text, under the words of its unit: the inventory goes before the plan."""
    told = json.loads(answer)
    recommended, card = told.get("recommended") or {}, told.get("card") or {}
    return {
        **unit,
        "template": card.get("template") or "generic" if unit["template"] == "auto" else unit["template"],
        "arguments": {**(recommended.get("launch") or {}), **unit["arguments"]},
        "environment": {**(recommended.get("env") or {}), **unit["environment"]},
    }


def ask(argv: list[str]) -> dict[str, Any]:
    """What the doctor answers, or why it does not."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return {"rc": 127, "stdout": "", "stderr": f"{argv[0]}: {failure}"}
    answer = {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    if done.returncode not in ANSWERED or _is_answer(done.stdout):
        return answer
    why = done.stderr.strip() or f"{argv[0]}: exit code {done.returncode} without an answer in JSON"
    return {"rc": 127, "stdout": "", "stderr": why}


def _is_answer(text: str) -> bool:
    """1 is also what Python ends with where the doctor's own program could not begin."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def plan(unit: Mapping[str, Any], program: str, release: str) -> dict[str, Any]:
    """Plan one service; see RETURN. What the plan adds nothing to is not asked twice."""
    home = unit.get("home") or release
    answer = ask(command(unit, program, home))
    if answer["rc"] not in ANSWERED:
        return {"unit": unit, "answer": answer, "planned": unit, "judged": answer}
    with_it = planned(unit, answer["stdout"])
    same = all(with_it[name] == unit[name] for name in ("arguments", "environment"))
    judged = answer if same else ask(command(with_it, program, home))
    return {"unit": unit, "answer": answer, "planned": with_it, "judged": judged}


def main() -> None:
    """Answer as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "dict", "required": True},
            "program": {"type": "path", "required": True},
            "release": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    program, release = module.params["program"], module.params["release"]
    module.exit_json(changed=False, plans=[plan(unit, program, release) for unit in module.params["units"]])


if __name__ == "__main__":
    main()
