"""Does the type check refuse a bug? `make lint` then stops it before any test is asked."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.mutate import Mutant

_ERROR = re.compile(r":\d+: error: (.*)")


def refuses(path: Path, changed: Mutant) -> bool:
    """Has the changed module an error of types that the module itself has not? Comments, and what they allow, are in
    neither."""
    return bool(_errors(path, ast.unparse(changed.tree)) - _own(path))


@cache
def _own(path: Path) -> Counter[str]:
    return _errors(path, ast.unparse(ast.parse(path.read_text(encoding="utf-8"))))


def _errors(path: Path, text: str) -> Counter[str]:
    with TemporaryDirectory() as folder:
        shadow = Path(folder) / path.name
        shadow.write_text(text, encoding="utf-8")
        words = ["--strict", "--no-error-summary", "--shadow-file", str(path), str(shadow), str(path)]
        done = subprocess.run([sys.executable, "-m", "mypy", *words], capture_output=True, text=True, check=False)
    return Counter(found[1] for line in done.stdout.splitlines() if (found := _ERROR.search(line)))
