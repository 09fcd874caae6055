"""Every option of every command with values that no one should give: answered in order, nothing written, nothing hung.

In this process, so that a thousand lines cost seconds; the edges of real processes are in test_edges.py.
"""

import inspect
import time
from importlib import import_module
from pathlib import Path

import pytest
import typer

from tests.cli.test_diagnose import HEALTHY
from vllm_doctor.cli.app import _MODULES
from vllm_doctor.cli.main import run
from vllm_doctor.gather import nvml, processes

VALUES = (
    "", "-", "--", "-1", "0", "nan", "1e999", "\uff19", "9" * 400, "1" + "0" * 5000, "\u202e\u200b",
    "\x1b[2J\x1b]0;owned\x07",
    "<script>alert(1)</script>", "$(touch owned); `touch owned`", "| touch owned", "%s%n%x", "{{ 7 * 7 }}", "a\nb",
    "\udcff\udcfe", "../../../etc/shadow", "/", ".", "/dev/null", "/proc/self/mem", "nowhere/at/all", "x" * 5000, "-rf",
    "vllm@../../x.service", "--help=",
)  # fmt: skip
# What reads the host costs more than a file does: a few of the worst.
ON_A_HOST = tuple(value for value in VALUES if set(value) & set("\x1b\u202e;/\udcff\n"))[:6]
# Something to judge, so that no host is asked; an option that means a host is tried without.
FILES = {"diagnose": ["--log", "log"], "fragmentation": ["--metrics", "metrics"]}
# One look: they go on until somebody ends them.
ONCE = {"guard": ["--once"], "watch": ["--once"]}
# Those read the host.
LIVE = {"bundle", "guard", "watch", "history", "recover", "debug"}
# What writes is tested where it writes.
WRITES = {"--output", "-o"}
MOST_S = 15.0


def options() -> list[tuple[str, str]]:
    """Each command with each of its options, as the command line declares them."""
    found: list[tuple[str, str]] = []
    for command, module in _MODULES.items():
        parameters = inspect.signature(getattr(import_module(f"vllm_doctor.cli.{module}"), command)).parameters
        click = typer.main.get_command(_app(command, module))
        assert len(click.params) >= len(parameters)
        for parameter in click.params:
            found += [(command, name) for name in parameter.opts[:1] if name.startswith("-") and name not in WRITES]
        found += [(command, "")]
    return sorted(set(found))


def _app(command: str, module: str) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command(command)(getattr(import_module(f"vllm_doctor.cli.{module}"), command))
    return app


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without systemd, journal or driver: no option may reach one."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(processes, "PATH", str(tmp_path / "no-programs"))
    monkeypatch.setattr(nvml, "_LIBRARIES", ())
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return here


@pytest.mark.parametrize(("command", "option"), options())
def test_no_value_is_an_internal_error(
    bare: Path, capsys: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    (bare / "log").write_text(HEALTHY)
    (bare / "metrics").write_text('vllm:num_requests_running{engine="0"} 1.0\n')
    live = option in {"--unit", "--canary"} or command in LIVE
    for value in ON_A_HOST if live else VALUES:
        words = [
            command,
            *ONCE.get(command, []),
            *([] if live else FILES.get(command, [])),
            *([option] if option else []),
            value,
        ]
        began = time.process_time()
        code = run(words)
        said = capsys.readouterr()
        assert code in {0, 1, 2, 3}, (words, said.err)
        assert time.process_time() - began < MOST_S, words
        for bad in ("Traceback", "VD0001", "\x1b", "\x07", "\u202e"):
            assert bad not in said.out + said.err, words
        made = {path.name for path in bare.iterdir() if not path.name.startswith("vllm-doctor-")}
        assert made == {"log", "metrics"}, words


HOSTILE = {
    "COLUMNS": "999999999", "LINES": "-1", "TERM": "\x1b[2J", "LANG": "xx_XX.nope", "LC_ALL": "\x1b[2J",
    "TZ": ":/etc/shadow", "HOME": "/nonexistent", "TMPDIR": "/nonexistent", "NO_COLOR": "", "FORCE_COLOR": "1",
    "PAGER": "touch owned", "XDG_STATE_HOME": "relative", "VLLM_DOCTOR_STATE": "\x1b[2J",
}  # fmt: skip


def test_no_variable_is_an_internal_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    for words in (["diagnose"], ["fragmentation"], ["flowchart"], ["explain", "VD121"], ["plan", "--help"], ["--help"]):
        assert run(words) in {0, 1, 2, 3}, words
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
    assert list(bare.iterdir()) == []
