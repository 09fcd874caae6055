"""Approve what the doctor answers now: write the files, show what changed. `--check` only shows; 1 where it differs."""

import argparse
import difflib
import sys
from pathlib import Path

from tests.approved.files import FOLDER, made, present, text


def changes(path: Path, old: str, new: str) -> list[str]:
    """A unified diff that names the scenario or question around each change."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]
    shown = [f"{path.relative_to(FOLDER)}"]
    for line in lines:
        if line.startswith("@@"):
            start = int(line.split("+")[1].split(",")[0].split(" ")[0])
            above = [row for row in new.splitlines()[: start + 2] if row.startswith(("vd", "$"))]
            shown.append(f"  @@ {above[-1] if above else ''}")
        else:
            shown.append(f"  {line}")
    return shown


def main() -> int:
    """Exit status: 0, or 1 where `--check` found a difference."""
    asked = argparse.ArgumentParser(prog="python -m tests.approved", description=__doc__)
    asked.add_argument("--check", action="store_true", help="write nothing")
    asked.add_argument("only", nargs="*", help="only the files whose path holds one of these: plans/, VD121")
    said = asked.parse_args()
    check = said.check
    files = {
        path: write for path, write in made().items() if not said.only or any(one in str(path) for one in said.only)
    }
    differ = {path: new for path, write in files.items() if (new := write()) != text(path)}
    gone = set() if said.only else present() - set(files)
    for path, new in sorted(differ.items()):
        print("\n".join(changes(path, text(path), new)))
        if not check:
            path.write_text(new, encoding="utf-8")
    for path in sorted(gone):
        print(f"{path.relative_to(FOLDER)}: no scenario writes it any more")
        if not check:
            path.unlink()
    count = len(differ) + len(gone)
    print(f"{len(files)} files, {count} {'differ' if check else 'approved anew'}", file=sys.stderr)
    return 1 if check and count else 0


if __name__ == "__main__":
    sys.exit(main())
