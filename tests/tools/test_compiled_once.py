"""What Python reads from a zip on a test host is compiled once, and is what the source says."""

import subprocess
import sys
import zipfile
from pathlib import Path

PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
import compiled_once, zipimport
compiled_once.FOLDER = sys.argv[2]
plain, count = compiled_once._compile, []
compiled_once._compile = lambda *words: count.append(1) or plain(*words)
sys.path.insert(0, sys.argv[3])
import answer
print(answer.VALUE, "compiled" if count else "kept")
"""


def said(tmp_path: Path, source: str, *, kept: Path) -> str:
    """What a module of a zip has, and whether its source was compiled."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("answer.py", source)
    tools = Path(__file__).parents[2] / "tools" / "host_python"
    command = [sys.executable, "-S", "-c", PROGRAM, str(tools), str(kept), str(archive)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_source_is_compiled_once_and_another_one_anew(tmp_path: Path) -> None:
    assert said(tmp_path, "VALUE = 1", kept=tmp_path) == "1 compiled"
    assert said(tmp_path, "VALUE = 1", kept=tmp_path) == "1 kept"
    assert said(tmp_path, "VALUE = 2", kept=tmp_path) == "2 compiled"


def test_without_the_folder_or_with_a_torn_file_the_source_counts(tmp_path: Path) -> None:
    assert said(tmp_path, "VALUE = 3", kept=tmp_path / "none") == "3 compiled"
    assert said(tmp_path, "VALUE = 4", kept=tmp_path) == "4 compiled"
    for file in tmp_path.glob("?" * 64):
        file.write_bytes(file.read_bytes()[:20])
    assert said(tmp_path, "VALUE = 4", kept=tmp_path) == "4 compiled"
