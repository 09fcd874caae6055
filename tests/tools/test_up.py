"""Ctrl-C in make up: one line says what to do, and the next run goes on from there."""

import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
# The machine is judged elsewhere; what is left are the real steps, in a copy of the tools.
UP = "import machine, runpy; machine.problems = lambda *_, **__: []; runpy.run_path('up.py', run_name='__main__')"
INTERRUPT = b"\x03"
# The first time it hangs, as a download may; once interrupted it is content.
SLOW_STEP = """
import pathlib, time
seen = pathlib.Path(__file__).with_name("seen")
if not seen.exists():
    seen.touch()
    print("halfway", flush=True)
    while True:  # an interrupt that comes just before signal.pause() would be waited for for ever
        time.sleep(0.1)
"""


@pytest.fixture
def make_up(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Run the steps on a terminal of their own, and press Ctrl-C when a word appears."""
    tools = tmp_path / "tools"
    shutil.copytree(REPO / "tools", tools, ignore=shutil.ignore_patterns("__pycache__"))
    (tools / "make_venv.py").write_text(SLOW_STEP)
    podman = tools / "bin" / "podman"
    podman.write_text('#!/bin/sh\n[ "$*" != "${*#image exists}" ] || { echo "no podman here" >&2; exit 125; }\n')

    def run(interrupt_at: bytes | None = None) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "SANDBOX": "never-started", "XDG_CACHE_HOME": str(tmp_path / "cache")}
        with subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-c", UP],  # its own terminal: Ctrl-C comes from there
            cwd=tools,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            said, pressed = b"", False
            while chunk := read(ours):
                said += chunk
                if interrupt_at and interrupt_at in said and not pressed:
                    os.write(ours, INTERRUPT)
                    pressed = True
        os.close(ours)
        return process.returncode, said.decode().replace("\r\n", "\n")

    return run


def read(terminal: int) -> bytes:
    """What the program wrote; nothing once it has ended (Linux answers EIO then)."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_ctrl_c_says_how_to_go_on_and_the_next_run_does(make_up: Callable[..., tuple[int, str]]) -> None:
    code, said = make_up(interrupt_at=b"halfway")
    assert code == 130
    assert "[2/6] the environment: .venv" in said
    assert "interrupted: run make up again, it takes up from here; make down removes what is there" in said
    assert "[3/6]" not in said
    assert "Traceback" not in said.partition("interrupted")[2]

    code, said = make_up()
    assert "halfway" not in said
    assert "[4/6] the host" in said
    assert "make up: podman" in said, "what fails next is said in its turn"
    assert code == 1


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        (0, "The service in sandbox answers, but port"),
        (1, "The service in sandbox does not answer either"),
    ],
)
def test_a_published_port_that_nobody_answers_at_is_said_in_words(tmp_path: Path, inside: int, said: str) -> None:
    tools = tmp_path / "tools"
    shutil.copytree(REPO / "tools", tools, ignore=shutil.ignore_patterns("__pycache__"))
    asked = tmp_path / "asked"
    (tools / "bin" / "podman").write_text(f'#!/bin/sh\necho "$*" >> {asked}\n[ "$1" != exec ] || exit {inside}\n')
    with socket.socket() as held:  # bound, not listening: whoever connects is refused
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        ask = f"import up\ntry: up.ask_what_is_served('{port}', 'sandbox')\nexcept up.HostError as e: print(e)"
        done = subprocess.run([sys.executable, "-c", ask], cwd=tools, capture_output=True, text=True, check=True)
    assert f"http://127.0.0.1:{port}/v1/models gave no model: " in done.stdout
    assert "refused" in done.stdout
    assert said in done.stdout
    assert asked.read_text().splitlines()[0] == "network reload sandbox"
