"""What the text itself says that it helps: a release that people name as one that works, a setting with which it does.

Whoever pastes a report pastes what its writers found out by trial. It is offered as their word, behind what the log
shows, and only what this vLLM has: a text may name anything.
"""

from collections.abc import Iterable, Iterator

from vllm_doctor.knowledge import versions
from vllm_doctor.log.helping_words import NamedSetting, helping_words, options_of, settings_of
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.requested_change import is_option, value_of_sentence
from vllm_doctor.rules.say import environment, release_to, set_flag

_CHANGES = 2
# What opens a server, or makes it run what a checkpoint brings: no person's word is enough for it.
_NEVER = frozenset({"trust-remote-code", "allowed-local-media-path", "allowed-media-domains", "api-key", "host"})
# A launch may need them: the name of the model, and what fits it on its cards.
_NEEDED = frozenset(
    {"max-model-len", "gpu-memory-utilization", "served-model-name", "tensor-parallel-size", "pipeline-parallel-size"}
)
_OURS, _SWITCH = "VLLM_", "enable-"


def said_to_help(case: Case) -> tuple[Change, ...]:
    """The changes, in the order in which the text names them; () where it names none that this vLLM has."""
    return _once(_helping(case)) if case.run is not None else ()


def without_the_named(case: Case, title: str) -> tuple[Change, ...]:
    """What a title names as that with which it fails (`crashes with --num-scheduler-steps`, `when VLLM_X=1`): to leave
    it out."""
    why = "the title of the report says that it fails with this: leave it out, and see whether it still does"
    variables = (one.name for one in settings_of(title) if one.variable and _is_ours(case, one.name))
    options = (name for name in options_of(title) if is_option(case, name) and name not in _NEEDED)
    return _once(
        (
            *_switched_off(case, title, why),
            *(environment(name, Direction.REMOVE, why) for name in variables),
            *(set_flag(case, name, None, Direction.REMOVE, why) for name in options),
        )
    )


def _switched_off(case: Case, title: str, why: str) -> Iterator[Change | None]:
    """The features that are turned on by a switch, where a title has the words of its name: `prefix caching`."""
    words = f" {title.lower().replace('-', ' ').replace('_', ' ')} "
    for name in versions.flag_names(case.release):
        feature = name.removeprefix(_SWITCH).replace("-", " ")
        if name.startswith(_SWITCH) and " " in feature and f" {feature} " in words:
            yield set_flag(case, name, False, Direction.SET, why)


def _once(changes: Iterable[Change | None]) -> tuple[Change, ...]:
    found: dict[str, Change] = {}
    for change in changes:
        if change is not None:
            found.setdefault(change.name, change)
    return tuple(found.values())[:_CHANGES]


def _helping(case: Case) -> Iterator[Change | None]:
    run = case.run
    calls = {i for crash in run.crashes for i in range(crash.first, crash.last + 1)} if run is not None else set()
    for said in helping_words(line for i, line in enumerate(run.lines if run is not None else ()) if i not in calls):
        why = f"line {said.number} of the text says that it works with this: its writer's word, and no proof"
        for release in said.releases:
            yield _release(case, release, why)
        for one in said.settings:
            yield _setting(case, one, why)


def _release(case: Case, told: str, why: str) -> Change | None:
    release, known = versions.as_version(told), case.version
    if not versions.complete(release) or release == known or case.plugin is not None:
        return None
    direction = Direction.CHANGE if known is None else Direction.UPGRADE if release > known else Direction.DOWNGRADE
    return release_to(case, told, direction, why)


def _setting(case: Case, one: NamedSetting, why: str) -> Change | None:
    if one.variable:
        known = _is_ours(case, one.name) and case.env(one.name) != one.value
        return environment(one.name, Direction.SET, why, to=one.value) if known else None
    fact = case.has_flag(one.name)
    if one.name in _NEVER or fact is None:
        return None
    if one.off:
        return set_flag(case, one.name, None, Direction.REMOVE, why) if case.effective(one.name) is not None else None
    if one.value:
        return set_flag(case, one.name, value_of_sentence(one.value), Direction.SET, why)
    return set_flag(case, one.name, True, Direction.ADD, why) if fact.default is False else None


def _is_ours(case: Case, name: str) -> bool:
    """Is it a variable that this vLLM reads, or one of a library's?"""
    return not name.startswith(_OURS) or case.has_env(name) is not None
