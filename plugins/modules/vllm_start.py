#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Start a service anew with the configuration that lies there, after the old process has drained."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_start
short_description: Start a service of vLLM anew
description:
  - Lets systemd judge the unit, removes drop-ins that hold for a while, forgets earlier starts, enables the service and
    restarts it, in one question to the host, so that nothing lies between the old process and the new one.
  - Always a change. Whether the service answers is for M(vllm_doctor.hosts.vllm_ready) to say.
options:
  name: {type: str, required: true, description: The service without its suffix.}
  units: {type: path, default: /etc/systemd/system, description: Where units lie.}
  runtime: {type: path, default: /run/systemd/system, description: Where drop-ins lie that hold until a reboot.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: Start the service anew
  vllm_doctor.hosts.vllm_start:
    name: vllm@main
"""

RETURN = r"""
service: {type: str, returned: failure, description: The service that did not start.}
removed: {type: list, returned: success, description: "Drop-ins of `vllm-doctor recover` and `debug` that are gone."}
"""

DROP_INS = "zzy-vllm-doctor-*.conf"


def main() -> None:
    """Answer as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "units": {"type": "path", "default": "/etc/systemd/system"},
            "runtime": {"type": "path", "default": "/run/systemd/system"},
        },
        supports_check_mode=True,
    )
    service = f"{module.params['name']}.service"
    # The inventory counts from here on, not what `vllm-doctor recover` or `debug` put over it for a while.
    temporary = sorted((Path(module.params["runtime"]) / f"{service}.d").glob(DROP_INS))
    if module.check_mode:
        module.exit_json(changed=True, removed=list(map(str, temporary)))

    def run(*argv: str, must: bool = True) -> None:
        code, out, err = module.run_command(list(argv), cwd="/")
        if code and must:
            module.fail_json(msg=f"{' '.join(argv[:2])} {service}: {(err or out).strip()}", service=service)

    run("systemd-analyze", "verify", str(Path(module.params["units"]) / service))
    for path in temporary:
        path.unlink(missing_ok=True)  # its own timer may be faster
    run("systemctl", "daemon-reload")
    run("systemctl", "reset-failed", service, must=False)  # earlier starts do not count against the start limit
    run("systemctl", "enable", service)
    run("systemctl", "restart", service)
    module.exit_json(changed=True, removed=list(map(str, temporary)))


if __name__ == "__main__":
    main()
