"""The releases of vLLM whose own requirements leave out what an answer of a known issue installs.

It need not be wrong: the reader's package is mostly outside of them already, or the sentence says what to take. It is
to be read.
"""

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version as Release

from releases.accepted import releases_of, span
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.specifiers import both_take
from vllm_doctor.rules.remedies.required_package import asked_by, goes_round, named_by

_RELEASE = re.compile(r"(<?)(\d[\w.]*)")
_LEAST = re.compile(r"(?:[>=]=)?(\d[\w.]*)")


def beyond_requirements(one: Issue) -> list[str]:
    """What each such answer installs, and the requirement of the last release that does not ask for it."""
    return list(_told(one))


def never_given(one: Issue) -> list[str]:
    """The answers that name a release of a package which no release of their span takes: their reader gets what vLLM
    asks for in its place, which is an answer only where it is newer than what helped."""
    return list(_never_given(one))


def _never_given(one: Issue) -> Iterator[str]:
    for answer in one.answers:
        for name, named in named_by(answer).items() if not goes_round(answer) else ():
            asked = {at: text for at in releases_of(one, answer) if (text := asked_by(name, at))}
            taken = any(both_take(named, text) for text in asked.values())
            least = _LEAST.fullmatch(named)
            newer = least is not None and not any(both_take(f"<={least[1]}", text) for text in asked.values())
            if asked and not taken and not newer:
                yield f"{span(list(asked))}: {name} {named}, asked for: {list(asked.values())[-1]}"


def _told(one: Issue) -> Iterator[str]:
    packages = history("packages", "packages")
    for answer in one.answers:
        name = answer.options[0] if answer.options else ""
        installed = _RELEASE.fullmatch(answer.to or "")
        if answer.kind != "package" or installed is None or name not in packages.names():
            continue
        texts = {at: packages.text(name, at) for at in releases_of(one, answer)}
        asked = {at: SpecifierSet(text) for at, text in texts.items() if text is not None}
        out = [at for at in asked if left_out(asked[at], installed[2], below=bool(installed[1]))]
        if out:
            yield f"{span(out)}: {name} {answer.to}, asked for: {texts[out[-1]]}"


def left_out(asked: SpecifierSet, release: str, *, below: bool) -> bool:
    """Is a release outside of what is asked for; or, where any below it may come, the newest of those?"""
    if not below:
        return release not in asked
    most = [Release(spec.version) for spec in asked if spec.operator == "<"]
    least = [Release(spec.version) for spec in asked if spec.operator in {">=", "=="}]
    return any(bound < Release(release) for bound in most) or any(bound >= Release(release) for bound in least)
