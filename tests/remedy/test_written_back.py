"""What is written for a shell or for Ansible is read back as the value that was meant, whatever signs it has."""

import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.remedy.test_repair import OVER, OWN, repair
from vllm_doctor.records.finding import Change
from vllm_doctor.records.host import Setting
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.inventory import assignment

_SIGNS = ["a&b", "a/b", r"a\b", "a|b", "a.b*c", "[a]^$", "x&/&y", "1,2", "ü"]
_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=40)


class _Ansible(yaml.SafeLoader):
    """Reads what Ansible reads: `!unsafe` marks a text that is no template."""


_Ansible.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


@pytest.mark.parametrize("value", _SIGNS)
def test_a_value_of_any_signs_stands_in_the_line_after_the_command(value: str, tmp_path: Path) -> None:
    path = tmp_path / "50-ops.conf"
    line = "/opt/vllm/bin/vllm serve m --chat-template one --swap-space 4"
    path.write_text(f"[Service]\nExecStart=\nExecStart={line}\n")
    place = Setting(str(path), 3, "ExecStart", line)
    change = Change(
        ChangeKind.FLAG, "chat-template", "one", value, Direction.CHANGE, Applicability.SAFE, "vllm_chat_template"
    )
    told = repair(change, OWN, msgspec.structs.replace(OVER[1], path=str(path)), place)
    subprocess.run(["sh", "-c", told.commands[0]], check=True)
    written = path.read_text(encoding="utf-8").splitlines()[-1].replace("$$", "$")  # systemd reads two as one
    words = shlex.split(written)
    assert words[-4:] == ["--chat-template", value, "--swap-space", "4"]


@given(_TEXTS)
def test_a_variable_of_the_inventory_is_read_back_and_a_person_can_read_it(value: str) -> None:
    written = assignment("vllm_x", value)
    read = yaml.load(written, Loader=_Ansible)  # noqa: S506 - a SafeLoader
    assert read == {"vllm_x": value}
    assert "\n" not in written
    if all(sign.isalpha() for sign in value):
        assert value in written


@pytest.mark.parametrize(("direction", "kept"), [(Direction.LOWER, "4096"), (Direction.RAISE, "4096")])
def test_the_units_own_value_is_put_back_where_it_is_just_what_is_asked(direction: Direction, kept: str) -> None:
    """The own file says --max-model-len 4096, and 4096 is asked for: the drop-in's value gives way to it."""
    over = Setting("/etc/systemd/system/x.d/1.conf", 3, "ExecStart", "/opt/vllm/bin/vllm serve m --max-model-len=9")
    asked = Change(ChangeKind.FLAG, "max-model-len", 9, 4096, direction, Applicability.SAFE, "vllm_max_model_len")
    told = repair(asked, OWN, msgspec.structs.replace(over, line=2, text=""), over)
    assert f"--max-model-len {kept}" in told.commands[0]
