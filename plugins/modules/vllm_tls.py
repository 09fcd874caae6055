#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Whether a server would start with these files of TLS, and whether clients would take them."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import ssl
import stat
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_tls
short_description: Judge the files of TLS before a service is touched
description:
  - Reads a certificate, its key and the authorities for clients on the host, and changes nothing.
  - They are there, belong to root, fit each other and have not expired; the service can read them where no credential
    carries them, and systemd is new enough where one does.
options:
  unit: {type: str, required: true, description: The unit that they are for; goes into the rows.}
  certificate: {type: path, required: true, description: "The certificate, with its chain."}
  key: {type: path, required: true, description: Its private key.}
  authorities: {type: str, default: "", description: The authorities for clients; empty for none.}
  user: {type: str, required: true, description: Whom the service runs as.}
  credentials: {type: bool, default: true, description: Whether systemd hands the files over.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: The certificate is one to start with
  vllm_doctor.hosts.vllm_tls:
    unit: vllm@main
    certificate: /etc/ssl/site/vllm.pem
    key: /etc/ssl/site/vllm.key
    user: vllm
"""

RETURN = r"""
problems: {type: list, returned: always, description: "What would be refused, each with found, needed and do."}
"""

# LoadCredential= came with it: systemd's NEWS.
CREDENTIALS_SINCE = 247
DAY_S = 86400
SOON_DAYS = 14


def row(found: str, needed: str, do: str) -> dict[str, str]:
    """Write a problem as the role's tables take it."""
    return {"found": found, "needed": needed, "do": do}


def of_file(path: str, variable: str, *, private: bool) -> list[dict[str, str]]:
    """Is it there, root's, and not open to others?"""
    try:
        state = Path(path).stat()
    except OSError as why:
        return [
            row(
                f"{variable}: {path}: {why.strerror}",
                "a file on the host",
                f"{variable}: put the file there, or name another",
            )
        ]
    if not stat.S_ISREG(state.st_mode):
        return [row(f"{variable}: {path} is no file", "a file on the host", f"{variable}: name the file")]
    found = []
    if state.st_uid != 0 or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        needed = "a file of root that nobody else can write"
        found.append(
            row(
                f"{variable}: {path} is of {owner(state.st_uid)}, {state.st_mode & 0o777:04o}",
                needed,
                f"chown root {path}; chmod go-w {path}",
            )
        )
    if private and state.st_mode & stat.S_IROTH:
        found.append(row(f"{variable}: {path} can be read by everybody", "a key of root's alone", f"chmod o-r {path}"))
    return found


def owner(uid: int) -> str:
    """Name a user, or give the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def of_pair(certificate: str, key: str, authorities: str) -> list[dict[str, str]]:
    """Would OpenSSL take them as the server does?"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError, OSError) as why:
        needed = "a certificate in PEM, and its own key without a passphrase"
        return [
            row(f"{certificate} with {key}: {said(why)}", needed, "vllm_ssl_certfile and vllm_ssl_keyfile: name a pair")
        ]
    try:
        if authorities:
            context.load_verify_locations(cafile=authorities)
    except (ssl.SSLError, OSError) as why:
        return [
            row(
                f"{authorities}: {said(why)}",
                "certificates of authorities in PEM",
                "vllm_ssl_ca_certs: name such a file",
            )
        ]
    return []


def said(why: Exception) -> str:
    """OpenSSL's reason in words."""
    reason = str(getattr(why, "reason", "") or why)
    known = {"KEY_VALUES_MISMATCH": "the key is another certificate's", "BAD_PASSWORD_READ": "the key has a passphrase"}
    return known.get(reason, reason)


def of_time(certificate: str, now: float) -> tuple[list[dict[str, str]], str]:
    """Has it begun, and not ended? With a warning where it soon does."""
    dates = ssl._ssl._test_decode_cert(certificate)  # type: ignore[attr-defined]  # noqa: SLF001 (the only reader without a package)
    begins, ends = (ssl.cert_time_to_seconds(dates[name]) for name in ("notBefore", "notAfter"))
    if now >= ends:
        return [
            row(
                f"{certificate} expired on {dates['notAfter']}",
                "a certificate that clients take",
                "renew it, then play again",
            )
        ], ""
    if now < begins:
        return [
            row(
                f"{certificate} begins on {dates['notBefore']}",
                "one that is valid now",
                "look at the host's clock: date",
            )
        ], ""
    left = (ends - now) / DAY_S
    return [], f"{certificate} expires in {left:.0f} days, on {dates['notAfter']}" if left < SOON_DAYS else ""


def of_reader(module: AnsibleModule, paths: list[str], user: str) -> list[dict[str, str]]:
    """Can the service read them? Before its account exists nothing can be told, and no file can be its group's."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return []
    group = grp.getgrgid(account.pw_gid).gr_name
    shut = [path for path in paths if module.run_command(["runuser", "-u", user, "--", "test", "-r", path])[0] != 0]
    needed = f"files that {user} can read where vllm_ssl_credentials is false"
    return [row(f"{path} cannot be read by {user}", needed, f"chgrp {group} {path}; chmod g+r {path}") for path in shut]


def of_systemd(module: AnsibleModule) -> list[dict[str, str]]:
    """Does systemd know credentials?"""
    out = module.run_command(["systemctl", "--version"])[1]
    version = re.search(r"^systemd (\d+)", out)
    if version and int(version[1]) >= CREDENTIALS_SINCE:
        return []
    needed = f"systemd {CREDENTIALS_SINCE} to hand over the key"
    return [row(f"systemd {version[1] if version else 'of no version'}", needed, "vllm_ssl_credentials: false")]


def main() -> None:
    """Judge all, and say what is wrong with each file at once."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "certificate": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "authorities": {"type": "str", "default": ""},
            "user": {"type": "str", "required": True},
            "credentials": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    certificate, key, authorities = given["certificate"], given["key"], given["authorities"]
    found = of_file(certificate, "vllm_ssl_certfile", private=False) + of_file(key, "vllm_ssl_keyfile", private=True)
    found += of_file(authorities, "vllm_ssl_ca_certs", private=False) if authorities else []
    if all(os.path.isfile(path) for path in (certificate, key, *([authorities] if authorities else []))):  # noqa: PTH113
        pair = of_pair(certificate, key, authorities)
        found += pair
        if not pair:
            late, warning = of_time(certificate, time.time())
            found += late
            if warning:
                module.warn(f"{given['unit']}: {warning}")
        if given["credentials"]:
            found += of_systemd(module) if shutil.which("systemctl") else []
        else:
            found += of_reader(module, [certificate, key, *([authorities] if authorities else [])], given["user"])
    module.exit_json(changed=False, problems=[{**one, "found": f"{given['unit']}: {one['found']}"} for one in found])


if __name__ == "__main__":
    main()
