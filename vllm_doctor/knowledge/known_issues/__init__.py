"""Defects that were reported in public, each read in its thread: a .json file for each part of vLLM.

An entry is matched by what a traceback shows: the class of the exception, its message, the code and the calls that led
to it. All that an entry names must be there; text alone proves nothing, so a match is never confirmed.

Its prose says what those four show, and of a change what it does. Releases, cards, packages, options and values stand
in fields that a check holds against the releases' code (tools/releases/worded.py): a sentence of them would be a claim
of its own.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.pattern import Pattern, compiled
from vllm_doctor.knowledge.versions import Version, as_version

# So much of a message must be an entry's words where its calls are gone, with a name of the code among them.
_MOST = 0.6
_NONE, _MODELS, _LOADS = "NoneType", "models/", ":load_weights"
_NAME = Pattern(r"\w_\w|\w\.[a-z_]|[a-z][A-Z]")
# Numbers, addresses and quoted names differ from one report to the next.
_VARIES = Pattern(r"0x[0-9a-f]+|\d+|'[^']{0,200}'|\"[^\"]{0,200}\"")


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What bears out that a later release is without a defect; that a report is closed proves nothing.

    `pull` is a merged pull request (`owner/name#number`): it tells of no release. Or code was read in two releases that
    follow each other: `last` still has the defect and `first` does not. Their `file` tells it: `gone` is a part of a
    line that `last` has there and `first` does not (nor, where the file is gone, in another file of its name), `came`
    one that `first` has there and `last` does not. The releases are vLLM's, or those of another `package` that an
    answer upgrades, by its name in the registry.
    """

    package: str = ""
    pull: str = ""
    last: str = ""
    first: str = ""
    file: str = ""
    gone: str = ""
    came: str = ""

    @property
    def of_code(self) -> bool:
        """Was the change read in the code of releases?"""
        return bool(self.last and self.first and self.file and (self.gone or self.came))


class Issue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One defect. `kind`, `said`, `code` and `calls` are patterns: of the exception's class, its message, the code of
    the innermost call, and calls as `file:function` of which each must be there. `since` and `fixed` bound the releases
    (from, and the first without it); `address` is what was read, on the day `read`. `cards` are those that the sources
    met it on: others may have it as well, so that they are shown and not matched. `proof` bears out `fixed`, and every
    answer that is an upgrade, of vLLM or of another package: `why` of an upgrade of vLLM is for which case it is, and
    nothing where it is for all."""

    id: str
    title: str
    about: str
    address: str
    read: str
    kind: str = ""
    said: str = ""
    code: str = ""
    calls: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    since: str | None = None
    fixed: str | None = None
    proof: tuple[Proof, ...] = ()
    answers: tuple[Answer, ...] = ()


@cache
def issues() -> tuple[Issue, ...]:
    """All entries, in the order of their files' names."""
    files = sorted(Path(__file__).parent.glob("*.json"))
    return tuple(one for file in files for one in msgspec.json.decode(file.read_bytes(), type=tuple[Issue, ...]))


def matching(
    kind: str, message: str, code: str, calls: Sequence[str], version: Version | None = None
) -> tuple[Issue, ...]:
    """The entries that a failure matches, the one that names most of it first; those whose releases do not hold
    `version` are left out."""
    found = [
        one
        for one in _of_class(kind)
        if _holds(one, version)
        and _found(one.said, message)
        and _found(one.code, code)
        and all(any(_found(call, text) for text in calls) for call in one.calls)
    ]
    return tuple(sorted(found, key=_named, reverse=True))


def by_words(kind: str, message: str, version: Version | None, on: AbstractSet[str]) -> Issue | None:
    """The entry whose words are a message of which no call is left: it has to be most of the message, and to name
    something of the code, as what Python says of any list fits anywhere. One whose calls are of a model's own file says
    nothing of others. Of several those count that change an option which is `on`, and they must share a change.
    """
    said = message.partition("\n")[0]
    able = (one for one in _of_class(kind) if one.said and _holds(one, version) and not _of_one_model(one))
    found = [one for one in able if _tells(one.said, said)]
    found = [one for one in found if _options(one) & on] or found
    if not found or (len(found) > 1 and not frozenset.intersection(*map(_options, found))):
        return None
    return max(found, key=_named)


def _options(one: Issue) -> frozenset[str]:
    return frozenset(option for answer in one.answers for option in answer.options)


def _tells(regex: str, said: str) -> bool:
    """Do an entry's words make up most of a message, with a name of the code in them?"""
    words = compiled(regex).search(said)
    if words is None or len(words[0]) < _MOST * len(said):
        return False
    return _NAME.search(words[0].replace(_NONE, "")) is not None


def _of_one_model(one: Issue) -> bool:
    return any(_MODELS in call or call.endswith(_LOADS) for call in one.calls)


def answers_of(one: Issue) -> tuple[Answer, ...]:
    """The answers of an entry; those that are an upgrade of vLLM say what the entry's proofs show."""
    return tuple(
        replace(answer, why=_mended(one, answer)) if answer.kind == "upgrade" else answer for answer in one.answers
    )


def _mended(one: Issue, answer: Answer) -> str:
    """An upgrade that is given `before` a release may mend a part of what is told here."""
    case = f"{answer.why}: " if answer.why else ""
    told = f"changed in {answer.before}" if answer.before else f"{one.fixed} no longer fails in this way"
    pulls = [proof.pull.removeprefix("vllm-project/vllm#") for proof in one.proof if proof.pull.startswith("vllm-pro")]
    if not pulls:
        return f"{case}{told}"
    return f"{case}{told} (pull request{'s' * (len(pulls) > 1)} {' and '.join(pulls)})"


def met_on(one: Issue) -> str:
    """A sentence of the cards that its sources name and its own words do not; empty where there are none."""
    unsaid = [card for card in one.cards if card not in one.about]
    return f" Reported on {', '.join(unsaid)}." if unsaid else ""


def words_of_issue(kind: str, message: str) -> tuple[str, ...]:
    """The words of a message by which the entries of this class of exception know it."""
    found = (compiled(one.said).search(message) for one in _of_class(kind) if one.said)
    return tuple(dict.fromkeys(one[0] for one in found if one is not None))


def mended_in(release: Version | str) -> tuple[Issue, ...]:
    """The entries that a release no longer has."""
    at = as_version(release)
    return tuple(one for one in issues() if one.fixed is not None and as_version(one.fixed) <= at)


def normalised(message: str) -> str:
    """A message without what differs from one report to the next: the start of a pattern for a new entry."""
    return _VARIES.compiled.sub("*", message).strip()


def _of_class(kind: str) -> list[Issue]:
    """The entries of this class of exception: many share a pattern, which is asked once."""
    asked = {regex: _found(regex, kind, whole=True) for regex in {one.kind for one in issues()}}
    return [one for one in issues() if asked[one.kind]]


def _named(one: Issue) -> tuple[int, int]:
    """How much of a failure an entry names: parts, then length."""
    return len(one.calls) + bool(one.said) + bool(one.code), len(one.said) + len(one.code)


def _holds(one: Issue, version: Version | None) -> bool:
    if version is None:
        return True
    if one.since is not None and version < as_version(one.since):
        return False
    return one.fixed is None or version < as_version(one.fixed)


def _found(regex: str, text: str, *, whole: bool = False) -> bool:
    if not regex:
        return True
    pattern = compiled(regex)
    return (pattern.fullmatch(text) if whole else pattern.search(text)) is not None
