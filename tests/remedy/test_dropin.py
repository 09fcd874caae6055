"""The emergency drop-in, read back by systemd's own rules of quoting."""

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from tests.remedy.test_argv import change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.remedy import dropin


def test_the_list_is_emptied_before_it_is_set() -> None:
    text = dropin.text("VD1", ("/opt/vllm", "serve", "m", "--max-model-len", "9"), (change("max-model-len", 4),))
    assert text is not None
    assert text.splitlines()[2:] == ["ExecStart=", "ExecStart=/opt/vllm serve m --max-model-len 4"]


def test_environment_is_set_and_unset() -> None:
    changes = (
        change("A", "b c", kind=ChangeKind.ENV),
        change("D", None, Direction.REMOVE, kind=ChangeKind.ENV),
    )
    assert dropin.text("VD1", (), changes) == (
        "# VD1, for the emergency only: the next playbook run removes this file.\n"
        '[Service]\nEnvironment="A=b c"\nUnsetEnvironment=D\n'
    )


def test_a_name_that_is_no_variable_s_is_not_written() -> None:
    hostile = change("X\nExecStartPre=/bin/reboot", "1", kind=ChangeKind.ENV)
    assert dropin.text("VD1", ("/x",), (hostile,)) is None


def test_nothing_is_written_where_a_unit_cannot_help() -> None:
    assert dropin.text("VD1", ("/x",), (change("gpu-memory-utilization", None, Direction.RAISE),)) is None
    assert dropin.text("VD1", ("/x",), (change("A", None, Direction.SET, kind=ChangeKind.ENV),)) is None
    assert dropin.text("VD1", ("/x",), (change("driver", "580", kind=ChangeKind.PACKAGE),)) is None
    assert dropin.text("VD1", ("relative",), (change("max-model-len", 4),)) is None


def test_a_dollar_means_nothing_in_the_environment_and_an_option_s_variable_has_its_own_name() -> None:
    text = dropin.text("VD1", (), (structs.replace(change("A", "$x 5%", kind=ChangeKind.ENV), variable="B"),))
    assert text is not None
    assert text.splitlines()[2:] == ['Environment="B=$x 5%%"']


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("hostile", ["a b", 'a"b', "50%", "$HOME", "a\nExecStartPre=/bin/rm", "a;b", "ü\\x"])
def test_a_hostile_model_name_stays_one_word(hostile: str, tmp_path: Path) -> None:
    text = dropin.text("VD1", ("/bin/echo", hostile), (change("max-model-len", 4),))
    assert text is not None
    assert len([line for line in text.splitlines() if line.startswith("Exec")]) == 2
    unit = tmp_path / "vllm-dropin-test.service"
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "vllm-dropin-test.service:" not in done.stderr.replace("Command", ""), done.stderr


@pytest.mark.parametrize(
    ("word", "command", "setting"),
    [
        ("plain-1.0/x", "plain-1.0/x", "plain-1.0/x"),
        ("a$b", "a$$b", "a$b"),
        ("${HOME}", '"$${HOME}"', '"${HOME}"'),
        ("50%", "50%%", "50%%"),
        ("a b", '"a b"', '"a b"'),
        ('a"b\\', '"a\\"b\\\\"', '"a\\"b\\\\"'),
        ("a\n[x]", '"a\\x0a[x]"', '"a\\x0a[x]"'),
        ("", '""', '""'),
    ],
)
def test_a_word_acts_as_nothing_in_a_command_and_in_a_variable(word: str, command: str, setting: str) -> None:
    """systemd reads `$` in a command line, and in Environment= takes it as it stands."""
    assert dropin.quoted(word) == command
    assert dropin.quoted(word, variables=False) == setting
