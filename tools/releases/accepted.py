"""The releases in which a way round of a known issue would be refused: no such option or variable, or not with this
value. A text is held against the choices, the names and the object's keys that the release itself was read to have.
"""

import json
from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.history import Record, history
from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.parser.keys import wrong_keys
from vllm_doctor.knowledge.version import Version, as_version
from vllm_doctor.records.verdict import Direction

# Options whose values stand in a register of the release, where the option itself lists none.
_REGISTERED = {
    "load-format": ("registered", "load_formats"),
    "attention-backend": ("kernels", "attention"),
    "mm-encoder-attn-backend": ("kernels", "attention"),
}
# A variable of another program or plugin; no release of vLLM tells of it.
_OURS, _PLUGINS = "VLLM_", "VLLM_ASCEND_"


def releases_of(one: Issue, answer: Answer | None = None) -> list[Version]:
    """The releases, of those that were read, that an entry is said to be met in, and an answer of it to be given in."""
    froms = [one.since, answer.since if answer is not None else ""]
    ends = [one.fixed, answer.before if answer is not None else ""]
    since, fixed = ([as_version(bound) for bound in bounds if bound] for bounds in (froms, ends))
    return [at for at in versions.sampled() if all(first <= at for first in since) and all(at < end for end in fixed)]


def refused(one: Issue) -> list[str]:
    """What is refused of an entry's ways round, and where no other way round of it stands in.

    An entry without a first release begins for this where one of its options does: before that no reader is told of
    it, as the release has nothing of what fails.
    """
    ours = [answer for answer in one.answers if of_vllm(answer)]
    met, told = releases_of(one), []
    given = {id(answer): releases_of(one, answer) for answer in ours}
    taken = {id(answer): [at for at in given[id(answer)] if why_refused(answer, at) is None] for answer in ours}
    for answer in ours:
        here = taken[id(answer)]
        first = here[0] if here and one.since is None else met[0] if met else None
        others = {at for other in ours if other is not answer for at in taken[id(other)]}
        asked = given[id(answer)]
        missed = [at for at in asked if at not in here and at not in others and first is not None and at >= first]
        # A bound of the answer's own is where the release has it, or no longer: it claims the releases beside it.
        missed = missed or [at for at in asked if here and _claimed(answer, at, here)]
        if not here or missed:
            at = (missed or asked)[-1]
            told.append(f"{span(missed or asked)}: {why_refused(answer, at)}")
    return list(dict.fromkeys(told))


def _claimed(answer: Answer, at: Version, taken: Sequence[Version]) -> bool:
    """Does an answer's own bound give it in a release before the first, or after the last, that takes it?"""
    return bool(answer.since and at < taken[0]) or bool(answer.before and at > taken[-1])


def of_vllm(answer: Answer) -> bool:
    """Is an answer an option or a variable that vLLM itself has?"""
    names = answer.options
    if answer.kind == "env":
        return names[0].startswith(_OURS) and not names[0].startswith(_PLUGINS)
    return answer.kind == "flag" and not any("{" in name for name in names)


def why_refused(answer: Answer, at: Version) -> str | None:
    """Why a release refuses an answer; None where it takes it."""
    table = history("options", "options") if answer.kind == "flag" else history("environment", "environment")
    has = next((name for name in _named(answer) if table.exists(name, at)), None)
    if has is None:
        return f"no {answer.options[0]}"
    if answer.to is None or answer.direction is Direction.REMOVE:
        return None
    return next(_wrong(answer, has, table.value(has, at), at), None)


def _named(answer: Answer) -> Sequence[str]:
    return answer.options if answer.kind == "env" else [versions.canonical(name) for name in answer.options]


def _wrong(answer: Answer, name: str, record: Record, at: Version) -> Iterator[str]:
    to = answer.to or ""
    if to.startswith("{"):
        for key, found, needed in wrong_keys(name, json.loads(to), at, whole=False):
            yield f"{name} {key}: {found}, needed {needed}"
        return
    values = _values(name, record, at)
    if values and to.lower() not in values:
        yield f"{name} does not take {to}, but {' '.join(sorted(values))}"


def _values(name: str, record: Record, at: Version) -> set[str]:
    """The values that a release takes; nothing where it lists none."""
    listed = [*_each(record.get("choices")), *_each(record.get("names"))]
    if not listed and name in _REGISTERED:
        register = history(*_REGISTERED[name])
        listed = [each for each in register.names() if register.exists(each, at)]
    return {str(value).lower() for value in listed}


def _each(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def span(met: Sequence[Version]) -> str:
    """Releases as their first and their last."""
    return str(met[0]) if len(met) == 1 else f"{met[0]} to {met[-1]}"
