"""What articles say about vLLM and its memory, and in which releases it is true; what took the place of old options.

claims.json: each claim with spans of releases (`to` empty: up to the newest), whether it holds there, and the truth.
replacements.json: options that went, with what does their work now, and options that are another program's. Which
release has which option stands in history/options.json alone.
"""

from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.versions import Version, as_version, canonical


class Span(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """Releases for which a claim holds or not; `say` is the truth there."""

    first: str
    last: str
    true: bool
    say: str

    def holds(self, at: Version) -> bool:
        """Is the release within? Between two sampled releases the earlier span goes on."""
        return as_version(self.first) <= at


class Claim(msgspec.Struct, frozen=True):
    """One thing that is said. `about` names options, variables or metrics, `codes` findings it comes up with."""

    id: str
    claim: str
    about: tuple[str, ...]
    codes: tuple[str, ...]
    said: tuple[Span, ...]

    def at(self, version: Version) -> Span | None:
        """What is true of it in a release; None for a release before the first that was looked at."""
        return next((span for span in reversed(self.said) if span.holds(version)), None)


class Gone(msgspec.Struct, frozen=True):
    """What does the work of an option that went (None: nothing needs to). In `value`, `$` is the old option's own."""

    use: str | None
    value: str | None
    why: str

    def value_for(self, old: object) -> str | None:
        """The new option's value, given the old one's; None where it does not follow from that."""
        if self.value is None or "$" not in self.value:
            return self.value
        return self.value.replace("$", old) if isinstance(old, str) else None


class Foreign(msgspec.Struct, frozen=True):
    """Whose option it is, and vLLM's own for the same; `same` says that it takes the same value."""

    of: str
    use: str
    same: bool = False


class _Replacements(msgspec.Struct, frozen=True):
    gone: dict[str, Gone]
    other: dict[str, Foreign]
    added: dict[str, str]


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim."""
    return msgspec.json.decode(Path(__file__).with_name("claims.json").read_bytes(), type=tuple[Claim, ...])


@cache
def _read() -> _Replacements:
    return msgspec.json.decode(Path(__file__).with_name("replacements.json").read_bytes(), type=_Replacements)


def replacements() -> tuple[dict[str, Gone], dict[str, Foreign]]:
    """Options that went, and options of other programs."""
    return _read().gone, _read().other


def added_by(option: str) -> str | None:
    """The package that adds this option to `vllm serve`; None where it is nobody's."""
    return _read().added.get(option.replace("_", "-"))


def claims_of(code: str) -> tuple[Claim, ...]:
    """The claims that come up with a finding."""
    return tuple(c for c in claims() if code in c.codes)


def claims_about(name: str) -> tuple[Claim, ...]:
    """The claims about an option, a variable or a metric."""
    wanted = {name, canonical(name), name.replace(":", "_")}
    return tuple(c for c in claims() if any(a in wanted or a.replace(":", "_") in wanted for a in c.about))


def as_text(wording: Gone | Foreign) -> str:
    """What to use instead, in words."""
    match wording:
        case Gone(use=None, why=why):
            return f"take it out: {why}"
        case Gone(use=use, value=value, why=why):
            return f"--{use}{f' {value}' if value and '$' not in value else ''} does it now ({why})"
        case Foreign(of="nobody's", use=use):
            return f"did you mean --{use}?"
        case Foreign(of=of, use=use):
            whose = of if of.startswith(("a ", "nobody")) else f"an option of {of}"
            return f"it is {whose}; vLLM's own is --{use}"
