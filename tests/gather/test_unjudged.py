"""Real processes of vLLM on a host: stopped ones, and those without a unit. Their control groups are stood in."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gather.test_containers import INSPECT, docker
from tests.gather.test_live import UNIT, Put
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import procfs

ID = "0123456789ab" + "c" * 52
NODE = "fedcba987654" + "d" * 52
SLEEP = "import sys, time; print(1, flush=True); time.sleep(600)"


class Host:
    """A /proc that holds the processes of the test alone, each in the control group that it was given."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.groups = proc.parent / "cgroup"
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str, group: str) -> int:
        """A real process with this command line."""
        child = subprocess.Popen([argv[0], "-c", SLEEP], executable=sys.executable, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        self.children.append(child)
        own = self.proc / str(child.pid)
        own.mkdir()
        for name in ("stat", "statm"):
            (own / name).symlink_to(f"/proc/{child.pid}/{name}")
        (own / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0")
        (own / "cgroup").write_text(f"0::{group}\n")
        return child.pid

    def stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)


@pytest.fixture
def host(on_path: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    proc = tmp_path / "proc"
    proc.mkdir()
    for name in ("meminfo", "net", "sys"):
        (proc / name).symlink_to(f"/proc/{name}")
    monkeypatch.setattr(procfs, "PROC", proc)
    made = Host(proc)
    monkeypatch.setattr(procfs, "CGROUPS", made.groups)
    yield made
    for child in made.children:
        child.kill()
        child.wait()


def judged(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    code = run(["diagnose", "--format", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def unit(put: Put, *, main_pid: int, active: str = "active", sub: str = "running") -> None:
    shown = UNIT.format(active=active, sub=sub, result="success").replace("MainPID=0", f"MainPID={main_pid}")
    put("systemctl", f"""[ "$1" = list-unit-files ] && exit 0\ncat <<'EOF'\n{shown}\nEOF""")
    put("journalctl", "exit 0")
    put("dmesg", "exit 1")


def no_systemd(put: Put) -> None:
    put("systemctl", "echo 'System has not been booted with systemd as init system' >&2; exit 1")


@pytest.mark.parametrize(
    ("argv", "group", "words"),
    [
        (
            ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m"),
            f"/system.slice/docker-{ID}.scope",
            ("in the container 0123456789ab", "vllm-doctor diagnose docker:0123456789ab"),
        ),
        (
            ("VLLM::EngineCore",),
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
            ("in the container 0123456789ab", "vllm-doctor diagnose podman:0123456789ab"),
        ),
        (
            ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
            f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope",
            ("in the container 0123456789ab", "crictl logs 0123456789ab"),
        ),
        (
            ("vllm", "serve", "m"),
            f"/system.slice/docker-{NODE}.scope/kubelet.slice/kubelet-kubepods.slice/cri-containerd-{ID}.scope",
            (
                "in the container 0123456789ab",
                "docker exec fedcba987654 crictl logs 0123456789ab 2>&1 | vllm-doctor diagnose --log -",
            ),
        ),
        (
            ("vllm", "serve", "m"),
            f"/machine.slice/libpod-{NODE}.scope/container/docker/{ID}",
            (
                "in the container 0123456789ab",
                "podman exec fedcba987654 docker logs 0123456789ab 2>&1 | vllm-doctor diagnose --log -",
            ),
        ),
        (("vllm", "serve", "m"), "/system.slice/llm.service", ("of llm.service", "diagnose --unit llm.service")),
        (
            ("vllm", "serve", "m"),
            "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service",
            (
                "of vllm.service of user USER",
                "journalctl -b -o short-iso _UID=1000 _SYSTEMD_USER_UNIT=vllm.service | vllm-doctor diagnose --log -",
            ),
        ),
    ],
)
def test_a_server_that_no_unit_explains_is_named_and_the_answer_is_incomplete(  # noqa: PLR0917
    host: Host,
    on_path: Put,
    capsys: pytest.CaptureFixture[str],
    argv: tuple[str, ...],
    group: str,
    words: tuple[str, str],
) -> None:
    no_systemd(on_path)
    pid = host.start(*argv, group=group)
    code, told = judged(capsys=capsys)
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    (row,) = [r for r in told["unknown"] if "did not check" in r["reason"]]  # type: ignore[attr-defined]
    assert f"process {pid}" in row["reason"]
    assert words[0].replace("USER", str(procfs.user_of(pid))) in row["reason"]
    assert words[1] in row["remedy"]


def test_a_server_under_a_systemd_in_a_container_is_judged_by_its_own_command_line(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    no_systemd(on_path)
    host.start(
        "vllm", "serve", "m/inner", "--port", "1", group=f"/system.slice/docker-{ID}.scope/system.slice/llm.service"
    )
    state = {"Status": "running", "Running": True, "Pid": 0, "StartedAt": "2026-03-01T10:00:00Z"}
    init = {**INSPECT, "Id": ID, "Path": "/sbin/init", "Args": [], "State": state}
    docker(on_path, tmp_path, init)
    (tmp_path / "out").write_text("")
    _, told = judged("--no-canary", "docker:llm", capsys=capsys)
    assert told["launch"] == ["vllm", "serve", "m/inner", "--port", "1"]
    (row,) = [r for r in told["unknown"] if r["signal"] == "log"]  # type: ignore[attr-defined]
    assert row["remedy"] == "docker exec llm journalctl -b -o short-iso -u llm.service | vllm-doctor diagnose -"
    assert "llm.service in it writes to its journal" in row["reason"]


@pytest.mark.parametrize(
    "group",
    [
        "/user.slice/user-0.slice/session-1.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope",
    ],
)
def test_a_server_that_a_terminal_started_is_judged_by_itself(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    no_systemd(on_path)
    pid = host.start("vllm", "serve", "m", "--port", "1", group=group)
    code, told = judged(capsys=capsys)
    assert (code, told["verdict"], told["subject"]["place"]) == (Exit.INCOMPLETE, "unknown", f"pid:{pid}")  # type: ignore[index]
    assert told["others"] == []
    assert "the process runs and does not serve" in told["path"][-1]["because"]  # type: ignore[index]
    assert judged(f"pid:{pid}", capsys=capsys)[1]["launch"] == ["vllm", "serve", "m", "--port", "1"]


def test_a_process_that_is_no_vllm_is_not_judged_as_one(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    no_systemd(on_path)
    pid = host.start("/usr/sbin/sshd", "-D", group="/system.slice/ssh.service")
    assert run(["diagnose", f"pid:{pid}"]) == Exit.USAGE
    assert f"pid:{pid} is /usr/sbin/sshd, no vLLM: name a vllm serve" in capsys.readouterr().err


def test_the_file_that_it_writes_to_is_its_log(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    no_systemd(on_path)
    pid = host.start("vllm", "serve", "m", "--swap-space", "4", group="/user.slice/session-1.scope")
    written = tmp_path / "nohup.out"
    written.write_text("vllm: error: unrecognized arguments: --swap-space 4\n")
    (host.proc / str(pid) / "fd").mkdir()
    (host.proc / str(pid) / "fd" / "1").symlink_to(written)
    code, told = judged(capsys=capsys)
    assert (code, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD501")  # type: ignore[index]


@pytest.mark.parametrize(
    "argv",
    [
        ("vllm-doctor", "plan", "--", "vllm", "serve", "m"),
        ("vim", "vllm", "serve"),
        ("sudo", "vllm", "serve", "m"),
        ("docker", "run", "image", "vllm", "serve", "m"),
        ("python3", "/usr/bin/vllm-doctor", "plan", "--", "vllm", "serve", "m"),
    ],
)
def test_a_program_that_was_given_the_words_is_no_server(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    no_systemd(on_path)
    host.start(*argv, group="/user.slice/session-1.scope")
    code, told = judged(capsys=capsys)
    assert (code, told["verdict"]) == (Exit.OK, "not_applicable")


def test_beside_a_unit_in_order_a_container_is_not_passed_over(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    unit(on_path, main_pid=0, active="inactive", sub="dead")
    on_path("journalctl", "exit 0")
    pid = host.start("vllm", "serve", "m", group=f"/docker/{ID}")
    code, told = judged(capsys=capsys)
    assert code == Exit.INCOMPLETE
    everything = json.dumps(told)
    assert f"process {pid}" in everything
    assert "diagnose docker:0123456789ab" in everything
    code, told = judged("--unit", "vllm.service", capsys=capsys)
    assert f"process {pid}" not in json.dumps(told)


@pytest.mark.parametrize("which", [0, 1])
def test_a_stopped_process_of_the_unit_is_a_finding_with_its_number(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str], which: int
) -> None:
    pids = [
        host.start(*argv, group="/system.slice/vllm.service")
        for argv in (("/opt/vllm/bin/vllm", "serve", "m", "--port", "1"), ("VLLM::EngineCore",))
    ]
    unit(on_path, main_pid=pids[0])
    code, told = judged(capsys=capsys)
    assert "VD901" not in {f["code"] for f in told["findings"]}  # type: ignore[attr-defined]
    host.stop(pids[which])
    code, told = judged(capsys=capsys)
    first = told["findings"][0]  # type: ignore[index]
    assert (code, first["code"], first["confidence"]) == (Exit.FINDINGS, "VD901", "confirmed")
    assert first["title"].startswith(f"Process {pids[which]} (")
    assert first["changes"][0]["command"] == f"kill -CONT {pids[which]}"


@pytest.mark.parametrize(
    ("argv", "group", "command"),
    [
        (("/opt/vllm/bin/vllm", "serve", "m"), "/system.slice/vllm.service", "systemctl thaw vllm.service"),
        (("VLLM::EngineCore",), f"/system.slice/docker-{ID}.scope", "docker unpause 0123456789ab"),
    ],
)
def test_a_frozen_control_group_is_a_finding_though_every_process_sleeps_as_ever(  # noqa: PLR0917
    host: Host,
    on_path: Put,
    capsys: pytest.CaptureFixture[str],
    argv: tuple[str, ...],
    group: str,
    command: str,
) -> None:
    pid = host.start(*argv, group=group)
    if "docker" in group:
        no_systemd(on_path)
    else:
        unit(on_path, main_pid=pid)
    events = host.groups / group.strip("/") / "cgroup.events"
    events.parent.mkdir(parents=True)
    events.write_text("populated 1\nfrozen 0\n")
    assert "VD901" not in json.dumps(judged(capsys=capsys)[1]["findings"])
    events.write_text("populated 1\nfrozen 1\n")
    code, told = judged(capsys=capsys)
    first = told["findings"][0]  # type: ignore[index]
    assert (code, first["code"], first["confidence"]) == (Exit.FINDINGS, "VD901", "confirmed")
    assert first["changes"][0]["command"] == command


def test_the_same_name_in_a_user_s_own_systemd_is_another_service(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    unit(on_path, main_pid=0, active="inactive", sub="dead")
    pid = host.start("vllm", "serve", "m", group="/user.slice/user-7.slice/user@7.service/app.slice/vllm.service")
    code, told = judged(capsys=capsys)
    assert code == Exit.INCOMPLETE
    assert f"process {pid} (vllm serve m) of vllm.service of user" in json.dumps(told)


def test_a_host_whose_cards_do_not_answer_is_not_in_order_for_want_of_a_unit(
    host: Host, on_path: Put, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_doctor.gather import nvml
    from vllm_doctor.records.reading import Unknown

    no_systemd(on_path)
    assert host.proc.is_dir()
    crashed = Unknown("NVML: the library crashed while it was asked (signal 11)", "journalctl -k -b")
    monkeypatch.setattr(nvml, "read", lambda: (crashed, crashed))
    code, told = judged(capsys=capsys)
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    assert "crashed" in told["path"][-1]["because"]  # type: ignore[index]
