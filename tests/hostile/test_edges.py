"""Real processes at their edges: Ctrl-C at any moment, readers that went away, outputs that would cost something."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cli.test_diagnose import HEALTHY, TOO_SMALL
from vllm_doctor.cli.exit_codes import Exit

DOCTOR = Path(sys.executable).with_name("vllm-doctor")
NOISE = ("Traceback", "VD0001", "Exception ignored", "Fatal Python error")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "log").write_text(HEALTHY)
    (tmp_path / "full").write_text(TOO_SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def doctor(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([DOCTOR, *words], capture_output=True, text=True, timeout=120, check=False, **more)  # type: ignore[call-overload]
    assert not [word for word in NOISE if word in done.stderr], done.stderr
    return done  # type: ignore[no-any-return]


def shell(script: str) -> subprocess.CompletedProcess[str]:
    """`doctor` is the command; the exit code is the command's own, whatever reads from it."""
    told = f'doctor() {{ "{DOCTOR}" "$@"; }}\n{script}\nexit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, timeout=120, check=False)
    assert not [word for word in NOISE if word in done.stderr], done.stderr
    return done


@pytest.mark.parametrize("words", [["--help"], ["diagnose", "--log", "full"], ["explain", "--list"]])
@pytest.mark.parametrize("after_ms", [0, 3, 6, 9, 12, 16, 20, 30, 50, 100])
@pytest.mark.usefixtures("here")
def test_ctrl_c_at_any_moment_is_130_without_a_word(words: list[str], after_ms: int) -> None:
    """Killed before Python can answer (a shell says 130 of that too), answered by Python, or too late."""
    with subprocess.Popen([DOCTOR, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        threading.Event().wait(after_ms / 1000)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=120)
    finished = Exit.FINDINGS if "diagnose" in words else Exit.OK
    assert child.returncode in {-signal.SIGINT, Exit.INTERRUPTED, finished}
    assert not said or said.startswith("VD"), said


def test_ctrl_c_inside_a_callback_whose_exceptions_python_drops_is_heard_a_moment_later() -> None:
    """Met in an import lock's callback: the interrupt was printed as ignored, and the command went on."""
    start = DOCTOR.read_text().partition("\n'''\n")[2].partition("    import site\n")[0]
    script = f"""{start}
    import weakref
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored

    class Lock: pass

    lock = Lock()
    seen = weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGINT))
    del lock
    time.sleep(100)
except KeyboardInterrupt:
    raise SystemExit(130) from None
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (Exit.INTERRUPTED, b"")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("doctor --help | head -c0", Exit.OK),
        ("doctor --version | head -c0", Exit.OK),
        ("doctor diagnose --help | head -1", Exit.OK),
        ("doctor --help >&-", Exit.USAGE),
        ("doctor --help >&- 2>&-", Exit.USAGE),
        ("doctor explain --list | head -c0", Exit.OK),
        ("doctor flowchart --format mermaid | head -c0", Exit.OK),
        ("doctor diagnose --log full | head -c0", Exit.FINDINGS),
        ("doctor diagnose --log log --format html | head -c0", Exit.OK),
        ("doctor --no-such-option 2>/dev/full", Exit.USAGE),
        ("doctor diagnose --log log --format x 2>/dev/full", Exit.USAGE),
        ("doctor diagnose --log log --format x 2>&-", Exit.USAGE),
        ("doctor diagnose --no-such 2>&1 >/dev/null | head -c0", Exit.USAGE),
        ("doctor diagnose --log none 2>&1 | head -c0", Exit.USAGE),
        ("doctor diagnose --log full >/dev/full 2>/dev/full", Exit.USAGE),
        ("doctor --help >/dev/full 2>/dev/full", Exit.USAGE),
        ("doctor >/dev/full 2>/dev/full", Exit.USAGE),
        ("doctor diagnose --log full >&- 2>&- <&-", Exit.USAGE),
        ("doctor diagnose --log full -o told.txt >&- 2>&- <&-", Exit.FINDINGS),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_stream_that_nobody_takes_does_not_change_the_exit_code(script: str, code: Exit) -> None:
    """What is written as `head -c0` is a reader that goes away before it has read anything."""
    assert shell(script.replace("| head -c0", "| (exec <&-)")).returncode == code


def test_a_terminal_that_does_not_take_all_at_once_is_waited_for(here: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with subprocess.Popen([DOCTOR, "flowchart"], stdout=writing, stderr=subprocess.PIPE, text=True) as child:
        os.close(writing)
        time.sleep(0.3)  # the pipe is full by then, or soon will be; either way all must come
        with os.fdopen(reading, "rb") as file:
            told = file.read()
        assert child.communicate(timeout=120)[1] == ""
    assert told == doctor("flowchart").stdout.encode()
    assert len(told) > 4096, "more than the pipe holds"


@pytest.mark.parametrize("option", ["--log", "--metrics", "--kernel-log", "--nvidia-smi", "--model-config", "--from"])
def test_what_is_read_is_never_replaced(here: Path, option: str) -> None:
    (here / "link").symlink_to("log")
    os.link(here / "log", here / "hard")
    for target in ("log", "link", "hard"):
        done = doctor("diagnose", "--log", "full", option, "log", "-o", target, "--force")
        assert done.returncode == Exit.USAGE
        assert f"--output {target}: {option} log reads it: name another file" in done.stderr
    assert (here / "log").read_text() == HEALTHY


def test_standard_input_is_not_replaced_either(here: Path) -> None:
    with (here / "log").open() as file:
        assert "--log - reads it" in doctor("diagnose", "--log", "-", "-o", "log", stdin=file).stderr
    assert (here / "log").read_text() == HEALTHY


@pytest.mark.parametrize("command", [["diagnose", "--log", "log"], ["bundle"]])
def test_a_file_that_exists_is_replaced_only_with_force(here: Path, command: list[str]) -> None:
    target = here / "report"
    target.write_text("kept for years")
    (here / "link").symlink_to(target)
    for name in ("report", "link"):
        refused = doctor(*command, "-o", name)
        assert refused.returncode == Exit.USAGE
        assert f"--output {name}: exists (14 bytes): name another file, or replace it with --force" in refused.stderr
    assert target.read_text() == "kept for years"
    assert doctor(*command, "-o", "link", "--force").returncode in {Exit.OK, Exit.INCOMPLETE}
    assert (here / "link").is_symlink()
    assert target.read_bytes() != b"kept for years"


def test_an_empty_file_is_filled(here: Path) -> None:
    """`report=$(mktemp)`: nothing is lost."""
    (here / "report").touch()
    assert doctor("diagnose", "--log", "log", "-o", "report").returncode == Exit.OK
    assert "OK" in (here / "report").read_text()


def test_the_text_file_of_prometheus_is_written_again_and_again(here: Path) -> None:
    command = ["diagnose", "--log", "log", "--format", "prometheus", "-o", "vllm.prom"]
    assert [doctor(*command).returncode for _ in range(2)] == [Exit.OK] * 2
    (here / "vllm.prom").write_text("# HELP node_load1 of somebody else\n")
    assert doctor(*command).returncode == Exit.USAGE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_that_somebody_else_made_is_not_followed(here: Path) -> None:
    link = here / "link"
    link.symlink_to("/etc/vllm-doctor-test-would-be-here")
    os.lchown(link, 65534, 65534)
    assert "is a link that user 65534 made" in doctor("diagnose", "--log", "log", "-o", "link").stderr
    assert not Path("/etc/vllm-doctor-test-would-be-here").exists()


def test_a_pipe_that_nobody_reads_is_refused_and_one_with_a_reader_gets_all(here: Path) -> None:
    os.mkfifo(here / "pipe")
    refused = doctor("diagnose", "--log", "log", "-o", "pipe")
    assert refused.returncode == Exit.USAGE
    assert "--output pipe: nobody reads from it" in refused.stderr
    done = shell('cat pipe & doctor diagnose --log log -o pipe; code=$?; wait; (exit "$code")')
    assert done.returncode == Exit.OK
    assert done.stdout.startswith("OK")


def test_a_dash_is_standard_output(here: Path) -> None:
    assert doctor("diagnose", "--log", "log", "-o", "-").stdout == doctor("diagnose", "--log", "log").stdout
    assert not (here / "-").exists()
    assert doctor("bundle", "-o", "-").returncode == Exit.USAGE
