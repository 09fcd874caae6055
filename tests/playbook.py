"""`ansible-playbook` for tests, without its second of imports in each run.

A process that has imported Ansible forks for each run. What a run reads (settings, inventory, roles, plugins) it reads
itself; settings of Ansible's environment stand when Ansible is imported, so each set of them has its own such process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

PROGRAM = Path(sys.executable).with_name("ansible-playbook")
REPOSITORY = Path(__file__).resolve().parents[1]
_SERVE = "import sys; sys.path.insert(0, {!r}); from tests import playbook; del sys.path[0]; playbook.serve()"


def play(
    words: Sequence[object], *, cwd: Path = REPOSITORY, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A run of `ansible-playbook WORDS…`, as subprocess.run gives it."""
    env = dict(os.environ if env is None else env)
    env["PATH"] = f"{PROGRAM.parent}:{env['PATH']}"
    own = json.dumps({name: value for name, value in sorted(env.items()) if _is_setting(name)})
    ready = _ready(own, cwd if (cwd / "ansible.cfg").exists() else Path("/"))
    assert ready.stdin is not None
    assert ready.stdout is not None
    with TemporaryFile() as out, TemporaryFile() as err:
        argv = [str(PROGRAM), *map(str, words)]
        asked = {
            "argv": argv,
            "cwd": str(cwd),
            "env": env,
            "streams": [f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in (out, err)],
        }
        ready.stdin.write(json.dumps(asked) + "\n")
        ready.stdin.flush()
        code = ready.stdout.readline()
        assert code, "the process that is forked for runs has ended"
        return subprocess.CompletedProcess(argv, int(code), _read(out), _read(err))


def _is_setting(name: str) -> bool:
    return name.startswith(("ANSIBLE_", "PYTHON", "LC_")) or name in {"HOME", "LANG"}


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


@cache
def _ready(settings: str, cwd: Path) -> subprocess.Popen[str]:
    """A process that has imported Ansible under these settings, and those of a folder; it ends with ours."""
    env = {name: value for name, value in os.environ.items() if not _is_setting(name)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVE.format(str(REPOSITORY))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=env | json.loads(settings),
    )
    atexit.register(process.communicate)  # it sees the end of its input, and what it took counts for us
    return process


def serve() -> None:
    """Fork a run for each line of the input; the answers are exit codes."""
    import ansible.cli.playbook
    import ansible.executor.task_queue_manager
    import ansible.plugins.strategy.linear  # noqa: F401

    import vllm_doctor.preflight.host_table  # noqa: F401 - of the roles' plugins

    for line in sys.stdin:
        asked = json.loads(line)
        if (run := os.fork()) == 0:
            _run(**asked)
        _, status = os.waitpid(run, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(*, argv: list[str], cwd: str, env: dict[str, str], streams: list[str]) -> None:
    """Be `ansible-playbook` in a process that was forked."""
    from ansible import constants
    from ansible.cli.playbook import main

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, name in enumerate(("/dev/null", *streams)):
        opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY)
        os.dup2(opened, number)
        os.close(opened)
    # The folder of a run is made where Ansible is imported, and removed at the end of the process that imported it.
    atexit._clear()
    own = TemporaryDirectory(prefix="ansible-local-", dir=Path(constants.DEFAULT_LOCAL_TMP).parent)
    constants.DEFAULT_LOCAL_TMP = own.name
    atexit.register(own.cleanup)
    sys.argv = argv
    code = 250
    try:
        main(argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code)
