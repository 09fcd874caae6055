"""What cures a failure, as data: written in layers.json, in the known issues, and in the rules that are rows."""

import shlex
from collections.abc import Mapping
from typing import Literal

import msgspec

from vllm_doctor.knowledge.pattern import Pattern, compiled
from vllm_doctor.records.verdict import Direction

_CLIENT = "client-"
# As `{field}` alone: JSON and a format of a program have another sign beside the brace.
_FIELD = Pattern(r"(?<![{$])\{([a-z_]{1,40})\}(?!\})")


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change: the first of `options` that the release has.

    It applies where `said` matches the message, one of `messages` (ids of the catalogue) is in the fault, and the
    launch uses the option `given` (`or_unknown`: or no launch is known). `to`, `why` and `command` may name a field of
    the message, or a group of `said`, as `{field}`: an answer whose `to` or `why` names one that is not known is not
    given. `command` may name as `{model}` a model of the hub; `otherwise` is what to type where that is not known.
    `upgrade` is given where a newer release is known: a scenario of the newest one has none. `kernel` means another
    kernel than the one that failed, `pool` a smaller pool in memory of the host, by the calls that asked for it.
    One that is true only `before` a release is left out from that release on, as the version or V1's calls tell, and
    one that is true only `since` a release before that, as the version tells.
    `title` is the problem, where `said` and a layer tell which one it is. One with `at_start` is true of a start only,
    and one that a client carries out never is.
    """

    kind: Literal["flag", "env", "os", "package", "hardware", "upgrade", "kernel", "pool"]
    direction: Direction = Direction.CHANGE
    why: str = ""
    options: tuple[str, ...] = ()
    to: str | None = None
    said: str = ""
    messages: tuple[str, ...] = ()
    given: str = ""
    or_unknown: bool = False
    since: str = ""
    before: str = ""
    command: str | None = None
    title: str = ""
    otherwise: str | None = None
    at_start: bool = False

    def __post_init__(self) -> None:
        """An option is no variable: what a reader pastes would be `unset attention-backend`."""
        named = self.options[0].strip("{}") if self.options else "_"
        if self.kind == "env" and not named.isidentifier():
            raise ValueError(f"`options`: {self.options[0]} is not the name of a variable")

    @property
    def of_a_client(self) -> bool:
        """Is it for whoever sends the requests?"""
        return self.kind == "os" and any(name.startswith(_CLIENT) for name in self.options)


def applies(answer: Answer, text: str) -> bool:
    """Is what an answer is for in what a failure says?"""
    return not answer.said or compiled(answer.said).search(text) is not None


def groups(answer: Answer, text: str) -> dict[str, str]:
    """What `said` read by name in a failure's text."""
    found = compiled(answer.said).search(text) if answer.said else None
    return {name: value for name, value in found.groupdict().items() if value} if found is not None else {}


def filled_in(text: str, fields: Mapping[str, str], *, quoted: bool = False) -> str | None:
    """A sentence with the message's fields in it; None where one of them is not known."""
    if any(not fields.get(name) for name in _FIELD.compiled.findall(text)):
        return None
    return _FIELD.compiled.sub(lambda m: shlex.quote(fields[m[1]]) if quoted else fields[m[1]], text)
