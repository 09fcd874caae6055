"""The process's edge: standard streams closed, full, without a reader or of a small encoding; -o on a device."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_diagnose import HEALTHY, TOO_SMALL
from tests.gather.test_containers import INSPECT
from tests.gather.test_described import TEXT as DESCRIBED
from vllm_doctor.cli import streams
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run

ENTRY = "import sys; from vllm_doctor.cli.main import entry; entry()"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text(TOO_SMALL)
    return path


def shell(script: str, log: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`script` in a shell, where `doctor` is the command and $LOG a log with a finding."""
    told = f'doctor() {{ "{sys.executable}" -c "{ENTRY}" "$@"; }}\nset -o pipefail\n{script}'
    environment = {**os.environ, "LOG": str(log), **env}
    return subprocess.run(
        ["bash", "-c", told], env=environment, capture_output=True, text=True, check=False, errors="replace"
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("output", ["human", "json", "html", "prometheus"])
def test_any_encoding_of_the_terminal_will_do(log: Path, encoding: str, output: str) -> None:
    done = shell(f'doctor diagnose --log "$LOG" --format {output}', log, PYTHONIOENCODING=encoding)
    assert done.returncode == Exit.FINDINGS, done.stderr
    assert "VD121" in done.stdout


def test_our_signs_have_plain_words_where_the_encoding_lacks_them(log: Path) -> None:
    done = shell('doctor diagnose --log "$LOG"', log, PYTHONIOENCODING="ascii")
    assert "metrics, GPUs) - --path - vllm-doctor\n      explain VD121" in done.stdout


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ('doctor diagnose --log "$LOG" >&-', Exit.USAGE),
        ('doctor diagnose --log "$LOG" >&- 2>&- <&-', Exit.USAGE),
        ('doctor diagnose --log "$LOG" -o "$LOG.told" >&-', Exit.FINDINGS),
        ("doctor diagnose --log - <&-", Exit.INCOMPLETE),
        ("doctor explain VD121 >&-", Exit.USAGE),
        ("doctor --version >&-", Exit.USAGE),
        ('doctor diagnose --log "$LOG" >/dev/full', Exit.USAGE),
        ("doctor --version >/dev/full", Exit.USAGE),
        ("doctor --help >/dev/full", Exit.USAGE),
        ("doctor explain --list >/dev/full", Exit.USAGE),
        ('doctor diagnose --log "$LOG" | true', Exit.FINDINGS),
        ("doctor explain --list | true", Exit.OK),
        ("doctor flowchart --format mermaid | head -1", Exit.OK),
    ],
)
def test_closed_full_and_unread_streams(log: Path, script: str, code: Exit) -> None:
    done = shell(script, log)
    assert done.returncode == code, done.stderr
    for word in ("Traceback", "VD0001", "Exception ignored"):
        assert word not in done.stderr
    assert ("standard output: No space left on device" in done.stderr) == ("/dev/full" in script)


@pytest.mark.parametrize("output", ["human", "json", "html", "prometheus"])
@pytest.mark.parametrize(("device", "code"), [("/dev/null", Exit.OK), ("/dev/full", Exit.USAGE), ("/dev", Exit.USAGE)])
def test_a_device_named_with_o_stays_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, device: str, code: Exit
) -> None:
    """Root renaming a report over /dev/null would break the host."""
    link, log = tmp_path / "link", tmp_path / "log"
    link.symlink_to(device)
    log.write_text(HEALTHY)
    assert run(["diagnose", "--log", str(log), "--format", output, "-o", str(link)]) == code
    assert link.is_symlink()
    said = capsys.readouterr().err
    assert "VD0001" not in said
    assert ("free space there (df " in said) == (device == "/dev/full")


def test_a_bundle_is_made_into_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    assert run(["bundle", "-o", str(link)]) == Exit.USAGE
    assert "device" in capsys.readouterr().err
    assert link.is_symlink()


def test_a_bug_is_told_without_what_acts_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_words: list[str]) -> int:
        raise RuntimeError("\x1b[2Jowned")

    monkeypatch.setattr("vllm_doctor.cli.quick.diagnose", broken)
    assert run(["diagnose"]) == Exit.INTERNAL
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "VD0001 internal error: RuntimeError" in told


@pytest.mark.parametrize("sign", ["\x1b]0;x\x07", "\x1b[2K", "\x9b2J", "\x07", "\u202e", "\x7f", "\r", "\u2028"])
def test_nothing_that_acts_on_a_terminal_leaves_and_json_stays_the_same(sign: str) -> None:
    out = io.StringIO()
    guard = streams.Guarded(out)
    guard.write(f'{{"unit":"a{sign}b"}}\n\x1b[1;31mred\x1b[0m\t\x1b[H\x1b[J\n')
    first, second, _ = out.getvalue().split("\n")
    assert sign not in first
    assert json.loads(first) == {"unit": f"a{sign}b"}
    assert second == "\x1b[1;31mred\x1b[0m\t\x1b[H\x1b[J"


@pytest.mark.parametrize("script", ["cat DOC | doctor diagnose", "doctor diagnose <DOC", "doctor diagnose - <DOC"])
@pytest.mark.parametrize("name", ["pod.txt", "inspect.json"])
def test_a_description_is_told_by_what_it_says_when_it_is_piped_in_too(
    log: Path, tmp_path: Path, script: str, name: str
) -> None:
    times = {"StartedAt": "2026-03-01T10:00:00Z", "FinishedAt": "2026-03-01T10:02:00Z"}
    ended = {"Status": "exited", "OOMKilled": True, "ExitCode": 137, **times}
    killed = {**INSPECT, "State": ended}
    (tmp_path / "inspect.json").write_text(json.dumps([killed], indent=4))
    (tmp_path / "pod.txt").write_text(DESCRIBED)
    done = shell(script.replace("DOC", str(tmp_path / name)), log)
    assert (done.returncode, done.stdout.splitlines()[1].split()[0]) == (Exit.FINDINGS, "VD003"), done.stdout


def test_a_log_that_begins_as_a_description_does_is_read_whole(log: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"Id": "no description"}\n' + TOO_SMALL)
    done = shell(f"cat {tmp_path / 'log'} | doctor diagnose", log)
    assert "VD121" in done.stdout


def test_a_bundle_on_a_full_disk_says_to_make_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("vllm_doctor.gather.bundle.write_bundle", full)
    assert run(["bundle", "-o", str(tmp_path / "case.tar.gz")]) == Exit.USAGE
    assert f"No space left on device: free space there (df {tmp_path})" in capsys.readouterr().err
