#!/usr/bin/env python3
"""Write down what a vLLM release is made of, and say what a person must read:

    tools/release.py add vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl   # or a folder with it unpacked
    tools/release.py again WHEEL... --only options,fields   # releases that are there, read with the extractor of today
    tools/release.py diff 0.32.0 0.33.0        # what is written down, compared
    tools/release.py bodies OLD_WHEEL WHEEL    # the functions to read again, line by line
    tools/release.py spans                     # wordings that did not change reach the newest release
    tools/release.py dated WHEEL...            # oldest first: dates of behaviours.json that no code shows
    tools/release.py history [--check]         # the files that the package reads
    tools/release.py said WHEEL...             # which function says which sentence, of one more release or again; a
                                               # library's too, and compiled code's (vllm-0.33.0.tar.gz)
    tools/release.py api WHEEL...              # names that programs take from vLLM: the wheels of all releases
    tools/release.py functions WHEEL...        # where vLLM's functions stand: the wheels of all releases
    tools/release.py behind WHEEL...           # what must be on for vLLM's code to run: the wheels of all releases

A wheel is read, never installed, and nothing of it runs. Its data is vllm_doctor/knowledge/releases/VERSION.json; no
other release's file is touched. The order of work is in CONTRIBUTING.md, "A release of vLLM".
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from releases import (
    api,
    behind,
    cited,
    compiled,
    dated,
    functions,
    history,
    library,
    read,
    refusals,
    report,
    said_by,
    store,
)
from releases.messages import Sought
from releases.report import Catalogued
from releases.wheel import Wheel, WheelError
from releases.wheel import read as read_wheel

from vllm_doctor.knowledge.claims import replacements
from vllm_doctor.knowledge.compat import table
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.match import Message, messages

REPO = Path(__file__).resolve().parent.parent
CATALOGUE = REPO / "vllm_doctor" / "log" / "catalogue"


Held = TypeVar("Held")
# The list of releases stands at the beginning of a table.
_HEAD = 5000


def sought() -> list[Sought]:
    """The catalogue's messages as they are looked for in a source."""
    return [Sought(m.id, m.anchor, tuple(s.line for s in m.samples), m.source) for m in messages()]


def catalogued() -> list[Catalogued]:
    """The catalogue's messages with the last release of each wording (`0.33` is `0.33.0`)."""
    return [Catalogued(m.id, tuple(_last(s.versions) for s in m.samples), _has_file(m)) for m in messages()]


def _has_file(message: Message) -> bool:
    """Does the row name one file of vLLM, and nothing else, as what writes the line?"""
    return message.scope == "log" and re.fullmatch(r"[\w/]+\.py", message.source) is not None


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
    earlier, kept = store.before(wheel.version, folder), store.load(wheel.version, folder)
    wrote = store.write(file, store.dumps(release))
    said_by.merge([wheel], made.parent / said_by.FOLDER.name)
    histories = history.write(folder, made)
    state = "written" if wrote else "says so already"
    print(f"vLLM {wheel.version}: {file.name} {state}, {len(histories)} history files changed")
    print(f"read and compared in {time.monotonic() - began:.0f} s")
    newer = [v for v in store.versions(folder) if as_version(v) > as_version(wheel.version)]
    if newer:
        print(f"newer releases are there, up to {newer[-1]}; this one is compared with the one before it")
    if kept is not None:
        _section(f"What was not known of {wheel.version} before", report.added(kept, release))
        if not any(report.changes(kept, release)):
            print(f"\nAll else is as it was: `tools/release.py diff {earlier} {wheel.version}` tells it again.")
            return 0
    tell(store.load(earlier, folder) if earlier else None, release, wheel)
    return 0


def again(places: Sequence[Path], only: Sequence[str], folder: Path = store.FOLDER, made: Path = history.FOLDER) -> int:
    """Read releases that are written down once more, and say section by section what came and what went.

    What an older extractor wrote and this one does not find is either its mistake or this one's: read each. 2 for what
    is no wheel of a release that is written down; the releases before it in the list are written.
    """
    for place in places:
        try:
            wheel = read_wheel(place)
            kept = store.load(wheel.version, folder)
            if kept is None:
                raise WheelError(f"{place}: {wheel.version} is not written down; needed: tools/release.py add")
            found = read.release(wheel, sought(), only)
        except WheelError as problem:
            print(f"release: {problem}", file=sys.stderr)
            return 2
        # A file that was written from several readings keeps the name of the first: its other sections come from it.
        whole = set(only) >= set(store.SECTIONS)
        heads = {name: found[name] if whole else kept[name] for name in ("version", "source")}
        rows = {name: found if name in only else kept for name in store.SECTIONS}
        release = heads | {name: each[name] for name, each in rows.items() if name in each}
        store.write(store.path(wheel.version, folder), store.dumps(release))
        _section(f"vLLM {wheel.version}, read again", report.changes(kept, release, only))
    print(f"{len(history.write(folder, made))} history files changed")
    return 0


def _sections(text: str) -> list[str]:
    """The sections that are named, all of them where none is."""
    named = text.split(",") if text else list(store.SECTIONS)
    if unknown := [name for name in named if name not in store.SECTIONS]:
        raise argparse.ArgumentTypeError(f"no section {', '.join(unknown)}; needed: of {', '.join(store.SECTIONS)}")
    return named


def diff(before: str, after: str) -> int:
    """Compare two releases that are written down."""
    old, new = store.load(before), store.load(after)
    for version, found in ((before, old), (after, new)):
        if found is None:
            print(f"release: no data of {version}; needed: one of {', '.join(store.versions())}", file=sys.stderr)
            return 2
    tell(old, new or {}, None)
    return 0


def bodies(before: Path, after: Path) -> int:
    """Print what changed in the functions that the planner was read from; 2 for what is no wheel of vLLM."""
    try:
        for line in cited.bodies(read_wheel(before), read_wheel(after)):
            print(line)
    except WheelError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 2
    return 0


def dates(places: Sequence[Path]) -> int:
    """Print the behaviours of the planner whose dates do not show in these wheels, oldest first; 2 for what is no wheel
    of vLLM, and for another order."""
    asked, told = dated.of_table(), 0
    before: Wheel | None = None
    try:
        for place in places:
            wheel = read_wheel(place)
            if before is not None and as_version(before.version) > as_version(wheel.version):
                raise WheelError(f"{place}: {wheel.version} after {before.version}; needed: the oldest release first")
            lines = list(dated.unshown(before, wheel, asked)) if before is not None else []
            told += len(lines)
            print(*lines, sep="\n", end="\n" if lines else "")
            before = wheel
    except WheelError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 2
    print(f"{told} dates of {len({(one.name, one.word) for one in asked})} do not show in what their rows name")
    return 0


def names(places: Sequence[Path], folder: Path = store.FOLDER, made: Path = api.FILE) -> int:
    """Write the names that programs take from vLLM, of the wheels of all releases; 2 where one lacks or is no wheel."""
    return _of_all(places, folder, made, api.names, api.table)


def standing(places: Sequence[Path], folder: Path = store.FOLDER, made: Path = functions.FILE) -> int:
    """Write where vLLM's functions stand, of the wheels of all releases; 2 where one lacks or is no wheel."""
    return _of_all(places, folder, made, functions.Reader().release, functions.table)


def on(places: Sequence[Path], folder: Path = store.FOLDER, made: Path = behind.FILE) -> int:
    """Write what is on where vLLM's code runs, of the wheels of all releases; 2 where one lacks or is no wheel."""
    return _of_all(places, folder, made, behind.Reader().release, behind.table)


def _of_all(
    places: Sequence[Path],
    folder: Path,
    made: Path,
    taken: Callable[[Wheel], Held],
    table: Callable[[Mapping[str, Held]], str],
) -> int:
    """Write a table over all releases; no two wheels are held at a time."""
    has: dict[str, Held] = {}
    try:
        for place in places:
            wheel = read_wheel(place)
            has[wheel.version] = taken(wheel)
    except WheelError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 2
    known = store.versions(folder)
    if lacking := sorted({*known} ^ {*has}, key=as_version):
        print(
            f"release: {len(has)} wheels; needed: one of each release, and no other ({', '.join(lacking)})",
            file=sys.stderr,
        )
        return 2
    wrote = store.write(made, table({version: has[version] for version in known}))
    print(f"{made.name} {'written' if wrote else 'says so already'}")
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


def _by_hand(old: store.Release | None, new: store.Release, repo: Path = REPO) -> list[str]:
    """What no program can decide and nobody has done yet."""
    version, todo = str(new["version"]), []
    torch = str(store.section(new, "packages").get("torch", "")).removeprefix("==")
    if torch and table().torch_cuda(torch) is None:
        todo.append(f"knowledge/compat.json has no torch {torch}: add its CUDA and glibc from torch's own metadata")
    known = replacements()[0]
    gone = [n for n in store.section(old, "options") if n not in store.section(new, "options") and n not in known]
    todo += [f"knowledge/replacements.json: what does the work of --{name} now?" for name in gone]
    builds = [f"{version}+cu130-{machine}" for machine in ("x86_64", "aarch64")]
    locks = repo / "roles" / "vllm" / "files" / "locks"
    unlocked = [build for build in builds if not (locks / f"{build}.lock").is_file()]
    if unlocked and f"| {version} | no lock" not in _text(repo / "docs" / "support.md"):
        todo.append(
            f"tools/vllm_lock.py {' '.join(unlocked)}; where none can be made: a row '| {version} | no lock: why' in "
            "docs/support.md"
        )
    older = [file for file, set_to in _deployed(repo) if as_version(set_to) < as_version(version)]
    if older and not unlocked:
        todo.append(f"vllm_version is older in {', '.join(older)}, and both locks are there")
    if (read_ones := _newest_two()) is not None and read_ones[1] == version and any(_extended(*read_ones)[0].values()):
        todo.append("tools/release.py spans, then read the messages above and their rows in vllm_doctor/log/catalogue")
    if f'"{version}"' not in _text(api.FILE)[:_HEAD]:
        todo.append("tools/release.py api, with the wheels of all releases: names that programs take from vLLM")
    if f'"{version}"' not in _text(functions.FILE)[:_HEAD]:
        todo.append("tools/release.py functions, with the wheels of all releases: where vLLM's functions stand")
    if f'"{version}"' not in _text(behind.FILE)[:_HEAD]:
        todo.append("tools/release.py behind, with the wheels of all releases: what must be on for its code to run")
    if f'"{version}"' not in _text(repo / "vllm_doctor" / "knowledge" / "released.json"):
        todo.append("knowledge/released.json: the day it came out, for logs that tell a day and no version")
    rooms = ("knowledge", "launch", "meta", "plan", "preflight", "tools/test_release.py")
    todo.append(f"pytest {' '.join(f'tests/{room}' for room in rooms)}")
    if version not in _text(repo / "CHANGELOG.md"):
        todo.append(f"CHANGELOG.md says nothing of {version}")
    return todo


def _deployed(repo: Path) -> Iterator[tuple[str, str]]:
    """The files that say which release is installed, and which each says."""
    for file in sorted((*repo.glob("roles/vllm/defaults/main.yml"), *repo.glob("inventories/*/group_vars/**/*.yml"))):
        if (found := re.search(r'^vllm_version: "?([\d.]+)"?$', _text(file), re.MULTILINE)) is not None:
            yield str(file.relative_to(repo)), found[1]


def _newest_two() -> tuple[str, str] | None:
    """The two newest releases in which the messages were looked for."""
    read_ones = [v for v in store.versions() if "messages" in (store.load(v) or {})]
    return (read_ones[-2], read_ones[-1]) if len(read_ones) > 1 else None


def spans() -> int:
    """In the catalogue, extend each wording that the newest release still has from the release before it."""
    read_ones = _newest_two()
    if read_ones is None:
        print("release: fewer than two releases have messages", file=sys.stderr)
        return 2
    before, newest = read_ones
    counts, texts, left = _extended(before, newest)
    for file, text in texts.items():
        store.write(file, text)
    print(f"{sum(counts.values())} wordings of {len(_same(before, newest))} unchanged messages now reach {newest}")
    worded = {name for version in read_ones for name in store.section(store.load(version), "messages")}
    changed = [name for name in left if name in worded]
    if changed:
        print(f"their spans end with {before}, since {newest} says them otherwise or not at all: {', '.join(changed)}")
    # Functions and files that a traceback names, and words of other programs: their text stands in no wheel of vLLM.
    unread = len(set(left) - set(changed))
    if unread:
        print(f"{unread} more end with {before}: neither source holds their text; extend a span where a log shows it")
    return 0


def _same(before: str, newest: str) -> set[str]:
    """The messages that both releases word alike. One that only moved to another file is the same message."""
    old, new = (store.section(store.load(v), "messages") for v in (before, newest))
    return {name for name in new if _wording(old.get(name)) == _wording(new[name]) is not None}


def _extended(before: str, newest: str) -> tuple[dict[Path, int], dict[Path, str], list[str]]:
    """By file of the catalogue how many wordings can reach the newest release, and its text in which they do; then the
    messages whose spans end before it."""
    same = _same(before, newest)
    short = before.removesuffix(".0")
    counts: dict[Path, int] = {}
    texts: dict[Path, str] = {}
    left = []
    for file in sorted(CATALOGUE.glob("*.json")):
        lines, row = file.read_text(encoding="utf-8").splitlines(keepends=True), ""
        counts[file] = 0
        for at, line in enumerate(lines):
            found = re.match(r'\s*"id": "([^"]+)"', line)
            row = found[1] if found else row
            last = rf'"versions": "(?P<first>[\d.]+?\.\.)?({re.escape(before)}|{re.escape(short)})"'
            if row in same:
                lines[at], times = re.subn(last, lambda m: f'"versions": "{m["first"] or before + ".."}{newest}"', line)
                counts[file] += times
            elif re.search(last, line):
                left.append(row)
        texts[file] = "".join(lines)
    return counts, texts, left


def _wording(found: object) -> object:
    """What is compared: a message that only moved to another file is the same message."""
    return found.get("as") if isinstance(found, dict) else None


def said(places: Sequence[Path], folder: Path = said_by.FOLDER) -> int:
    """Write which function says which sentence, of these releases too; 2 for a wheel of neither vLLM nor a library."""
    try:
        read_one = (compiled.read(place) if compiled.is_source(place) else library.read(place) for place in places)
        rows = said_by.merge(read_one, folder)
    except WheelError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 2
    for name, count in rows.items():
        print(f"{name}.json: {count} rows")
    return 0


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
    reread = commands.add_parser("again", help="releases that are written down, read with the extractor of today")
    reread.add_argument("wheels", type=Path, nargs="+")
    reread.add_argument("--only", type=_sections, default=list(store.SECTIONS), help="sections, with commas; else all")
    compared = commands.add_parser("diff", help="two releases that are written down")
    compared.add_argument("before")
    compared.add_argument("after")
    read_again = commands.add_parser("bodies", help="the functions to read again, in two wheels or folders")
    read_again.add_argument("before", type=Path)
    read_again.add_argument("after", type=Path)
    sentences = commands.add_parser("said", help="which function says which sentence, vLLM's or a library's")
    sentences.add_argument("wheels", type=Path, nargs="+")
    taken = commands.add_parser("api", help="names that programs take from vLLM, of all releases")
    taken.add_argument("wheels", type=Path, nargs="+")
    stand = commands.add_parser("functions", help="where vLLM's functions stand, of all releases")
    stand.add_argument("wheels", type=Path, nargs="+")
    needed = commands.add_parser("behind", help="what must be on for vLLM's code to run, of all releases")
    needed.add_argument("wheels", type=Path, nargs="+")
    dating = commands.add_parser("dated", help="behaviours of the planner whose dates the code does not show")
    dating.add_argument("wheels", type=Path, nargs="+")
    commands.add_parser("spans", help="extend the samples of unchanged messages to the newest release")
    commands.add_parser("history", help="write the files that the package reads").add_argument(
        "--check", action="store_true"
    )
    given = parser.parse_args(argv)
    match given.command:
        case "add":
            return add(given.wheel)
        case "again":
            return again(given.wheels, given.only)
        case "diff":
            return diff(given.before, given.after)
        case "bodies":
            return bodies(given.before, given.after)
        case "said":
            return said(given.wheels)
        case "api" | "functions" | "behind":
            return {"api": names, "functions": standing, "behind": on}[given.command](given.wheels)
        case "dated":
            return dates(given.wheels)
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
