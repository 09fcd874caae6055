"""A value that vLLM takes in place of the one it refused: read from the message, else from the release's tables."""

import json

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.near import near
from vllm_doctor.knowledge.parser import registered_span
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Expression, Version
from vllm_doctor.launch.json_value import json_meant
from vllm_doctor.log.match import each, read, says
from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.say import environment, inventory_var, set_flag, thing, upgrade_to

# Options that name one of several parts doing the same work.
_CHOSEN = "-backend"
_VARIABLE = "VLLM_ATTENTION_BACKEND"  # what the option was before 0.13.0
CHOOSES = "without it vLLM takes the first one that can serve this model on this card"


def allowed(text: str) -> tuple[str, ...]:
    """The values that the message lists; () where it lists none."""
    body = next(iter((read("values-listed", text) or {}).values()), "")
    if not body or says(body, "values-a-range"):
        return ()
    quoted = tuple(found["value"] for found in each("value-quoted", body))
    return quoted or tuple(found["value"] for found in each("value-word", body))


def refused(text: str) -> str | None:
    """The value that the message names as refused."""
    return next(iter((read("value-refused", text) or {}).values()), None)


def nearest(value: str, choices: tuple[str, ...], default: object) -> str | None:
    """What was most likely meant: the part before a colon, the nearest number or word; else the default."""
    head = value.partition(":")[0]
    if head in choices:
        return head
    if all(word.isdecimal() for word in (value, *choices)):
        return min(choices, key=lambda c: (abs(int(c) - int(value)), -int(c)))
    alike = near(value, choices, 1)
    return alike[0] if alike else str(default) if str(default) in choices else None


def meant_value(text: str) -> str | None:
    """The listed value that is nearest to the refused one; None where none is alike."""
    return nearest(refused(text) or "", allowed(text), None)


def replacement(case: Case, name: str, text: str, needed: str = "") -> tuple[Change | None, ...]:
    """The option with a value that is allowed, and where a later release has the refused one, that release. `needed`
    says what the release takes where that is known without a message."""
    if says(text, "json-invalid"):
        why = "write the value as valid JSON in single quotes; the message shows only where the JSON breaks"
        return (
            thing(ChangeKind.FLAG, name, Direction.CHANGE, why),
            set_flag(case, name, None, Direction.REMOVE, "without the option, the defaults apply"),
        )
    pairs = read("value-no-json", text)
    if pairs is not None:
        return (_as_json(case, name, next(iter(pairs.values())).strip()),)
    value, choices = refused(text), allowed(text)
    given = case.flag(name)
    if needed and isinstance(given, str) and says(given, "value-pairs"):
        return (_as_json(case, name, given),)
    value = value or (given if isinstance(given, str) else None)
    fact = versions.flag(name, case.release)
    choices = choices or _of_tables(case, name, value)
    # A smaller cache was wanted, and fp8 is what every release has; of any other option the default does.
    last = "fp8" if name == "kv-cache-dtype" else fact.default if fact is not None else None
    to = nearest(value, choices, last) if value is not None and choices else None
    if to is None and (removed := without_choice(case, name)) is not None:
        return (removed,)
    if to is None:
        return (_later(case, name, value or "") or _unknown(case, name, needed),)
    listed = ", ".join(choices[:12]) + (" …" if len(choices) > 12 else "")
    whose = "this release takes" if allowed(text) or case.version is not None else "every release that refuses it takes"
    return (
        _value(case, name, value or "", to, f"{whose}: {listed}"),
        _later(case, name, value or ""),
    )


def without_choice(case: Case, name: str) -> Change | None:
    """vLLM chooses a backend by itself where none is named: the first that serves this model on this card. None for
    an option of another kind."""
    if not name.endswith(_CHOSEN):
        return None
    if name == "attention-backend" and case.flag(name) is None and case.env(_VARIABLE) is not None:
        return environment(_VARIABLE, Direction.REMOVE, CHOOSES, before=case.env(_VARIABLE))
    fact = versions.flag(name, case.release)
    if fact is None or fact.default not in {None, "auto"}:
        return None
    return set_flag(case, name, None, Direction.REMOVE, CHOOSES)


def _value(case: Case, name: str, value: str, to: str, why: str) -> Change | None:
    """The value as the option takes it: a field of `--structured-outputs-config` is JSON."""
    typed: Scalar = int(to) if to.isdecimal() else to
    if name == "structured-outputs-config":
        fields: dict[str, object] = {"backend": to}
        if value.partition(":")[2] == "disable-any-whitespace":
            fields["disable_any_whitespace"] = True
        typed = json.dumps(fields)
    return set_flag(case, name, typed, Direction.CHANGE, why) or thing(
        ChangeKind.FLAG, name, Direction.CHANGE, why, to=typed, inventory=inventory_var(name)
    )


def _of_tables(case: Case, name: str, value: str | None) -> tuple[str, ...]:
    """The choices of this release; of an unknown one, those of every V1 release without the refused value."""
    every = (
        (case.version,) if case.version is not None else tuple(v for v in versions.sampled() if v >= Version((0, 8)))
    )
    lists = [f.choices for v in every if (f := versions.flag(name, v)) is not None and f.exists and f.choices]
    without = [{str(c) for c in one} for one in lists if value not in one]
    return tuple(sorted(set.intersection(*without))) if without else ()


def _later(case: Case, name: str, value: str) -> Change | None:
    """The first release that takes the value, where this one is older or not known."""
    if (span := registered_span(name, value)) is not None:
        return _within(case, value, *span)
    for at in versions.sampled():
        fact = versions.flag(name, at)
        if fact is not None and fact.exists and fact.choices is not None and value in fact.choices:
            older = case.version is None or case.version < at
            return upgrade_to(case, at, f"the first sampled release that takes {value}") if older else None
    return None


def _within(case: Case, value: str, first: str, last: str | None) -> Change | None:
    """A release that takes the value: the first, or where newer ones take it no more, the last."""
    since, runs = as_version(first), case.version
    if last is None or (runs is not None and runs < since):
        return upgrade_to(case, since, f"the first release that takes {value}")
    if runs is not None and runs <= as_version(last):
        return None  # this one has it: the message is about something else
    why = f"vLLM {first} to {last} takes {value}; later releases have it no more"
    return thing(ChangeKind.PACKAGE, "vllm-version", Direction.CHANGE, why, to=last, before=case.version_text)


def _as_json(case: Case, name: str, value: str) -> Change | None:
    """`image=0,audio=0`, as it was written before; or JSON that something changed on its way to vLLM."""
    if says(value, "value-pairs"):
        pairs = {k: int(n) for k, _, n in (part.partition("=") for part in value.split(","))}
        return set_flag(case, name, json.dumps(pairs), Direction.CHANGE, "this release takes JSON, as one word")
    meant, changed = json_meant(value)
    why = f"write it as JSON in single quotes: {changed}"
    if meant is not None:
        return set_flag(case, name, json.dumps(meant), Direction.CHANGE, why)
    return thing(ChangeKind.FLAG, name, Direction.CHANGE, f"{why}, and vLLM saw only {value}")


def _unknown(case: Case, name: str, needed: str = "") -> Change | None:
    """Without a list: the release's own default, by number or word, where it has one that a person could have meant.
    A default that is switched off is no value to write."""
    at = case.release
    fact = versions.flag(name, at)
    default: Scalar = sequences(case)[0] if name == "max-num-seqs" else None
    switch = bool(needed) and fact is not None and isinstance(fact.default, bool)
    if default is None and fact is not None and isinstance(fact.default, str | int | float) and not switch:
        default = fact.default if fact.default != "" else None  # nobody means to write that
    elif default is None and fact is not None and isinstance(fact.default, Expression):
        # An enumeration's member is written in lower case on the command line.
        enumeration, _, member = fact.default.source.partition(".")
        default = member.lower() if enumeration.endswith("Enum") and member.isidentifier() else None
    why = (needed or "a value that the message accepts") if default is None else f"the default of vLLM {at}"
    return thing(ChangeKind.FLAG, name, Direction.CHANGE, why, to=default, inventory=inventory_var(name))
