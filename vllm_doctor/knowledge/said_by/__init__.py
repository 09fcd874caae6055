"""Which function raises in these words: what a quoted last line of a traceback still tells of its calls.

Of each sentence of a `raise`, an `assert` or a check of compiled code the tables (vllm.json, vllm-csrc.json, and one
for each library that it calls) have no words, but three fingerprints, of three words in a row each. A message that
holds them all, of the same kind, is that sentence, whatever values stand in it. A sentence too short for three is
there whole, with a hole for each value (short.py). tools/releases/said_by.py reads the wheels and the source
distributions.
"""

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.layers import layer_of
from vllm_doctor.knowledge.library_places import library_place_of
from vllm_doctor.knowledge.said_by.short import short_rows
from vllm_doctor.knowledge.version import Version, as_version

# vLLM's own, in Python and compiled: the releases of both are vLLM's.
OWN, COMPILED = "vllm", "vllm-csrc"
_OURS = frozenset({OWN, COMPILED})
_CSRC = f"{OWN}/csrc/"
_PLUGINS = ("vllm_ascend/", "tpu_inference/", "vllm_gguf_plugin/")
_FOLDER = Path(__file__).parent
# The part whose code copies what others say.
_COPIES = "model-code"
# Words in a row that one fingerprint is of, and how many fingerprints tell a sentence.
_WORDS, _PRINTS = 3, 3
# Fixed letters of a short sentence that is told without its class.
_OF_ITS_OWN = 30
# What is raised under the name of another: pydantic's and the hub's checks of fields quote the first.
_PASSED_ON = {
    "ValidationError": frozenset({"ValueError", "AssertionError"}),
    "StrictDataclassFieldValidationError": frozenset({"ValueError", "TypeError"}),
    "StrictDataclassClassValidationError": frozenset({"ValueError", "TypeError"}),
}
# Python's older names of one class.
_SAME = {"EnvironmentError": "OSError", "IOError": "OSError"}
_READ = 2000


class SaidBy(NamedTuple):
    """A call that says a sentence, and the first and the last release known to have it there."""

    file: str
    function: str
    kind: str
    first: Version
    last: Version
    # how many letters of a short sentence are fixed; a long one is not told by them
    letters: int = 0

    @property
    def own(self) -> bool:
        """Is it vLLM's? The releases are vLLM's then, else the library's."""
        return self.file.startswith(f"{OWN}/")


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rows`, in the order of the fingerprints that they begin with: then file, function, kind and releases, which are
    places in the lists above. `short`: the same behind whole sentences and a tab, in their order."""

    source: str
    releases: tuple[str, ...]
    files: tuple[str, ...]
    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: tuple[str, ...]
    short: tuple[str, ...] = ()


def fingerprints(text: str, hole: str = "") -> tuple[str, ...]:
    """Of each three words in a row, in order; none of words that hold `hole`, where a value stands."""
    words = text.split()
    runs = (words[i : i + _WORDS] for i in range(len(words) - _WORDS + 1))
    return tuple(
        f"{zlib.crc32(' '.join(run).encode(errors='replace')) & 0xFFFFFF:06x}"
        for run in runs
        if not hole or not any(hole in word for word in run)
    )


def told_by(text: str, hole: str, common: frozenset[str] = frozenset()) -> str:
    """The fingerprints that tell a sentence, as one word, those that are `common` last; empty where too little of it
    is fixed."""
    found = sorted(set(fingerprints(text, hole)), key=lambda one: (one in common, one))[:_PRINTS]
    return "".join(sorted(found)) if len(found) == _PRINTS and not common.issuperset(found) else ""


def said_by(kind: str, message: str, at: Version | None = None, *, libraries: bool = True) -> SaidBy | None:
    """The call that raises `kind` with such a message: vLLM's in this release, else in the newest that has it, or a
    library's. None where no sentence fits, or calls of several parts have the same one."""
    tables = [OWN, *(_libraries() if libraries else ())]
    found = _first_written([one for name in tables for one in _told(name, kind, message[:_READ], at)])
    most = max((one.letters for one in found), default=0)
    found = [one for one in found if one.letters in {0, most}]  # `{} is odd` is not who says `the room is odd`
    return _one(found) or _compiled(found) or _alike(found, message)


def kind_that_says(message: str, *, alone: bool = False) -> str | None:
    """The class that is raised in such words, wherever that is; None where no sentence fits. `alone`: they are all that
    somebody quotes, so a short sentence counts, too."""
    for name in (OWN, *_libraries()):
        fits = [*_fitting(name, None, message[:_READ]), *(_short(name, message[:_READ]) if alone else ())]
        found: SaidBy | None = max(fits, key=lambda one: one.last, default=None)
        if found is not None:
            return found.kind
    return None


def last_release_to_say(message: str) -> Version | None:
    """The last release in which vLLM says it, wherever that is and whatever the class; None where it never does."""
    return max((one.last for one in _fitting(OWN, None, message[:_READ])), default=None)


def _told(name: str, kind: str, message: str, at: Version | None) -> list[SaidBy]:
    """What one package has of it: in the release that runs, which is known of vLLM alone, else in the newest.

    Where the release is not known and another function of another part of vLLM had it before, which the layers do not
    take for the same, none: few words tell such sentences apart.
    """
    found = list(_fitting(name, kind, message))
    newest = max((one.last for one in found), default=None)
    told = [one for one in found if name in _OURS and at is not None and one.first <= at <= one.last]
    told = told or [one for one in found if one.last == newest]
    calls = {one.function for one in told}
    before = (one for one in found if name in _OURS and at is None and one.function not in calls)
    moved = [one for one in before if _whole(one) not in map(_whole, told)]
    parts = {_part(one, places=False) for one in told} if moved else set()
    return [] if any(_part(one, places=False) not in parts for one in moved) else told


def _first_written(found: list[SaidBy]) -> list[SaidBy]:
    """Without what a plugin took from vLLM, and the compiled code that a library did (FlashInfer its custom
    all-reduce)."""
    if any(one.own for one in found):
        found = [one for one in found if not one.file.startswith(_PLUGINS)]
    if not any(one.file.startswith(_CSRC) for one in found):
        return found
    return [one for one in found if one.own or one.file.endswith(".py")]


def _whole(one: SaidBy) -> str:
    """The package of vLLM, whether it is a folder in that release or still one file."""
    return one.file.split("/")[1].removesuffix(".py")


def _one(found: Sequence[SaidBy]) -> SaidBy | None:
    """The call where all are of one part: vLLM's own before a library's copy of it."""
    if len({one.file.rpartition("/")[0] for one in found}) == 1:
        return found[0]
    own = [one for one in found if one.own]
    parts = {_part(one, places=not own) for one in found}
    if len(parts) > 1:  # a model's code that copies another part's
        parts.discard((_COPIES,))
    if len(parts) != 1 or not any(next(iter(parts))):
        return None
    told = [one for one in own or found if _part(one, places=not own) in parts]
    return max(told, key=lambda one: (one.last, one.first)) if told else None


def _compiled(found: Sequence[SaidBy]) -> SaidBy | None:
    """Checks that kernels of several parts copy: compiled code of vLLM, and no more."""
    if not found or not all(one.file.startswith(_CSRC) for one in found):
        return None
    return found[0]._replace(file=_CSRC, function="")


def _alike(found: Sequence[SaidBy], message: str) -> SaidBy | None:
    """One of several calls of libraries whose places are answered with the same first change for this message."""
    places = [library_place_of(f"/site-packages/{one.file}", one.function, one.kind, serving=False) for one in found]
    first = [next((a for a in p.answers if applies(a, message)), None) if p is not None else None for p in places]
    changes = {(a.kind, a.direction, a.options) if a is not None else None for a in first}
    return found[0] if len(changes) == 1 and None not in changes and not any(one.own for one in found) else None


def _part(one: SaidBy, *, places: bool) -> tuple[str, ...]:
    """What an answer would be about: of a library's call what its place does for vLLM, else the layer of the file."""
    file = f"/site-packages/{one.file}"
    here = [library_place_of(file, one.function, one.kind, serving=up) for up in (False, True)] if places else []
    told = tuple(place.id if place is not None else "" for place in here)
    part = layer_of((), (file,)) if not any(told) else None
    return told if any(told) else (part.id if part is not None else "",)


def _fitting(name: str, kind: str | None, message: str) -> Iterator[SaidBy]:
    """The calls of one package that say it: those of long sentences, and, where the class is known, of short ones."""
    here = frozenset(fingerprints(message))
    table = _read(name)
    for first in sorted(here):
        for row in table.rows[bisect_left(table.rows, first) : bisect_left(table.rows, f"{first}~")]:
            prints, _, place = row.partition(" ")
            if here.issuperset(prints[i : i + 6] for i in range(0, len(prints), 6)):
                yield from _call(table, place, kind)
    for row in short_rows(table.short, kind, message) if kind is not None else ():
        sentence, _, place = row.rpartition("\t")
        yield from _call(table, place, kind, sum(map(str.isalpha, sentence)))


def _short(name: str, message: str) -> Iterator[SaidBy]:
    """The calls that say a short sentence of so many letters that nobody writes it by chance."""
    table = _read(name)
    for row in short_rows(table.short, "", message):
        sentence, _, place = row.rpartition("\t")
        letters = sum(map(str.isalpha, sentence))
        if letters >= _OF_ITS_OWN:
            yield from _call(table, place, None, letters)


def _call(table: _Table, place: str, kind: str | None, letters: int = 0) -> Iterator[SaidBy]:
    """The call of a row, where it raises the class or one that is passed on under its name."""
    file, function, of_kind, releases = place.split()
    own = _SAME.get(table.kinds[int(of_kind)], table.kinds[int(of_kind)])
    if kind is None or own == kind or own in _PASSED_ON.get(kind, ()):
        start, _, end = releases.partition("-")
        yield SaidBy(
            table.files[int(file)],
            table.functions[int(function)],
            own,
            as_version(table.releases[int(start)]),
            as_version(table.releases[int(end) if end else -1]),
            letters,
        )


@cache
def _libraries() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.json") if file.stem != OWN))


@cache
def _read(name: str) -> _Table:
    return msgspec.json.decode((_FOLDER / f"{name}.json").read_bytes(), type=_Table)
