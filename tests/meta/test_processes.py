"""One module starts processes (gather/processes.py), so that one place decides where they run and what they see."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "vllm_doctor"
OWNER = PACKAGE / "gather" / "processes.py"
# A copy of this very process, for a deadline against what computes: no program is started, nothing is looked up.
FORKS = PACKAGE / "gather" / "worker.py"
# The same on the controller, of a task of Ansible: it releases a host when the run is over.
KEEPS = PACKAGE / "preflight" / "running.py"
MODULES = {"subprocess", "multiprocessing", "pty", "commands", "pexpect", "sh", "concurrent.futures.process"}
OF_OS = ("system", "popen", "exec", "spawn", "posix_spawn", "fork", "startfile")
OF_ANY = {"ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "run_module"}


def starts(tree: ast.AST) -> list[str]:
    """The names by which this code could start a process."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [
                alias.name for alias in node.names if alias.name.split(".")[0] in MODULES or alias.name in MODULES
            ]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or ""] if (node.module or "").split(".")[0] in MODULES else []
            of_os = node.module in {"os", "posix"}
            found += [a.name for a in node.names if a.name in OF_ANY or (of_os and a.name.startswith(OF_OS))]
        elif isinstance(node, ast.Attribute):
            of_os = isinstance(node.value, ast.Name) and node.value.id in {"os", "posix"}
            found += [node.attr] if node.attr in OF_ANY or (of_os and node.attr.startswith(OF_OS)) else []
    return found


def test_nothing_else_in_the_package_starts_a_process() -> None:
    owners = {path for path in PACKAGE.rglob("*.py") if starts(ast.parse(path.read_text()))}
    assert owners == {OWNER, FORKS, KEEPS}


def test_each_way_to_start_one_is_seen() -> None:
    for line in (
        "import subprocess",
        "from subprocess import run",
        "import multiprocessing.pool",
        "import os; os.execv('/bin/sh', [])",
        "from os import popen",
        "import asyncio; asyncio.create_subprocess_exec('sh')",
        "from concurrent.futures import ProcessPoolExecutor",
    ):
        assert starts(ast.parse(line)), line
