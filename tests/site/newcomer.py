"""The lines that a newcomer changes in a copy of inventories/example, and no others: every edit of the tests is here.

`ADDRESSES` is how these hosts are reached, which for a fleet over ssh is nothing; `MIRROR` is a site without a way out.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY = "a-long-random-key-of-the-tests"
PASSWORD = "of-the-vault"  # noqa: S105

HOSTS = """\
vllm:
  vars:
    ansible_user: ops
    ansible_become: true
  children:
    h100:
      hosts:
        gpu01.example.net:
    l40s:
      hosts:
        edge01.example.net:
    a10:
      hosts:
        edge02.example.net:
"""
# What a site behind a mirror says of it, in one variable and no second.
MIRROR = """
nvidia_driver_repository_url: copy:/srv/nvidia
nvidia_driver_repository_unsigned: true
"""
ADDRESSES = """\
ansible_connection: podman_pipelined
ansible_podman_executable: "{repo}/tools/bin/podman"
ansible_host: "{prefix}-site-{{{{ inventory_hostname.split('.') | first }}}}"
"""
CARDS = {"l40s": "NVIDIA L40S", "a10": "NVIDIA A10"}


def set_line(file: Path, old: str, new: str) -> None:
    """Change one line, which must be there once."""
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {text.count(old)} times: {old}"
    file.write_text(text.replace(old, new))


def inventory(checkout: Path, bin_folder: Path, *, repo: Path, prefix: str) -> Path:
    """`cp -r inventories/example inventories/mine`, and what README says is to be changed in it."""
    mine = checkout / "inventories" / "mine"
    subprocess.run(["cp", "-r", checkout / "inventories" / "example", mine], check=True)
    (mine / "hosts.yml").write_text(HOSTS)
    (mine / "host_vars" / "gpu04.example.net.yml").unlink()
    for group, card in CARDS.items():
        text = (mine / "group_vars" / "l4.yml").read_text()
        text = text.replace("NVIDIA L4", card).replace("vllm_unit_template: l4", f"vllm_unit_template: {group}")
        (mine / "group_vars" / f"{group}.yml").write_text(text)
    (mine / "group_vars" / "l4.yml").unlink()
    shared = mine / "group_vars" / "vllm"
    set_line(shared / "vars.yml", "nvidia_driver_reboot: false", "nvidia_driver_reboot: true")
    (shared / "mirror.yml").write_text("---" + MIRROR)
    (shared / "addresses.yml").write_text("---\n" + ADDRESSES.format(repo=repo, prefix=prefix))
    vault = (shared / "vault.yml.example").read_text().replace("write-a-long-random-key-here", KEY)
    (shared / "vault.yml").write_text(vault)
    (checkout / ".vault-password").write_text(PASSWORD)
    subprocess.run(
        [bin_folder / "ansible-vault", "encrypt", "--vault-password-file", ".vault-password", shared / "vault.yml"],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    return mine
