"""systemctl's answers as units; a host without systemd, without vLLM, and one that does not answer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.gather import systemd, unit_line
from vllm_doctor.records.reading import Absent, Known, Unknown

Put = Callable[[str, str], None]

UNIT = """Id=vllm.service
LoadState=loaded
ActiveState=failed
SubState=failed
Result=oom-kill
InvocationID=0123456789abcdef0123456789abcdef
MainPID=0
ExecMainCode=2
ExecMainStatus=9
NRestarts=3
MemoryMax=68719476736
MemoryPeak=18446744073709551615
ControlGroup=
ExecStart={ path=/v ; argv[]=/opt/v/bin/vllm serve m --api-key s3cr3t-x --x {"a": 1} ; ignore_errors=no ; pid=0 }
Environment=VLLM_USE_V1=0 "WITH_SPACE=a b" HF_TOKEN=hf_secret_secret_secret
FragmentPath=/etc/systemd/system/vllm.service
DropInPaths=/etc/systemd/system/vllm.service.d/a.conf /etc/systemd/system/vllm.service.d/b.conf
StandardOutput=append:/var/log/vllm.log
"""
DOCTOR = """
Id=vllm-doctor.service
LoadState=loaded
ActiveState=inactive
ExecStart={ path=/x ; argv[]=/x vllm serve ; ignore_errors=no }
"""
OTHER = """
Id=vllm-thing.service
LoadState=loaded
ActiveState=active
ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c true ; ignore_errors=no }
"""
HEALTHY = UNIT.replace("vllm.service", "vllm@b.service").replace("ActiveState=failed", "ActiveState=active")


def answers(put: Put, text: str, err: str = "", code: int = 0) -> None:
    put(
        "systemctl",
        f"""[ "$1" = list-unit-files ] && exit 0\ncat <<'EOF'\n{text}\nEOF\necho '{err}' >&2; exit {code}""",
    )


def test_a_unit_with_all_that_systemd_says(on_path: Put) -> None:
    answers(on_path, UNIT)
    found = systemd.find("vllm", 60)
    assert isinstance(found, Known)
    (one,) = found.value
    unit = one.unit
    assert (unit.active_state, unit.result, unit.exit_code, unit.exit_status, unit.restarts) == (
        "failed", "oom-kill", "killed", 9, 3,
    )  # fmt: skip
    assert (unit.memory_max, unit.memory_peak, unit.main_pid, unit.oom_kills) == (68719476736, None, None, None)
    assert len(unit.drop_ins) == 2
    assert one.output_file == "/var/log/vllm.log"
    assert one.argv[-1] == '{"a": 1}'
    assert one.env["WITH_SPACE"] == "a b"
    assert one.env["VLLM_USE_V1"] == "0"


def test_every_environment_file_is_kept(on_path: Put) -> None:
    files = "EnvironmentFiles=/etc/a (ignore_errors=no)\nEnvironmentFiles=/etc/b c (ignore_errors=yes)\n"
    answers(on_path, UNIT + files)
    found = systemd.find("vllm", 60)
    assert isinstance(found, Known)
    kept = found.value[0].unit.properties["EnvironmentFiles"]
    assert kept.splitlines() == ["/etc/a (ignore_errors=no)", "/etc/b c (ignore_errors=yes)"]


def test_no_secret_is_in_the_unit(on_path: Put) -> None:
    answers(on_path, UNIT)
    found = systemd.find("vllm", 60)
    assert isinstance(found, Known)
    assert "s3cr3t-x" not in repr(found.value[0].unit)
    assert "hf_secret" not in repr(found.value[0].unit)


def test_of_several_units_those_in_trouble_come_first_and_ours_are_left_out(on_path: Put) -> None:
    answers(on_path, HEALTHY + "\n" + UNIT + DOCTOR + OTHER)
    found = systemd.find(None, 60)
    assert isinstance(found, Known)
    assert [f.unit.name for f in found.value] == ["vllm.service", "vllm@b.service"]


@pytest.mark.parametrize(
    ("text", "err"),
    [
        ("", ""),
        ("Id=vllm.service\nLoadState=not-found\nActiveState=inactive\n", ""),
        ("", "System has not been booted with systemd as init system (PID 1)."),
        ("", "Failed to connect to bus: No such file or directory"),
    ],
)
def test_no_vllm_or_no_systemd_is_not_applicable(on_path: Put, text: str, err: str) -> None:
    answers(on_path, text, err, code=1 if err else 0)
    assert isinstance(systemd.find(None, 60), Absent)


def test_a_unit_that_was_named_and_is_not_there_is_said(on_path: Put) -> None:
    answers(on_path, "Id=vllm.service\nLoadState=not-found\nActiveState=inactive\n")
    assert systemd.find("vllm", 60) == Absent("there is no unit vllm.service on this host")


def test_a_systemd_that_does_not_answer_is_unknown_in_time(on_path: Put) -> None:
    on_path("systemctl", "sleep 300")
    found = systemd.find("vllm", 0.5)
    assert isinstance(found, Unknown)
    assert "did not answer" in found.reason


@pytest.mark.parametrize(
    "name", ["vllm@*", "vllm@[a-z]", "vllm@?.service", "--help; touch /tmp/owned.service", "a b", ""]
)
def test_what_is_not_the_name_of_one_unit_is_asked_of_nobody(on_path: Put, tmp_path: Path, name: str) -> None:
    on_path("systemctl", f"touch {tmp_path}/asked; printf 'Id=vllm@one.service\\nLoadState=loaded\\n'")
    assert systemd.find(name, 60) == Absent(f"{name!r} is not the name of one unit")
    assert not (tmp_path / "asked").exists()


def test_an_instance_may_have_a_dot_in_its_name(on_path: Put) -> None:
    on_path(
        "systemctl",
        """for a in "$@"; do last="$a"; done; printf 'Id=%s\\nLoadState=loaded\\nActiveState=active\\n' "$last" """,
    )
    found = systemd.find("vllm@qwen2.5", 60)
    assert isinstance(found, Known)
    assert found.value[0].unit.name == "vllm@qwen2.5.service"


def test_a_word_of_a_command_is_no_property(on_path: Put) -> None:
    lines = "x\nMainPID=1\nControlGroup=/system.slice/sshd.service\nUser=root"
    answers(on_path, UNIT.replace("serve m", f"serve {lines}").replace("MainPID=0", "MainPID=77"))
    found = systemd.find("vllm", 60)
    assert isinstance(found, Known)
    (one,) = found.value
    assert (one.unit.main_pid, one.control_group) == (77, "")
    assert one.argv[:3] == ("/opt/v/bin/vllm", "serve", lines)
    assert one.unit.properties.get("User") is None
    assert one.unit.fragment == "/etc/systemd/system/vllm.service"


WORDS = ["/opt/v/bin/vllm", "serve", "m\nMainPID=1", "--served-model-name", "x ; ignore_errors=no ; y", "${PORT}"]
BUS = json.dumps({"data": [[WORDS[0], WORDS, ["ignore-failure", "no-env-expand"], 0, 0, 0, 0, 0, 0, 0]]})


def test_the_bus_says_the_command_word_for_word(on_path: Put) -> None:
    put_bus(on_path, BUS)
    line = unit_line.line("vllm@1.service")
    assert line is not None
    assert line.words == tuple(WORDS)
    assert (line.prefix, line.plain) == ("-:", True)
    answers(on_path, UNIT)
    found = systemd.find("vllm", 60)
    assert isinstance(found, Known)
    assert unit_line.exact(found.value[0]).argv == line.words  # no variable is replaced where the unit says so
    put_bus(on_path, BUS.replace(', "no-env-expand"', ""))
    assert unit_line.exact(found.value[0]).argv[-1] == ""


@pytest.mark.parametrize(
    "said",
    ["", "[" * 100_000, "{}", '{"data": 1}', '{"data": []}', '{"data": [["/v", "serve", []]]}', '{"data": [[]]}',
     '{"data": [["/v", ["/v"], []], ["/w", ["/w"], []]]}', '{"data": {"a": 1}}'],
)  # fmt: skip
def test_a_bus_that_says_something_else_says_nothing(on_path: Put, said: str) -> None:
    put_bus(on_path, said)
    assert unit_line.line("vllm.service") is None
    answers(on_path, UNIT)
    found = systemd.find("vllm", 60)
    assert isinstance(found, Known)
    assert unit_line.exact(found.value[0]) == found.value[0]


def put_bus(put: Put, said: str) -> None:
    put("busctl", f"cat <<'EOF'\n{said}\nEOF")


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("StandardOutput=append:/var/log/%p/%i.log", "/var/log/vllm/a.log"),
        ("StandardOutput=journal\nStandardOutput = truncate:/var/log/%N", "/var/log/vllm@a"),
        ("StandardOutput=append:%S/x", ""),  # a specifier that systemd alone knows
        ("StandardOutput=journal", ""),
        ("", ""),
    ],
)
def test_the_file_that_a_unit_writes_to_stands_in_its_own_files(
    on_path: Put, tmp_path: Path, said: str, path: str
) -> None:
    (tmp_path / "unit").write_text(f"[Service]\n{said}\n")
    shown = UNIT.replace("Id=vllm.service", "Id=vllm@a.service").replace("append:/var/log/vllm.log", "append")
    shown = shown.replace("/etc/systemd/system/vllm.service\n", f"{tmp_path}/unit\n")
    answers(on_path, shown)
    found = systemd.find("vllm@a", 60)
    assert isinstance(found, Known)
    assert found.value[0].output_file == path
