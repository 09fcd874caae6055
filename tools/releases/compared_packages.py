"""What an entry claims of another package, held against the releases of it that somebody has compared.

Of a package `read` names what fails: the digests of the releases that do, and `-` where the name that is asked for is
not there. From that follows which releases an answer may install, where its proof lies, and which releases of vLLM can
meet it at all: those whose requirements permit a release that fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.specifiers import SpecifierSet

from releases.accepted import releases_of, span
from releases.compared import Compared
from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.known_issues import Issue

_PINNED = r"(?:\[[\w,]+\])?((?:[<>=!~]=?[\w.*]+,?)+)"
_RELEASE = re.compile(r"(<?)(\d[\w.]*)")
# Names of answers that are no other package: vLLM's own releases are compared for themselves.
_NONE = frozenset({"vllm-version", "vllm", "python"})


def unshown(one: Issue, package: str, row: Compared, releases: Sequence[str]) -> list[str]:
    """What the releases of a package do not bear out of an entry."""
    found = row.digests(releases)
    missing = [f"{package} {release}: nobody has compared it" for release in releases if release not in found]
    fails = [release for release in releases if found.get(release) in row.read.split()]
    if not fails:
        return missing if row.but else [*missing, f"no release of {package} that was compared fails"]
    told = [*_answers(one, package, fails, releases), *_proofs(one, package, fails)]
    return [*missing, *told, *([] if row.but else _required(one, package, fails))]


def named(one: Issue) -> set[str]:
    """The packages of which an entry names a release: in a proof that is code, or in an answer."""
    proved = {proof.package for proof in one.proof if proof.package and proof.of_code}
    asked = {a.options[0] for a in one.answers if a.kind == "package" and a.options and _asked(a, a.options[0])}
    return (proved | asked) - _NONE


def _asked(answer: Answer, package: str) -> list[SpecifierSet]:
    """What an answer installs of a package: as its command has it, else as its value names it."""
    command = re.sub(r"\s#\s.*", "", answer.command or "")
    asked = re.findall(rf"(?<![\w-]){re.escape(package)}{_PINNED}", command)
    whole = _RELEASE.fullmatch(answer.to or "")
    if not asked and whole is not None:
        asked = [f"{whole[1] or '=='}{whole[2]}"]
    return [SpecifierSet(one.rstrip(",")) for one in asked]


def _answers(one: Issue, package: str, fails: Sequence[str], releases: Sequence[str]) -> Iterator[str]:
    """A release that fails and is asked for stays installed; and what is asked for must have been seen."""
    for answer in one.answers:
        if answer.kind != "package" or not answer.options or package not in answer.options:
            continue
        for asked in _asked(answer, package):
            if alike := [*asked.filter(fails)]:
                yield f"'{package}{asked}' permits what fails alike: {', '.join(alike)}"
            if not [*asked.filter(releases)]:
                yield f"'{package}{asked}': no release of it was compared"


def _proofs(one: Issue, package: str, fails: Sequence[str]) -> Iterator[str]:
    """One side of a proof fails and the other does not: the later one, where an answer goes back."""
    for proof in one.proof:
        if proof.package == package and proof.of_code and (proof.last in fails) == (proof.first in fails):
            yield f"{package} {proof.last} and {proof.first} of its proof fail alike, or nobody has compared them"


def _required(one: Issue, package: str, fails: Sequence[str]) -> Iterator[str]:
    """The releases of vLLM that permit none that fails, within those of the entry; and beside them those that do."""
    packages = history("packages", "packages")
    if package not in packages.names():
        return
    inside = releases_of(one)
    texts = {at: packages.text(package, at) for at in versions.sampled()}
    permits = {at: any(SpecifierSet(text).filter(fails)) for at, text in texts.items() if text is not None}
    if out := [at for at in inside if permits.get(at) is False]:
        yield f"{span(out)}: requires {package}{texts[out[-1]]}, of which none fails"
    if one.since is None and one.fixed is None:
        return
    # What a proof shows of vLLM's own code is why it ends, whatever is installed.
    ended = any(proof.of_code and not proof.package and proof.first == one.fixed for proof in one.proof)
    beside = [at for at, able in permits.items() if able and at not in inside]
    if beside := [at for at in beside if not (ended and inside and at > inside[-1])]:
        yield f"{span(beside)}: requires {package}{texts[beside[-1]]}, of which some fail alike, beside its releases"
