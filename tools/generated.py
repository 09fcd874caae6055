"""A file that is made from the thing that it describes: written, or with --check found stale."""

from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


def main(arguments: list[str], wanted: dict[Path, str], source: str) -> int:
    """Write each file that is not as wanted; with --check only say which one is not what `source` says."""
    stale = [p for p, text in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        name = path.relative_to(REPO) if path.is_relative_to(REPO) else path
        if "--check" in arguments:
            print(f"{name}: not what {source}; do: make docs")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
        print(f"wrote {name}")
    return 1 if stale and "--check" in arguments else 0
