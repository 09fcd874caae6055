"""The hub's token on the host: encrypted where systemd can, else for root's eyes; never in a command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.roles.vllm.plugins import REPO

# Reversible, and records how it was called: encrypt --name=N - -, decrypt --name=N FILE -.
STUB = """#!{python}
import sys
from pathlib import Path
with open({calls!r}, "a") as calls:
    calls.write(" ".join(sys.argv) + "\\n")
if {broken}:
    sys.exit("no key to encrypt with")
text = sys.stdin.read() if sys.argv[-2] == "-" else Path(sys.argv[-2]).read_text()
sys.stdout.write("".join(chr(ord(letter) ^ 1) for letter in text))
"""


class Host:
    """A folder of credentials, and a PATH with or without systemd-creds."""

    def __init__(self, place: Path) -> None:
        self.folder, self.path, self.calls = place / "etc", place / "bin", place / "calls"
        self.folder.mkdir()
        self.path.mkdir()

    def has_systemd_creds(self, *, broken: bool = False) -> None:
        program = self.path / "systemd-creds"
        program.write_text(STUB.format(python=sys.executable, calls=str(self.calls), broken=broken))
        program.chmod(0o755)

    def keep(self, value: str, *, check: bool = False) -> dict[str, Any]:
        given = {"name": "hub-token", "folder": str(self.folder), "value": value, "_ansible_check_mode": check}
        arguments = self.path / "arguments.json"
        arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": given}))
        command = [sys.executable, str(REPO / "plugins/modules/vllm_credential.py"), str(arguments)]
        done = subprocess.run(command, env={"PATH": str(self.path)}, capture_output=True, text=True, check=True)
        assert value not in done.stdout or not value
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_it_is_encrypted_where_systemd_can(host: Host) -> None:
    host.has_systemd_creds()
    answer = host.keep("abc")
    assert (answer["changed"], answer["encrypted"]) == (True, True)
    assert answer["property"] == f"LoadCredentialEncrypted=hub-token:{host.folder}/hub-token.encrypted"
    assert "abc" not in str(host.files())
    assert (host.folder / "hub-token.encrypted").stat().st_mode & 0o777 == 0o600
    assert "abc" not in host.calls.read_text()


def test_the_same_again_changes_nothing_and_another_does(host: Host) -> None:
    host.has_systemd_creds()
    assert [host.keep(value)["changed"] for value in ("abc", "abc", "xyz", "xyz")] == [True, False, True, False]


@pytest.mark.parametrize("broken", [True, False])
def test_else_root_alone_can_read_it_and_it_is_said_why(host: Host, broken: bool) -> None:
    if broken:
        host.has_systemd_creds(broken=True)
    answer = host.keep("abc")
    assert answer["property"] == f"LoadCredential=hub-token:{host.folder}/hub-token"
    assert host.files() == {"hub-token": "abc"}
    assert (host.folder / "hub-token").stat().st_mode & 0o777 == 0o600
    assert answer["why_plain"] == ("no key to encrypt with" if broken else "")
    assert not host.keep("abc")["changed"]


def test_a_plain_one_is_replaced_once_the_host_can_encrypt(host: Host) -> None:
    host.keep("abc")
    host.has_systemd_creds()
    host.keep("xyz")
    assert list(host.files()) == ["hub-token.encrypted"]


def test_one_that_is_no_longer_given_is_gone(host: Host) -> None:
    host.keep("abc")
    answer = host.keep("")
    assert (answer["changed"], answer["property"], host.files()) == (True, "", {})
    assert not host.keep("")["changed"]


def test_check_mode_only_says(host: Host) -> None:
    assert host.keep("abc", check=True)["changed"]
    assert host.files() == {}
