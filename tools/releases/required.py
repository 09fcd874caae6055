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

_RELEASE = re.compile(r"(<?)(\d[\w.]*)")


def beyond_requirements(one: Issue) -> list[str]:
    """What each such answer installs, and the requirement of the last release that does not ask for it."""
    return list(_told(one))


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
