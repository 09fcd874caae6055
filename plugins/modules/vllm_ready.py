#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Wait until a vLLM service does what its model is for, or until it is plain that it will not."""

from __future__ import annotations

import time
import urllib.error
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vllm_doctor.hosts.plugins.module_utils.vllm_doors import guard_of, judged, problem
from ansible_collections.vllm_doctor.hosts.plugins.module_utils.vllm_http import certificate_of, key_in
from ansible_collections.vllm_doctor.hosts.plugins.module_utils.vllm_routes import answers

DOCUMENTATION = r"""
module: vllm_ready
short_description: Wait until a vLLM service does what its model is for
description:
  - /health answers before, and sometimes long after, a model can be used, so it is asked to do its work once (a token,
    an embedding, a class, a score, a transcription) by the first route that the server has for its model.
  - Stops as soon as the service fails or restarts by itself, and does not wait for the time to pass.
  - The key is read on the host from the service's own file, sent as a header and never shown.
  - Over https only the certificate that the service was started with is taken for the service.
  - A server with a guard is then asked every path without the key, and must refuse all but those that are to be open.
    Nothing is asked that would do something on an open path.
options:
  unit: {type: str, required: true, description: The systemd unit.}
  url: {type: str, required: true, description: "Where it listens, such as http://127.0.0.1:8000."}
  secrets_file: {type: str, default: "", description: The service's file of secrets; has VLLM_API_KEY.}
  timeout: {type: int, default: 600, description: Seconds to wait.}
  start_timeout:
    type: int
    default: 0
    description: >-
      Seconds from its start that a service which does not listen yet may take, where that is longer than C(timeout).
      vLLM listens once the model is loaded.
  doors: {type: bool, default: true, description: Ask the paths without the key too.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: A completion answers
  vllm_doctor.hosts.vllm_ready: {unit: vllm@main.service, url: "http://127.0.0.1:8000"}
"""

RETURN = r"""
model: {type: str, returned: success, description: The model that answered.}
route: {type: str, returned: success, description: The route by which it did.}
seconds: {type: float, returned: always, description: How long it took.}
service: {type: str, returned: failure, description: The unit that does not answer.}
"""

PAUSE = 0.5
ASK_TIMEOUT = 60


def state_of(module: AnsibleModule, unit: str) -> dict[str, str]:
    """Ask systemd for what says whether the service lives."""
    names = "ActiveState,SubState,NRestarts,Result,ExecMainStatus,ActiveEnterTimestampMonotonic,MainPID"
    out = module.run_command(["systemctl", "show", f"--property={names}", unit], check_rc=True)[1]
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def open_door(unit: str, url: str, key: str, pid: str, certificate: str) -> str:
    """Say which path of a guarded server answers without the key; empty where none does, or where none was closed."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError as gone:
        return f"{unit}: the process {pid} that answered is gone ({gone})"
    said = dict(word.split("=", 1) for word in words if "=" in word)
    guard = guard_of(said)
    if guard is None or not key:
        return ""
    return str(problem(unit, *judged(url, key, *guard, certificate)))


def not_listening(error: BaseException) -> bool:
    """Say whether nobody listens: vLLM binds its port at once and listens when the model is loaded."""
    return isinstance(error, urllib.error.URLError) and isinstance(error.reason, ConnectionRefusedError)


def given_up(state: dict[str, str], restarts: str) -> str:
    """Say why waiting is of no use; empty while it may still come."""
    active, sub = state.get("ActiveState", ""), state.get("SubState", "")
    if active in {"failed", "inactive"} or sub.startswith("auto-restart") or state.get("NRestarts") != restarts:
        return f"the service ended (result {state.get('Result')}, exit status {state.get('ExecMainStatus')})"
    return ""


def main() -> None:
    """Poll both the service and systemd until one of them has the answer."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "secrets_file": {"type": "str", "default": "", "no_log": False},
            "timeout": {"type": "int", "default": 600},
            "start_timeout": {"type": "int", "default": 0},
            "doors": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    unit, url = module.params["unit"], module.params["url"]
    if module.check_mode:
        module.exit_json(changed=False, seconds=0.0)
    key = key_in(module.params["secrets_file"])
    began = time.monotonic()
    first = state_of(module, unit)
    # CLOCK_MONOTONIC for systemd and for Python: org.freedesktop.systemd1(5), time.monotonic.
    started = int(first.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    end, end_of_start = began + module.params["timeout"], started + module.params["start_timeout"]
    last, loading = "nothing was asked", False
    while (now := time.monotonic()) < (max(end, end_of_start) if loading else end):
        state = state_of(module, unit)
        if why := given_up(state, first.get("NRestarts", "0")):
            module.fail_json(msg=f"{unit}: {why}", service=unit, seconds=round(now - began, 1))
        pid = state.get("MainPID", "0")
        certificate = certificate_of(pid) if url.startswith("https:") else ""
        try:
            model, route = answers(url, key, max(1.0, min(ASK_TIMEOUT, end - now)), certificate)
            why = open_door(unit, url, key, pid, certificate) if module.params["doors"] else ""
        except urllib.error.HTTPError as error:
            last, loading = f"HTTP {error.code} from {error.url}", False
            if error.code in {401, 403}:
                module.fail_json(msg=f"{unit}: the key is refused ({last})", service=unit)
        except (OSError, ValueError, LookupError) as error:
            last, loading = f"{type(error).__name__}: {error}", not_listening(error)
        else:
            if why:
                module.fail_json(msg=why, service=unit, seconds=round(time.monotonic() - began, 1))
            module.exit_json(changed=False, model=model, route=route, seconds=round(time.monotonic() - began, 1))
        time.sleep(PAUSE)
    waited = round(time.monotonic() - began, 1)
    module.fail_json(msg=f"{unit}: no answer within {waited:.0f} s; last: {last}", service=unit, seconds=waited)


if __name__ == "__main__":
    main()
