"""A packed module that is handed to a Python which is there behaves as if Python had been started for it."""

import base64
import io
import json
import os
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "tools" / "host_python" / "ready_python.py"
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root's modules are handed over")
# What Ansible sends, as far as it counts here: a zip in a script, laid first on sys.path.
PACKED = """\
_ANSIBALLZ_WRAPPER = True
zip_data='{zipped}',
import base64, os, sys, tempfile
folder = tempfile.mkdtemp(dir={scratch!r})
with open(folder + '/payload.zip', 'wb') as file:
    file.write(base64.b64decode(zip_data[0]))
sys.path.insert(0, folder + '/payload.zip')
import ansible.modules.asked
"""
TOLD = """
import json, os, sys
from ansible.module_utils import basic
print(json.dumps({
    'pid': os.getppid(), 'common': basic.VALUE, 'imported_in': basic.PID, 'own': os.getpid(), 'umask': os.umask(0),
    'folder': os.getcwd(), 'environment': os.environ.get('SAID'), 'argv': sys.argv,
    'main': sys.modules['__main__'].__name__, 'uname': __import__('platform').node()}))
"""


class Machine:
    """A Python as a test host has it, with a folder of its own for the server."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scratch = folder / "run", folder / "scratch"
        self.scratch.mkdir()
        made = [sys.executable, "-m", "venv", "--without-pip", folder / "venv"]
        subprocess.run(made, check=True)
        self.python = folder / "venv/bin/python3"
        (packages,) = (folder / "venv/lib").glob("python3*/site-packages")
        text = SOURCE.read_text()
        for old, new in (('FOLDER = "/run/ready-python"', f"FOLDER = {str(self.folder)!r}"), ("30.0", "0.2")):
            assert text.count(old) == 1
            text = text.replace(old, new)
        (packages / "ready_python.py").write_text(text)
        (packages / "ready_python.pth").write_text("import ready_python\n")

    def packed(self, module: str, *, common: str = "1") -> str:
        """A script that runs this module, whose shared code has this value."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as made:
            made.writestr("ansible/__init__.py", "")
            made.writestr("ansible/module_utils/__init__.py", "")
            made.writestr("ansible/module_utils/basic.py", f"import os\nVALUE = {common}\nPID = os.getpid()\n")
            made.writestr("ansible/modules/__init__.py", "")
            made.writestr("ansible/modules/asked.py", module)
        zipped = base64.b64encode(data.getvalue()).decode()
        return PACKED.format(zipped=zipped, scratch=str(self.scratch))

    def run(self, script: str, **words: object) -> subprocess.CompletedProcess[str]:
        """`python3` with a script on standard input, as Ansible's pipelining calls it."""
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **dict(words.pop("env", {}))}  # type: ignore[call-overload]
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [self.python], input=script, capture_output=True, text=True, check=False, env=environment, **words
        )

    def ready(self) -> None:
        """Let the first module leave its server, and wait for it."""
        assert self.run(self.packed("")).returncode == 0
        deadline = time.monotonic() + 60
        while not (self.folder / "socket").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_module_runs_in_a_fork_with_environment_folder_and_umask(machine: Machine, tmp_path: Path) -> None:
    machine.ready()
    told = json.loads(machine.run(machine.packed(TOLD), cwd=tmp_path, env={"SAID": "a"}, umask=0o027).stdout)
    assert told["imported_in"] == told["pid"] != told["own"]
    assert (told["folder"], told["environment"], told["umask"]) == (str(tmp_path), "a", 0o027)
    assert (told["argv"], told["main"], told["uname"]) == ([""], "__main__", os.uname().nodename)
    again = json.loads(machine.run(machine.packed(TOLD)).stdout)
    assert (again["pid"], again["environment"]) == (told["pid"], None)


def test_another_checkouts_common_code_is_imported_anew_and_the_server_ends(machine: Machine) -> None:
    machine.ready()
    told = json.loads(machine.run(machine.packed(TOLD, common="2")).stdout)
    assert (told["common"], told["imported_in"]) == (2, told["own"])
    after = json.loads(machine.run(machine.packed(TOLD, common="2")).stdout)
    assert after["imported_in"] == after["own"]


@pytest.mark.parametrize(
    ("module", "code", "out", "error"),
    [
        ("import sys; print('x'); sys.exit(3)", 3, "x\n", ""),
        ("import atexit; atexit.register(print, 'last')", 0, "last\n", ""),
        ("raise ValueError('nobody caught')", 1, "", "ValueError: nobody caught"),
        ("import os; os.kill(os.getpid(), 9)", 137, "", ""),
        ("import subprocess; print(subprocess.call(['false']))", 0, "1\n", ""),
        ("import sys; print(repr(sys.stdin.read()))", 0, "''\n", ""),
        ("import os, stat; print(stat.S_ISFIFO(os.fstat(0).st_mode), os.read(0, 9))", 0, "True b''\n", ""),
    ],
)
def test_how_it_ends_is_how_python_ends(machine: Machine, module: str, code: int, out: str, error: str) -> None:
    first = machine.run(machine.packed(module))  # nobody is there yet: Python itself
    assert (first.returncode % 256, first.stdout) in {(code, out), (-9 % 256, out)}
    machine.ready()
    done = machine.run(machine.packed(module))
    assert (done.returncode, done.stdout) == (code, out)
    assert error in done.stderr
    assert error in first.stderr


def test_two_at_once_do_not_wait_for_each_other(machine: Machine, tmp_path: Path) -> None:
    machine.ready()
    os.mkfifo(tmp_path / "door")
    waits = subprocess.Popen([machine.python], stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"]}, text=True)
    assert waits.stdin
    waits.stdin.write(machine.packed(f"open({str(tmp_path / 'door')!r}).read()"))
    waits.stdin.close()
    assert machine.run(machine.packed("print(1)")).stdout == "1\n"
    (tmp_path / "door").write_text("")
    assert waits.wait() == 0


def test_other_scripts_are_pythons_own(machine: Machine) -> None:
    machine.ready()
    script = textwrap.dedent("""
        import os, sys
        print(sys.argv, os.getppid())
    """)
    assert machine.run(script).stdout == f"[''] {os.getpid()}\n"
    assert machine.run("print(1) if", env={}).returncode == 1


def test_the_server_goes_when_its_place_is_gone(machine: Machine) -> None:
    machine.ready()
    pid = json.loads(machine.run(machine.packed(TOLD)).stdout)["pid"]
    (machine.folder / "socket").unlink()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
