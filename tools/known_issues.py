#!/usr/bin/env python3
"""Bring in known issues, and find those that a release has mended.

    tools/known_issues.py draft LOG ADDRESS    an entry to complete, from what failed first in a log of that report
    tools/known_issues.py queue LOG...         what no rule and no entry knows in these logs, most often met first
    tools/known_issues.py sample N SEED        N entries drawn at random, to be read again by somebody else
    tools/known_issues.py check RELEASE        the entries that RELEASE no longer has; exit 1 if there are any
    tools/known_issues.py prove SOURCES        hold every proof that is code against the releases in SOURCES: a wheel of
                                               each, as `pip download --no-deps` brings it (nothing of it is installed
                                               or runs), or its code in a folder vllm-0.33.0; and the calls, the line
                                               and the name by which an entry is known against the releases that it
                                               is said to be met in, of which the last must still have them; and each
                                               option, variable and value of an answer against what those releases take;
                                               with a launch of each kind of model that has it; and what prose names
                                               that no field of its entry holds; and lists the entries
                                               whose first release the code does not show, or that stand in another
                                               file in some release, and the ways round that some
                                               kinds of models do not start with or whose package a release does not
                                               ask for; and what nobody has compared
    tools/known_issues.py compare SOURCES [ID...] [--call PATTERN [--line PATTERN]] [--read]
                          [--package NAME [--fails SPAN]]
                                               what the failing line of each entry rests on in each release of SOURCES
                                               that it is met in, and in those beside, and how that changed from one
                                               to the next: kept in tools/releases/compared.json; with --read every
                                               one of them within the releases of the entry counts as read
    tools/known_issues.py ways SOURCES         which ways round reach what fails, as the code of SOURCES shows: kept in
                                               tools/releases/ways.json beside what a person found (`read`); lists
                                               those that nobody has checked

A draft has what can be read from the log. What happens, the way round, the releases and the title are written by who
read the thread, in their own words, with what proves a mend: a pull request, or a line in two releases. Then it goes
into the file of its part of vLLM in vllm_doctor/knowledge/known_issues/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version as Numbered
from releases.accepted import refused
from releases.compared import Compared, compared, compared_packages, uncompared, write
from releases.compared_packages import named, unshown
from releases.comparing import compare, differences, kept
from releases.launched import ends_the_start, for_some_models
from releases.reaching import reaching
from releases.required import beyond_requirements
from releases.ways import Way, answers_of, unchecked, way_of, ways
from releases.ways import write as write_ways
from releases.worded import unheld

from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.knowledge.known_issues import Issue, Proof, issues, matching, mended_in, normalised
from vllm_doctor.knowledge.version import parse_version
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.log.last_run import judged
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.remedies.layer import unforeseen

# The code of a release: a folder or a wheel.
Code = Path | zipfile.Path

# The name that a message of Python's own misses: it stands in the code that asks for it.
_NAMED = re.compile(r"(?:has no attribute|cannot import name) '([A-Za-z]\w{2,})'")
# A call that names a file or a folder and no function.
_FILE = re.compile(r"[:/]$|^[^:]*/[^:]*$")
_DEFINED = re.compile(r"^[ \t]*(?:async )?def (\w+)", re.MULTILINE)
# The function of a call that names one alone, and not one that every class has; words that a message has in its code.
_CALLED = re.compile(r":(?!__)(\w+)\$?$")
_WORDS = re.compile(r"[A-Za-z][A-Za-z ]{11,}")
# The innermost calls tell a defect apart; those further out are every request's.
_CALLS = 2
# The rule that shows a failure which nothing knows.
# A failure that no rule knows, and one that is only known as a defect of its part.
UNKNOWN = ("VD599", DEFECT := "VD527")


def draft(log: str, address: str) -> dict[str, object] | str:
    """An entry as far as the log tells it; else why there is none."""
    read = read_logs([log])
    if not isinstance(read, Known):
        return f"{log}: {read.reason}"
    root = judged(read.value).root
    if root is None or root.crash is None:
        return f"{log}: no traceback of a failure that ended the run; give the log of the report"
    link = root.crash.root
    calls = [f"{f.file.replace(chr(92), '/')}:{f.function}" for f in link.frames]
    code = link.frames[-1].code if link.frames else ""
    same = matching(link.kind, link.message, code, calls)
    if same:
        return f"{log}: it is an entry already: {', '.join(one.id for one in same)}"
    words = (re.escape(part) for part in normalised(link.message.splitlines()[0] if link.message else "").split("*"))
    near = [re.escape("/".join(c.rsplit("/", 2)[-2:])) + "$" for c in calls[-_CALLS:]]
    return {
        "id": "",
        "title": "",
        "about": "",
        "address": address,
        "read": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "kind": link.kind,
        "said": ".{1,200}".join(words).replace("\\ ", " "),
        "code": "" if link.message else re.escape(code).replace("\\ ", " "),
        "calls": near,
        "cards": [],
        "since": judged(read.value).version,
        "fixed": None,
        "proof": [],
        "answers": [],
    }


def queue(logs: list[str]) -> list[tuple[int, str, str]]:
    """(How often, what failed, the first log of it) of the logs whose failure no rule and no entry knows."""
    met: dict[str, list[str]] = {}
    for log in logs:
        read = read_logs([log])
        if not isinstance(read, Known):
            continue
        found = diagnose(Snapshot(taken_at="", log=read)).findings
        root = judged(read.value).root
        if not found or found[0].code not in UNKNOWN or root is None or root.crash is None:
            continue
        if found[0].code == DEFECT and not unforeseen(root):
            continue
        link = root.crash.root
        where = f"{link.frames[-1].file.rsplit('/', 1)[-1]}:{link.frames[-1].function}" if link.frames else ""
        said = normalised(link.message.splitlines()[0] if link.message else "")
        met.setdefault(f"{link.kind}: {said[:100]} in {where}", []).append(log)
    return sorted(((len(all_), what, all_[0]) for what, all_ in met.items()), key=lambda row: (-row[0], row[1]))


def sample(count: int, seed: int) -> list[str]:
    """Entries to read again: the same ones for the same seed."""
    drawn = random.Random(seed).sample(issues(), min(count, len(issues())))  # noqa: S311 - no secret is drawn
    return [f"{one.id}: {one.title}: {one.address}" for one in drawn]


def unproved(sources: Path) -> list[tuple[str, str]]:
    """(Entry, why its proof does not hold) by the code of the releases; a release that is not there is named too."""
    proofs = [(one.id, proof) for one in issues() for proof in one.proof if proof.of_code]
    return [(name, why) for name, proof in proofs if (why := refuted(proof, sources)) is not None]


def misplaced(one: Issue, sources: Path) -> list[str]:
    """The calls of an entry that stand in other releases of vLLM than those that it is said to be met in.

    A call that neither release of its proof has is another package's, or of code that no wheel has as text.
    """
    told = []
    for proof in one.proof:
        if proof.package or not proof.of_code:
            continue
        with_it, mended = (_release(sources, "vllm", release) for release in (proof.last, proof.first))
        since = _release(sources, "vllm", one.since) if one.since is not None else None
        if with_it is None or mended is None:
            continue
        for call in one.calls:
            if has_call(with_it, call):
                if since is not None and not has_call(since, call):
                    told.append(f"{one.since} does not have, and {proof.last} does: {call}")
            elif has_call(mended, call):
                told.append(f"{proof.first} has, and {proof.last} does not: {call}")
    return list(dict.fromkeys(told))


def outlived(one: Issue, sources: Path) -> list[str]:
    """What an entry is known by that its last release in SOURCES lacks, where an earlier one has it: the entry ends
    before that release, or what it is known by has changed there.

    What no release of the entry has is another package's, or a message that is put together.
    """
    met = [release for release in _releases(sources) if _met(one, release)]
    told = []
    for what in (*one.calls, *((one.code,) if one.code else ()), *_NAMED.findall(one.said)):
        had = next((release for release in reversed(met) if _has(one, what, sources, release)), None)
        # A bound cannot tell a release from its post releases.
        if had is not None and as_version(had) < as_version(met[-1]):
            told.append(f"{met[-1]} does not have, and {had} does: {what}")
    return told


def moved(one: Issue, sources: Path) -> list[str]:
    """The releases of an entry that have the function of a call in another file than it names, with the entry's line or
    words of its message: a log of theirs is not known by it. What no release of it has is another package's."""
    there = {release: _release(sources, "vllm", release) for release in _releases(sources) if _met(one, release)}
    met = {release: code for release, code in there.items() if code is not None}
    said = max(_WORDS.findall(one.said), key=len, default="")
    line = re.compile(one.code or re.escape(said), re.MULTILINE)
    called = {call: found[1] for call in one.calls if line.pattern and (found := _CALLED.search(call))}
    told = []
    for call, name in called.items():
        lacking = [release for release, code in met.items() if not has_call(code, call)]
        for release in lacking if len(lacking) < len(met) else ():
            named = [file for file, names in _functions(met[release]) if f"{file}:{name}" in names]
            told += [f"{release}: {file}:{name}" for file in named if line.search(_read(met[release] / file))]
    return told


def begun(one: Issue, sources: Path) -> list[str]:
    """Where the code does not show why an entry begins at its first release: the release before has all that the entry
    is known by, or its first release lacks the line that the mend took out.

    It is to be read and need not be wrong: another model, option or default may be why it begins there, and a line may
    have had other words.
    """
    releases = _releases(sources)
    since = as_version(one.since) if one.since is not None else None
    first = next((release for release in releases if since is not None and as_version(release) >= since), None)
    if first is None or since is None:
        return []
    gone = [proof for proof in one.proof if proof.gone and not proof.package and proof.first == one.fixed]
    told = [f"{first} does not have: {proof.gone}" for proof in gone if _stood(proof, sources, first) is False]
    before = next((release for release in reversed(releases) if as_version(release) < since), None)
    known = (*one.calls, *((one.code,) if one.code else ()), *_NAMED.findall(one.said))
    here = [what for what in known if _has(one, what, sources, first)]
    # A file alone says too little: it mostly stood long before.
    if before is None or all(what in one.calls and _FILE.search(what) for what in here):
        return told
    same = all(_stood(proof, sources, before) == _stood(proof, sources, first) for proof in gone)
    if same and all(_has(one, what, sources, before) for what in here):
        told.append(f"{before} has as well: {', '.join(here)}")
    return told


def _stood(proof: Proof, sources: Path, release: str) -> bool | None:
    """Is a line that a mend took out in a release; None where that has no file of the name."""
    code = _release(sources, "vllm", release)
    if code is None:
        return None
    files = [code / proof.file] if (code / proof.file).is_file() else _named(code, Path(proof.file).name)
    return any(proof.gone in _read(file) for file in files) if files else None


def _met(one: Issue, release: str) -> bool:
    at = as_version(release)
    return (one.since is None or as_version(one.since) <= at) and (one.fixed is None or at < as_version(one.fixed))


def _has(one: Issue, what: str, sources: Path, release: str) -> bool:
    """Is a call of an entry in a release, or its line, or the name that its message misses, in a file of its calls?"""
    code = _release(sources, "vllm", release)
    if code is None:
        return False
    if what in one.calls:
        return has_call(code, what)
    pattern = re.compile(what if what == one.code else rf"\b{what}\b", re.MULTILINE)
    calls = [re.compile(call) for call in one.calls]
    files = [
        file
        for file, names in _functions(code)
        if any(call.search(place) for call in calls for place in (f"{file}:", *names))
    ]
    return any(pattern.search(_read(code / file)) for file in files)


def compare_all(sources: Path, ids: Sequence[str], placed: Mapping[str, str], *, read: bool) -> list[str]:
    """Compare these entries, or all, keep what was found, and tell what there is to read."""
    releases, known = compared()
    made = {one.id: known.get(one.id, Compared()) for one in issues()}
    made |= {name: replace(made[name], nowhere="", **placed) for name in ids if placed}
    entries = [one for one in issues() if one.id in ids or not ids]
    there = {name: code for name in _releases(sources) if (code := _release(sources, "vllm", name)) is not None}
    every = sorted({*releases, *there}, key=lambda name: (as_version(name), name))
    found = compare(there, entries, made, every)
    told = []
    for one in entries:
        row = kept(made[one.id], found[one.id], every)
        if read:
            digests = {here.digest: None for name, here in found[one.id].items() if here.text and _met(one, name)}
            row = replace(row, read=" ".join(dict.fromkeys((*row.read.split(), *digests))))
        made[one.id] = row
        if ids:
            told += [f"== {one.id} {one.since or ''}-{one.fixed or ''}", *differences(found[one.id])]
    write((tuple(every), made), compared_packages())
    return told


def check_ways(sources: Path) -> list[str]:
    """Keep what the code shows of each way round, and tell which ones nobody has checked."""
    there = {name: code for name in _releases(sources) if (code := _release(sources, "vllm", name)) is not None}
    before = {(row.id, row.way, row.releases): row for row in ways()}
    made: list[Way] = []
    for one in issues():
        shown = reaching(one, compared()[1].get(one.id, Compared()), there)
        for answer in answers_of(one):
            row = way_of(one, answer)
            found = before.get((row.id, row.way, row.releases), row).read
            made.append(replace(row, shown=shown.get(one.answers.index(answer), ""), read=found))
    write_ways(made)
    return list(unchecked(issues(), made))


def compare_package(
    sources: Path, package: str, ids: Sequence[str], placed: Mapping[str, str], *, fails: SpecifierSet | None
) -> list[str]:
    """The same of another package's releases; `fails` are those that a person has read and that fail."""
    tables = compared_packages()
    releases, known = tables.get(package, ((), {}))
    there = {name: code for name in _releases(sources, package) if (code := _release(sources, package, name))}
    every = sorted({*releases, *there}, key=Numbered)
    entries = [one for one in issues() if one.id in (ids or known)]
    made = {one.id: replace(known.get(one.id, Compared()), **(placed if one.id in ids else {})) for one in entries}
    found = compare(there, entries, made, every, package)
    made, told = {**known, **made}, []
    for one in entries:
        row = kept(made[one.id], found[one.id], every)
        if fails is not None:
            digests = row.digests(every)
            row = replace(row, read=" ".join(dict.fromkeys(digests[at] for at in fails.filter(digests))))
        made[one.id] = row
        if ids:
            told += [f"== {one.id} {package}", *differences(found[one.id])]
            told += [f"! {why}" for why in unshown(one, package, row, every)]
    ordered = {one.id: made[one.id] for one in issues() if one.id in made}
    write(compared(), {**tables, package: (tuple(every), ordered)})
    return told


def of_packages(one: Issue) -> list[str]:
    """What an entry claims of other packages and nobody has compared, or what their releases do not bear out."""
    tables = compared_packages()
    rows = {package: rows[one.id] for package, (_, rows) in tables.items() if one.id in rows}
    told = [why for package, row in rows.items() for why in unshown(one, package, row, tables[package][0])]
    return [*told, *(f"{package}: nobody has compared it" for package in sorted(named(one) - rows.keys()))]


@cache
def _releases(sources: Path, package: str = "vllm") -> list[str]:
    """The releases of vLLM, or of another package, in a folder, oldest first."""
    called = f"(?:{package}|{package.replace('-', '_')})"
    named = (re.match(rf"{called}-([\d.]+\d(?:\.post\d+)?)(?:-.*\.whl)?$", path.name) for path in sources.iterdir())
    return sorted({name[1] for name in named if name is not None}, key=Numbered)


@cache
def has_call(code: Code, call: str) -> bool:
    """Has a release a function, or a file, that the pattern of a call names as `file:function`?"""
    pattern = re.compile(call)
    return any(pattern.search(place) for file, names in _functions(code) for place in (f"{file}:", *names))


@cache
def _functions(code: Code) -> list[tuple[str, list[str]]]:
    """Each Python file of a release, and its functions as a traceback names them."""
    if isinstance(code, Path):
        files: list[Code] = [*sorted((code / "vllm").rglob("*.py"))]
    else:
        files = [code / name for name in code.root.namelist() if name.endswith(".py")]
    read = ((_inside(code, file), _DEFINED.findall(_read(file))) for file in files)
    return [(file, [f"{file}:{name}" for name in names]) for file, names in read]


def refuted(proof: Proof, sources: Path) -> str | None:
    """Why the code of two releases does not bear a proof out; None where it does."""
    package = proof.package or "vllm"
    last, first = (_release(sources, package, release) for release in (proof.last, proof.first))
    if last is None or first is None:
        missing = (release for release, code in ((proof.last, last), (proof.first, first)) if code is None)
        return f"release not in {sources}: {', '.join(f'{package} {release}' for release in missing)}"
    before, after = _read(last / proof.file), _read(first / proof.file)
    if proof.gone:
        if proof.gone not in before:
            return f"{proof.last} does not have in {proof.file}: {proof.gone}"
        moved: Sequence[Code] = [first / proof.file] if after else _named(first, Path(proof.file).name)
        still = [file for file in moved if proof.gone in _read(file)]
        if still:
            return f"{proof.first} still has in {_inside(first, still[0])}: {proof.gone}"
    if proof.came:
        if proof.came in before:
            return f"{proof.last} already has in {proof.file}: {proof.came}"
        if proof.came not in after:
            return f"{proof.first} does not have in {proof.file}: {proof.came}"
    return None


def _release(sources: Path, package: str, release: str) -> Code | None:
    """The code of a release: its folder, else its wheel."""
    name = package.replace("-", "_")
    for folder in (f"{package}-{release}", f"{name}-{release}"):
        if (sources / folder).is_dir():
            return sources / folder
    wheels = sorted(sources.glob(f"{name}-{release}-*.whl"))
    return zipfile.Path(wheels[0]) if wheels else None


def _named(code: Code, name: str) -> Sequence[Code]:
    """The files of a name, in whatever folder they are."""
    if isinstance(code, Path):
        return sorted(code.rglob(name))
    return [code / file for file in sorted(code.root.namelist()) if file.rpartition("/")[2] == name]


def _inside(code: Code, file: Code) -> str:
    return str(file).removeprefix(str(code)).lstrip("/")


def _read(file: Code) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _compared(asked: argparse.Namespace) -> list[str]:
    placed = {"call": asked.call, "line": asked.line} if asked.call else {}
    if asked.package:
        return compare_package(asked.sources, asked.package, asked.ids, placed, fails=asked.fails)
    return compare_all(asked.sources, asked.ids, placed, read=asked.read)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("draft")
    new.add_argument("log")
    new.add_argument("address")
    many = commands.add_parser("queue")
    many.add_argument("logs", nargs="+")
    some = commands.add_parser("sample")
    some.add_argument("count", type=int)
    some.add_argument("seed", type=int)
    old = commands.add_parser("check")
    old.add_argument("release")
    code = commands.add_parser("prove")
    code.add_argument("sources", type=Path)
    same = commands.add_parser("compare")
    same.add_argument("sources", type=Path)
    same.add_argument("ids", nargs="*")
    same.add_argument("--read", action="store_true")
    same.add_argument("--call", default="")
    same.add_argument("--line", default="")
    same.add_argument("--package")
    same.add_argument("--fails", type=SpecifierSet)
    round_ = commands.add_parser("ways")
    round_.add_argument("sources", type=Path)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 entries to take out or no draft, 2 what was asked cannot be read."""
    asked = _parser().parse_args(argv)
    if asked.command == "draft":
        made = draft(asked.log, asked.address)
        print(made if isinstance(made, str) else json.dumps(made, indent=1, ensure_ascii=False))
        return 1 if isinstance(made, str) else 0
    lists: dict[str, Callable[[], Iterable[str]]] = {
        "queue": lambda: (f"{often:4}  {what}  ({log})" for often, what, log in queue(asked.logs)),
        "sample": lambda: sample(asked.count, asked.seed),
        "compare": lambda: _compared(asked),
        "ways": lambda: check_ways(asked.sources),
    }
    if asked.command in lists:
        print("\n".join(lists[asked.command]()))
        return 0
    if asked.command == "prove":
        wrong = unproved(asked.sources)
        wrong += [
            (one.id, why) for one in issues() for check in (misplaced, outlived) for why in check(one, asked.sources)
        ]
        told = (refused, ends_the_start, unheld)
        wrong += [(one.id, why) for one in issues() for check in told for why in check(one)]
        print("\n".join(f"{name}: {why}" for name, why in wrong))
        early = [f"{one.id}: {why}" for one in issues() for why in begun(one, asked.sources)]
        files = [f"{one.id}: {why}" for one in issues() for why in moved(one, asked.sources)]
        apart = [f"{one.id}: {why}" for one in issues() for why in for_some_models(one)]
        beyond = [f"{one.id}: {why}" for one in issues() for why in beyond_requirements(one)]
        releases, known = compared()
        unread = [f"{one.id}: {why}" for one in issues() for why in uncompared(one, known.get(one.id), releases)]
        unread += [f"{release}: compare it" for release in _releases(asked.sources) if release not in releases]
        unread += [f"{one.id}: {why}" for one in issues() for why in of_packages(one)]
        for what, rows in (
            ("why it begins there", early),
            ("where it stands in another file", files),
            ("of which models", apart),
            ("what vLLM asks for", beyond),
            ("what nobody has compared", unread),
            ("which way round nobody has checked", list(unchecked(issues(), ways()))),
        ):
            print("\n".join((f"to be read, {what}:", *rows)))
        seen = sum(proof.of_code for one in issues() for proof in one.proof)
        print(f"{seen} proofs are code; {len(wrong)} of them, or calls or answers beside them, do not hold")
        return 1 if wrong else 0
    if parse_version(asked.release) is None:
        print(f"{asked.release}: not a release of vLLM; needed: a version such as 0.33.0", file=sys.stderr)
        return 2
    gone = mended_in(asked.release)
    for one in gone:
        print(f"{one.id}: mended in {one.fixed}: {one.address}")
    print(f"{len(issues())} known issues, {len(gone)} of them mended in {asked.release}")
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
