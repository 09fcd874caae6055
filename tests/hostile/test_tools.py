"""What this repository's own tools start reads nothing of the folder that somebody stands in.

Ansible takes ansible.cfg, and with it plugins, from there; uv its settings; `python -m` its first modules.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
TOOLS = sorted((REPO / "tools").glob("*.py"))
# What looks into the current folder for settings, plugins or modules, as a call or the function around it names it.
LOOKING = ("ansible-", "'uv'", "UV", "pip", "sys.executable")
STARTS = {"run", "Popen", "call", "check_call", "check_output"}


def starts(path: Path) -> Iterator[tuple[int, ast.Call, str]]:
    """(line, call, the text of its function) of each process that a tool starts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                module, _, name = ast.unparse(node.func).partition(".") if isinstance(node, ast.Call) else ("", "", "")
                if isinstance(node, ast.Call) and module == "subprocess" and name in STARTS:
                    yield node.lineno, node, ast.unparse(function)


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_what_looks_around_is_started_in_a_folder_of_ours_or_isolated(path: Path) -> None:
    for line, call, text in starts(path):
        looks = any(word in text for word in LOOKING) and "PODMAN" not in ast.unparse(call)
        placed = any(keyword.arg == "cwd" for keyword in call.keywords) or "'-I'" in ast.unparse(call)
        assert placed or not looks, f"{path.name}:{line} starts it where somebody stands"


def test_a_stranger_s_ansible_cfg_runs_nothing_when_our_tools_do(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    trap = f"open({str(sprung)!r}, 'a').write(__file__ + chr(10))\n"
    for folder in ("cb", "library", "filter_plugins", "connection_plugins"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "once.py").write_text(trap)
    for module in ("json", "re", "yaml", "pip", "sitecustomize", "vllm_doctor", "ansible", "releases", "podman"):
        (tmp_path / f"{module}.py").write_text(trap)
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\ncallback_plugins=cb\nstdout_callback=once\nlibrary=library\nfilter_plugins=filter_plugins\n"
    )
    (tmp_path / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"\n')
    tmp_path.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ANSIBLE"))}
    for words in (
        ("role_docs.py", "--check"),
        ("release.py", "history", "--check"),
        ("host.py", "--help"),
        ("lint.py", "role-docs"),
    ):
        command = [sys.executable, str(REPO / "tools" / words[0]), *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
    assert not sprung.exists(), sprung.read_text()
