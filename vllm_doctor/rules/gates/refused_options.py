"""The options that this release refuses: those that argparse named, or, where no log was given, those of the launch."""

import itertools
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from vllm_doctor.knowledge import parser, versions
from vllm_doctor.knowledge.claims import as_text, replacements
from vllm_doctor.knowledge.near import near
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.command import refusals
from vllm_doctor.launch.parse import LaunchError, Why
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.host import Launch
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named
from vllm_doctor.rules.outcome import NotHere, Unseen
from vllm_doctor.rules.say import thing

# A hyphen, and what editors, chats and web pages make of two: en dash, em dash, minus, horizontal bar.
_DASHES = "-\u2013\u2014\u2212\u2015"
_SHORT = 5


@dataclass(frozen=True)
class RefusedOptions:
    """`known` are options that other releases have, `unknown` those that none has, `words` what is no option at all,
    `joined` options of this release that came in one word with their value; `paired` those that may have, and with
    which; `values` what the message shows behind an option; `dashed` those that lack a dash or have a typographic one,
    as they were written and their values; `letters`: all are one letter behind one dash."""

    evidence: tuple[Evidence, ...]
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    confidence: Confidence
    words: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    paired: tuple[tuple[str, str], ...] = ()
    dashed: tuple[tuple[str, str, str], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    letters: bool = False


def refused(case: Case) -> RefusedOptions | NotHere | Unseen:
    """What argparse said; without a log, what the facts of the release say of the launch."""
    launch = case.launch
    fault = named(case, "unrecognized-arguments", "engine-argument-unknown")
    if isinstance(fault, Unseen):
        return fault if launch is None else _of_launch(launch, case.version)
    if isinstance(fault, NotHere):
        return fault
    name = fault.fields("engine-argument-unknown").get("key")
    frames = fault.crash.root.frames if fault.crash is not None else ()
    if name and (versions.flag(name, case.release) is None or not all(says(f.file, "call-of-vllm") for f in frames)):
        return NotHere("the program that gives the argument is told of it")
    words = f"--{name.replace('_', '-')}" if name else fault.fields("unrecognized-arguments").get("words", "")
    try:
        parts = shlex.split(words)
    except ValueError:
        parts = words.split()
    options = tuple(dict.fromkeys(w.partition("=")[0].lstrip("-") for w in parts if w.startswith("-")))
    at = case.release
    known = tuple(o for o in options if (fact := versions.flag(o, at)) is not None and fact.exists is not True)
    unknown = tuple(o for o in options if o not in known)
    # What follows an option is its value; only what stands before the first one was meant as a word of its own.
    alone = tuple(itertools.takewhile(lambda w: not w.startswith("-"), parts))
    # This release takes the option, and a shell would have taken the quotes off: option and value were one word.
    joined = tuple(
        o
        for o in unknown
        if (fact := versions.flag(o, at)) is not None
        and fact.exists is True
        and any(f"--{o} {quote}" in words for quote in "'\"")
    )
    # argparse prints what it did not take with blanks between: a list item that holds both looks like two words.
    pairs = tuple(
        (w.lstrip("-"), after) for w, after in itertools.pairwise(parts) if w.startswith("--") and _is_value(after)
    )
    split = tuple((w.partition("=")[0].lstrip("-"), w.partition("=")[2]) for w in parts if w[:2] == "--" and "=" in w)
    paired = tuple((o, value) for o, value in pairs if o in unknown and has(case, o) and _takes_one(o))
    dashed = tuple(
        (name, word.partition("=")[0], word.partition("=")[2] or (after if _is_value(after) else ""))
        for word, after in itertools.pairwise((*parts, "-"))
        if (name := _undashed(word)) and has(case, name)
    )
    return RefusedOptions(
        (case.line(fault.hits[0].index),),
        known,
        unknown,
        Confidence.CONFIRMED,
        alone,
        joined,
        paired,
        dashed,
        (*pairs, *split),
        all(len(o) == 1 for o in unknown) and not any(w.startswith("--") for w in parts),
    )


def _undashed(word: str) -> str:
    """The name behind one dash, or behind a dash that a word processor made of two; empty for any other word. vLLM's
    own short options have three letters at most."""
    name = word.partition("=")[0]
    one = name.startswith("-") and not name.startswith("--") and len(name) > _SHORT
    return name.lstrip(_DASHES).replace("_", "-") if one or name[:1] in _DASHES[1:] else ""


def _is_value(word: str) -> bool:
    """A plain word: that of a mapping is refused for other reasons too."""
    return not word.startswith((*_DASHES, "{", "["))


def _takes_one(option: str) -> bool:
    """Does one value follow it, and no list of them?"""
    words = parser.takes(option)
    return words is not None and words.words == 1


def _of_launch(launch: Launch, at: Version | None) -> RefusedOptions | NotHere | Unseen:
    """What the parser of the release would refuse of the line; without a release, what every one would."""
    try:
        found = refusals(launch, at)
    except LaunchError:
        return Unseen(frozenset({Signal.LAUNCH}))
    known = tuple(r.flag.lstrip("-") for r in found if r.why is Why.GONE)
    unknown = tuple(r.flag.lstrip("-") for r in found if r.why is Why.UNKNOWN)
    words = tuple(shlex.split(r.found)[0] for r in found if r.why is Why.WORD)
    if not known and not unknown and not words:
        sure = at is not None and parser.options(str(at)) is not None
        return NotHere("this release refuses no option of the launch") if sure else Unseen(frozenset({Signal.LOG}))
    shown = Evidence(
        "launch", f"vLLM {at}" if at else "any release", " ".join((*(f"--{o}" for o in (*known, *unknown)), *words))
    )
    return RefusedOptions((shown,), known, unknown, Confidence.LIKELY, words)


def option_history(case: Case, option: str) -> str:
    """In which releases an option exists, in words."""
    fact = versions.flag(option, case.release)
    if fact is None:
        return "no release has it"
    return f"{fact.first} to {fact.last} have it"


def note(case: Case, option: str) -> str:
    """The same with what is noted of it."""
    fact = versions.flag(option, case.release)
    return option_history(case, option) + (f"; {fact.note}" if fact is not None and fact.note else "")


def instead(option: str) -> str | None:
    """What does the option's work in newer releases; None where nobody noted it."""
    gone = replacements()[0].get(versions.canonical(option))
    return as_text(gone) if gone is not None else None


def has(case: Case, option: str) -> bool:
    """Does this release have the option, by what is known of it?"""
    fact = versions.flag(option, case.release)
    return fact is not None and fact.exists is True


# How many options are compared with all names of a release: milliseconds each, and a launch may hold thousands.
_COMPARED = 16


def hints(case: Case, options: Iterable[str]) -> dict[str, str]:
    """For each, whose option it is, or which one was meant."""
    return {option: _hint(case, option, compared=at < _COMPARED) for at, option in enumerate(options)}


def _hint(case: Case, option: str, *, compared: bool) -> str:
    other = replacements()[1].get(option.replace("_", "-"))
    if other is not None:
        return as_text(other)
    at = case.release
    if has(case, option):
        return f"vLLM {at} has it, so another release, or another program, read this launch"
    alike = meant(case, option) if compared else None
    return f"did you mean --{alike}?" if alike is not None else "no release of vLLM has it"


def foreign(option: str) -> str | None:
    """vLLM's own for an option of another program that takes the same value."""
    other = replacements()[1].get(option.replace("_", "-"))
    return other.use if other is not None and other.same else None


def meant(case: Case, option: str) -> str | None:
    """The option of this release that a mistyped one comes near to: most of its letters, or all in another order."""
    at = case.release
    names = list(parser.options(str(at)) or versions.flag_names(at))
    typed = option.replace("_", "-")
    same = (name for name in names if len(name) == len(typed) and sorted(name) == sorted(typed))
    return next(iter(near(typed, names, 1, 0.8) or same), None)


def together(changes: Iterable[Change | None]) -> tuple[Change, ...]:
    """All of them at once: with one refused option left, the launch is refused again."""
    return tuple(msgspec.structs.replace(one, together=True) for one in changes if one is not None)


def remove(option: str, why: str) -> Change:
    """Take an option out that no release has."""
    return thing(ChangeKind.FLAG, option, Direction.REMOVE, why, applicability=Applicability.SAFE)
