"""What people write of a release or a setting: that it helps, or that a thing fails with it."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import each, says
from vllm_doctor.log.told_text import LONGEST, SENTENCE_END
from vllm_doctor.log.traceback import names_a_call
from vllm_doctor.records.log import LogLine

# So many lines of people are read, and so many below a sentence that ends in a colon.
_LINES, _LISTED = 400, 6
_LIST = (":", "\uff1a")
_DENIED = "says-it-does-not-help"
# Where another thought begins: what is denied there is not denied before it. A path names no release.
_CLAUSE = Pattern(r"[(),\uff0c\u3001]\s?|\s(?:but|although|while|whereas|however)\s")
_PATH = Pattern(r"(?:https?:/)?/[\w./-]{3,300}")
_OPTION = Pattern(r"(?<![\w.-])(?:--)?([a-z]{2,20}(?:[-_][a-z]{2,20}){1,5})(?![\w.-]*/)")
# Words right before a setting that is taken away.
_WITHOUT = Pattern(
    r"(?i)\b(?:without|no|remov\w{1,3}|disabl\w{1,3}|dropp\w{1,3}|turning off)\W{1,4}(?:the )?[`'\"-]{0,4}$"
)


class NamedSetting(msgspec.Struct, frozen=True):
    """A variable or an option as a sentence names it, with its value; `off`: that it helps to leave it out."""

    name: str
    value: str = ""
    variable: bool = False
    off: bool = False


class HelpingWords(msgspec.Struct, frozen=True):
    """A person's sentence that something works: the number of its line, the releases and the settings that it names."""

    number: int
    releases: tuple[str, ...]
    settings: tuple[NamedSetting, ...]


def helping_words(lines: Iterable[LogLine]) -> Iterator[HelpingWords]:
    """Each sentence of a person that says that something works, and the settings listed below one with a colon."""
    people = [one for one in lines if not (one.module or one.level or one.process or names_a_call(one.text))]
    listed = 0
    for line in people[:_LINES]:
        text = _PATH.compiled.sub(" ", line.text[:LONGEST])
        for said in filter(None, (text[first:last].strip() for first, last in _clauses(text))):
            helps = says_it_helps(said)
            if helps or (listed > 0 and not says(said, _DENIED)):
                releases = tuple(told["version"] for told in each("release-in-words", said))
                yield HelpingWords(line.number, releases, tuple(settings_of(said)))
            listed = _LISTED if helps and said.endswith(_LIST) else listed - 1


def says_it_helps(said: str) -> bool:
    """Does a person say that something works, and neither deny nor ask it?"""
    return says(said, "says-it-helps") and not says(said, _DENIED)


def without_help(text: str) -> str:
    """The text without the clauses that say what helps: what they name is no part of the launch that failed."""
    kept, after = "", 0
    for first, last in _clauses(text[:LONGEST]):
        if says_it_helps(text[first:last]):
            kept, after = kept + text[after:first], last
    return kept + text[after:]


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    """Where each thought of a text stands, without what parts them."""
    between = sorted(cut.span() for one in (SENTENCE_END, _CLAUSE) for cut in one.finditer(text))
    ends = [(0, 0), *between, (len(text), len(text))]
    return ((first, max(first, last)) for (_, first), (last, _) in pairwise(ends))


def settings_of(said: str) -> Iterator[NamedSetting]:
    """The variables with a value, and the options behind two dashes, that a text names."""
    for told in each("setting-in-words", said):
        variable = told.get("variable", "")
        name = variable or told.get("option") or told["bare"]
        off = _WITHOUT.search(said[: said.find(name)]) is not None
        value = next((told[one] for one in ("value", "to", "at") if one in told), "")
        yield NamedSetting(name if variable else name.replace("_", "-"), value, bool(variable), off)
    if says(said, "engine-in-words"):
        yield NamedSetting("VLLM_USE_V1", "0", variable=True)


def options_of(title: str) -> tuple[str, ...]:
    """What may be options in a title, where people leave the dashes out: names of several words."""
    return tuple(word.replace("_", "-") for word in _OPTION.compiled.findall(title))
