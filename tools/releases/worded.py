"""What the prose of a known issue claims and no field of it bears out.

What its signature matches, which releases it is met in, which change is given in which of them: each stands in a field
that a check holds against code (compared.py, ways.py, accepted.py, known_issues.py prove). A sentence that names a
release, a card, an option or a date beside those fields is held by nothing, and readers found one in ten of them wrong.
So prose names only what a field of its entry has, or what a release of it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from releases.accepted import releases_of
from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.gpus import names
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.known_issues import Issue

# A cause in a sentence, or two; a change in one.
_ABOUT, _WHY = 215, 240
_CASE = 60

_NUMBER = re.compile(r"\b\d+\.\d+(?:\.\d+)*(?:\.post\d+|rc\d+)?\b")
# Not a release's number: what a card can do, and a model's name.
_NO_RELEASE = re.compile(
    r"compute capability \d+\.\d+|\b(?:Llama|MiniCPM-V|GLM|Qwen|DeepSeek|Qwen2|Gemma|Mistral)[ -]?(?:V|OCR-)?\d+\.\d+"
)
_PULL = re.compile(r"\b[1-9]\d{3,5}\b(?!,\d)")
_REPORTED = re.compile(
    r"\b(?:[Rr]eported|[Rr]eporters?|[Rr]eaders?|maintainers?|"
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December) (?:\d{1,2} )?\d{4})\b"
)
_OPTION = re.compile(r"(?<![\w-])--(?:no-)?([a-z][a-z0-9-]+)")
_OURS = "VLLM_"
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_GENERATIONS = ("Volta", "Turing", "Ampere", "Hopper", "Blackwell", "RTX", "Radeon", "Graviton")
_MODELS = re.compile(
    r"\b(?:Qwen|Llama|DeepSeek|Gemma|Mistral|GLM|Nemotron|gpt-oss|Granite|MiniMax|Kimi|Falcon|InternVL|Whisper|LLaVA|"
    r"DBRX|Cohere|MiniCPM|Pixtral|Voxtral|BGE|SmolLM|PaddleOCR)"
)


def unheld(one: Issue) -> list[str]:
    """Why each clause of an entry's prose that no field holds is one; the fields of an answer hold its own sentence."""
    told = [f"the title: {why}" for why in _claims(one, one.title, _fields(one))]
    told += [f"`about`: {why}" for why in _claims(one, one.about, _fields(one))]
    if len(one.about) > _ABOUT:
        told.append(f"`about` has {len(one.about)} signs, at most {_ABOUT}")
    for answer in one.answers:
        name = " ".join((answer.kind, *answer.options))
        told += [f"{name}: {why}" for why in _claims(one, answer.why, f"{_fields(one)} {_of_answer(answer)}", answer)]
        most = _CASE if answer.kind == "upgrade" else _WHY
        if len(answer.why) > most:
            told.append(f"{name}: {len(answer.why)} signs, at most {most}")
        told += [f"{name}: {why}" for why in _unproved(one, answer)]
    return told


def _unproved(one: Issue, answer: Answer) -> Iterator[str]:
    """An upgrade of vLLM is to a release whose code is proved to differ from the one before."""
    if answer.kind != "upgrade":
        return
    first = answer.before or one.fixed
    if first is None:
        yield "no release ends it"
    elif not any(proof.of_code and not proof.package and proof.first == first for proof in one.proof):
        yield f"no proof shows {first}"


def _claims(one: Issue, text: str, fields: str, answer: Answer | None = None) -> Iterator[str]:
    numbers = _NO_RELEASE.sub("", text)
    yield from (f"the number {name}" for name in _NUMBER.findall(numbers) if name not in fields)
    yield from (f"{name}, a report or a date" for name in _REPORTED.findall(text))
    yield from (f"the number {name}" for name in _PULL.findall(numbers) if name not in fields)
    yield from (f"the card {name}" for name in _card().findall(text) if name not in fields)
    yield from (f"{name}, which no release of it has" for name in _unknown(one, text, answer) if name not in fields)
    other = {name for name in _VARIABLE.findall(text) if not name.startswith(_OURS)} - _backends()
    yield from (f"{name}, which none of its fields names" for name in sorted(other) if name not in fields)
    at = f"{one.id} {one.title} {fields}".lower()
    yield from (f"the model {name}" for name in _MODELS.findall(text) if name.lower() not in at)


def _unknown(one: Issue, text: str, answer: Answer | None) -> Iterator[str]:
    """The options and variables of vLLM that a text names, and that no release has in which it is given."""
    given = releases_of(one, answer)
    for name in _OPTION.findall(text):
        if not any(versions.flag(versions.canonical(name), at) is not None for at in given):
            yield name
    for name in _VARIABLE.findall(text):
        facts = (versions.env(name, at) for at in given) if name.startswith(_OURS) else ()
        if name.startswith(_OURS) and not any(fact is not None and fact.exists for fact in facts):
            yield name


@cache
def _backends() -> frozenset[str]:
    """The attention backends of all releases."""
    return frozenset(history("kernels", "attention").names())


@cache
def _card() -> re.Pattern[str]:
    short = {word for name in names() for word in re.findall(r"\b[A-Z]{1,3}\d{2,4}\w?\b", name)}
    return re.compile(rf"\b(?:{'|'.join(sorted({*short, *_GENERATIONS}))}|gfx\d+\w*)\b")


def _fields(one: Issue) -> str:
    """What the entry's own data name, as text: a pattern without the signs that only a pattern has."""
    patterns = (one.kind, one.said, one.code, *one.calls)
    known = (one.id, one.since or "", one.fixed or "", *one.cards, *map(_plain, patterns), one.address)
    proofs = (part for proof in one.proof for part in (proof.package, proof.last, proof.first, proof.file, proof.gone))
    return " ".join((*known, *proofs, *map(_of_answer, one.answers)))


def _of_answer(answer: Answer) -> str:
    bounds = (answer.since, answer.before, answer.given)
    return " ".join((*answer.options, answer.to or "", answer.command or "", *bounds))


def _plain(pattern: str) -> str:
    return pattern.replace("\\", "")
