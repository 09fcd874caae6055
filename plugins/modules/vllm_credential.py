#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""A secret where systemd finds it for a service, and where root alone can read it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_credential
short_description: Keep a secret as a systemd credential
description:
  - Encrypted with systemd-creds (systemd 250 and newer), so that where the host has a TPM a copied disk does not give
    it away; else a file that root alone can read.
  - The secret comes over standard input and is in no command line.
options:
  name: {type: str, required: true, description: The credential's name.}
  folder: {type: path, required: true, description: Where it lies; exists.}
  value: {type: str, default: "", description: The secret; empty for none. Then nothing is left of an earlier one.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: The token is a credential
  vllm_doctor.hosts.vllm_credential: {name: hub-token, folder: /etc/vllm, value: "{{ token }}"}
"""

RETURN = r"""
property: {type: str, returned: always, description: The unit's setting that loads it; empty for none.}
encrypted: {type: bool, returned: always, description: Whether it is encrypted.}
why_plain: {type: str, returned: always, description: What systemd-creds said where it could not encrypt.}
"""


def kept(module: AnsibleModule, program: str | None, name: str, plain: Path, sealed: Path) -> str | None:
    """Read the secret that is there; None where there is none, or where this host cannot open it any more."""
    if sealed.exists() and program:
        status, out, _ = module.run_command([program, "decrypt", f"--name={name}", str(sealed), "-"])
        return str(out) if status == 0 else None
    return plain.read_text(encoding="utf-8") if plain.exists() else None


def write(path: Path, content: bytes) -> None:
    """Put it in place in one step, never readable by others."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    beside.replace(path)


def main() -> None:
    """Make what is there what is wanted."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "value": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    name, value = module.params["name"], module.params["value"]
    plain = Path(module.params["folder"]) / name
    sealed = plain.with_name(f"{name}.encrypted")
    program = shutil.which("systemd-creds")
    there = [path for path in (plain, sealed) if path.exists()]
    changed = bool(there) if not value else kept(module, program, name, plain, sealed) != value or len(there) != 1
    why = ""
    if changed and not module.check_mode:
        content = None
        if value and program:
            # hybrid or host key, as this machine can: systemd-creds itself chooses (--with-key=auto)
            status, out, said = module.run_command(
                [program, "encrypt", f"--name={name}", "-", "-"], data=value, binary_data=True
            )
            content, why = (out.encode(), "") if status == 0 else (None, str(said).strip())
        if content is not None:
            write(sealed, content)
        elif value:
            write(plain, value.encode())
        for path in there:
            if not value or path != (sealed if content is not None else plain):
                path.unlink()
    encrypted = sealed.exists()
    setting = f"LoadCredentialEncrypted={name}:{sealed}" if encrypted else f"LoadCredential={name}:{plain}"
    module.exit_json(changed=changed, property=setting if value else "", encrypted=encrypted, why_plain=why)


if __name__ == "__main__":
    main()
