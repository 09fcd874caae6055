#!/usr/bin/env python3
"""Write down what a vLLM release is made of, and say what a person must read:

    tools/release.py add vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl   # or a folder with it unpacked
    tools/release.py diff 0.32.0 0.33.0        # what is written down, compared
    tools/release.py spans                     # wordings that did not change reach the newest release
    tools/release.py history [--check]         # the files that the package reads

A wheel is read, never installed, and nothing of it runs. Its data is vllm_doctor/knowledge/releases/VERSION.json; no
other release's file is touched. The order of work is in CONTRIBUTING.md, "A release of vLLM".
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from releases import history, read, refusals, report, store
from releases.messages import Sought
from releases.report import Catalogued
from releases.wheel import Wheel, WheelError
from releases.wheel import read as read_wheel

from vllm_doctor.knowledge.claims import replacements
from vllm_doctor.knowledge.compat import table
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.match import messages

REPO = Path(__file__).resolve().parent.parent
CATALOGUE = REPO / "vllm_doctor" / "log" / "catalogue"


def sought() -> list[Sought]:
    """The catalogue's messages as they are looked for in a source."""
    return [Sought(m.id, m.anchor, tuple(s.line for s in m.samples), m.source) for m in messages()]


def catalogued() -> list[Catalogued]:
    """The catalogue's messages with the last release of each wording (`0.33` is `0.33.0`)."""
    return [Catalogued(m.id, tuple(_last(s.versions) for s in m.samples)) for m in messages()]


def _last(versions: str) -> str:
    last = versions.rpartition("..")[2]
    return f"{last}.0" if re.fullmatch(r"\d+\.\d+", last) else last


def add(place: Path, folder: Path = store.FOLDER, made: Path = history.FOLDER) -> int:
    """Write one release's file and say what changed; 2 for what is no wheel of vLLM, with everything as it was."""
    began = time.monotonic()
    try:
        wheel = read_wheel(place)
        release = read.release(wheel, sought())
    except WheelError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 2
    file = store.path(wheel.version, folder)
    earlier = store.before(wheel.version, folder)
    wrote = store.write(file, store.dumps(release))
    histories = history.write(folder, made)
    state = "written" if wrote else "says so already"
    print(f"vLLM {wheel.version}: {file.name} {state}, {len(histories)} history files changed")
    print(f"read and compared in {time.monotonic() - began:.0f} s")
    newer = [v for v in store.versions(folder) if as_version(v) > as_version(wheel.version)]
    if newer:
        print(f"newer releases are there, up to {newer[-1]}; this one is compared with the one before it")
    tell(store.load(earlier, folder) if earlier else None, release, wheel)
    return 0


def diff(before: str, after: str) -> int:
    """Compare two releases that are written down."""
    old, new = store.load(before), store.load(after)
    for version, found in ((before, old), (after, new)):
        if found is None:
            print(f"release: no data of {version}; needed: one of {', '.join(store.versions())}", file=sys.stderr)
            return 2
    tell(old, new or {}, None)
    return 0


def tell(old: store.Release | None, new: store.Release, wheel: Wheel | None) -> None:
    """Print what changed, then what to read."""
    against = f"against {old['version']}" if old else "nothing older to compare with"
    _section(f"What changed ({against})", report.changes(old, new))
    _section("Planner: read these functions again", report.planner(old, new))
    _section("Messages: what no longer matches", report.messages(old, new, catalogued()))
    if wheel is not None:
        taken = frozenset(store.section(new, "options"))
        _section("Refusals: new sentences that name an option", report.refusals(old, refusals.sentences(wheel, taken)))
    _section("To do by hand", _by_hand(old, new))


def _section(title: str, lines: object) -> None:
    listed = list(lines)  # type: ignore[call-overload]
    print(f"\n{title}:")
    for line in listed or ["nothing"]:
        print(f"  {line}")


def _by_hand(old: store.Release | None, new: store.Release) -> list[str]:
    """What no program can decide."""
    version, todo = str(new["version"]), []
    torch = str(store.section(new, "packages").get("torch", "")).removeprefix("==")
    if torch and table().torch_cuda(torch) is None:
        todo.append(f"knowledge/compat.json has no torch {torch}: add its CUDA and glibc from torch's own metadata")
    known = replacements()[0]
    gone = [n for n in store.section(old, "options") if n not in store.section(new, "options") and n not in known]
    todo += [f"knowledge/replacements.json: what does the work of --{name} now?" for name in gone]
    both = f"{version}+cu130-x86_64 {version}+cu130-aarch64"
    todo.append(f"tools/vllm_lock.py {both}; a build that cannot be locked: say why in docs/support.md")
    todo.append("vllm_version in roles/vllm/defaults and inventories/, once both locks are there")
    todo.append("tools/release.py spans, then read the messages above and their rows in vllm_doctor/log/catalogue")
    rooms = ("knowledge", "launch", "meta", "plan", "preflight", "tools/test_release.py")
    todo.append(f"pytest {' '.join(f'tests/{room}' for room in rooms)}; CHANGELOG.md")
    return todo


def spans() -> int:
    """In the catalogue, extend each wording that the newest release still has from the release before it."""
    read_ones = [v for v in store.versions() if "messages" in (store.load(v) or {})]
    if len(read_ones) < 2:
        print("release: fewer than two releases have messages", file=sys.stderr)
        return 2
    before, newest = read_ones[-2], read_ones[-1]
    old, new = (store.section(store.load(v), "messages") for v in (before, newest))
    # A message that only moved to another file is the same message.
    same = {name for name in new if _wording(old.get(name)) == _wording(new[name]) is not None}
    short = before.removesuffix(".0")
    count, left = 0, []
    for file in sorted(CATALOGUE.glob("*.json")):
        lines, row = file.read_text(encoding="utf-8").splitlines(keepends=True), ""
        for at, line in enumerate(lines):
            found = re.match(r'\s*"id": "([^"]+)"', line)
            row = found[1] if found else row
            last = rf'"versions": "(?P<first>[\d.]+?\.\.)?({re.escape(before)}|{re.escape(short)})"'
            if row in same:
                lines[at], times = re.subn(last, lambda m: f'"versions": "{m["first"] or before + ".."}{newest}"', line)
                count += times
            elif re.search(last, line):
                left.append(row)
        store.write(file, "".join(lines))
    print(f"{count} wordings of {len(same)} unchanged messages now reach {newest}")
    if left:
        print(f"their spans end with {before}, since {newest} says them otherwise or not at all: {', '.join(left)}")
    return 0


def _wording(found: object) -> object:
    """What is compared: a message that only moved to another file is the same message."""
    return found.get("as") if isinstance(found, dict) else None


def check_history() -> int:
    """0 where the history files follow from the releases."""
    stale = [n for n, text in history.texts().items() if _text(history.FOLDER / f"{n}.json") != text]
    for name in stale:
        print(f"vllm_doctor/knowledge/history/{name}.json does not follow from releases/: tools/release.py history")
    return 1 if stale else 0


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("add", help="a wheel, or a folder with one unpacked").add_argument("wheel", type=Path)
    compared = commands.add_parser("diff", help="two releases that are written down")
    compared.add_argument("before")
    compared.add_argument("after")
    commands.add_parser("spans", help="extend the samples of unchanged messages to the newest release")
    commands.add_parser("history", help="write the files that the package reads").add_argument(
        "--check", action="store_true"
    )
    given = parser.parse_args(argv)
    match given.command:
        case "add":
            return add(given.wheel)
        case "diff":
            return diff(given.before, given.after)
        case "spans":
            return spans()
        case _:
            if given.check:
                return check_history()
            for file in history.write():
                print(f"wrote {file.relative_to(REPO)}")
            return 0


if __name__ == "__main__":
    sys.exit(main())
