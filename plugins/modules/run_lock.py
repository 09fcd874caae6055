#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Take a host for one run of a playbook."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_doctor.hosts.plugins.module_utils.run_lock import FOLDER, taken

DOCUMENTATION = r"""
module: run_lock
short_description: Take a host for one run, unless another has it
description:
  - Two runs at once on one host undo each other's work. The first one takes the host; the next one fails, and says
    whose it is.
  - The run lets go at its end, also where it failed or was interrupted. It renews what it has taken every two minutes;
    where the controller itself is lost, the lock ends 15 minutes after the last time.
  - In check mode nothing is taken, and a run that is on is a warning.
  - The action plugin of the same name says which run this is.
options:
  run:
    description: This run; the action plugin fills it in.
    type: dict
  folder:
    description: Where the lock lies.
    type: path
    default: /var/lib/vllm-doctor-roles
author:
  - the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: Refuse to begin beside another run
  vllm_doctor.hosts.run_lock:
"""

RETURN = r"""
other:
  description: The run that has the host; null for none.
  returned: always
  type: dict
taken:
  description: Whether the host was taken just now.
  returned: always
  type: bool
"""


def main() -> None:
    """Answer as an Ansible module."""
    module = AnsibleModule(
        argument_spec={"run": {"type": "dict", "required": True}, "folder": {"type": "path", "default": FOLDER}},
        supports_check_mode=True,
    )
    try:
        answer = taken(module.params["run"], module.params["folder"], only_look=module.check_mode)
    except OSError as failure:
        module.fail_json(msg=f"{module.params['folder']}: {failure.strerror}")
    # A note of who is here, and nothing that the host serves with.
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
