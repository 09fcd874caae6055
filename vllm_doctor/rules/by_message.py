"""The rules that are rows of by_message.toml: this message is what failed first, so these changes are offered."""

from functools import cache, partial
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.answers import Answer, filled_in
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import startup_phase_of
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown, text
from vllm_doctor.rules.gates.out_of_memory import of_a_program
from vllm_doctor.rules.order import by_code
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Rule, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of, reads
from vllm_doctor.rules.say import finding

TABLE = Path(__file__).with_suffix(".toml")


class MessageRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one of `messages` means as the first failure; the first row of a code that has one of them answers.

    `title` stands where the order's own says too little, and may name fields of the message as `{field}`; where one of
    them is not known, the order's own stands. The rule answers nothing beside one of `unless`, nor where the file of
    the innermost call is one of the catalogue's `unless_in`, nor where the calls are not of the step of a start
    `only_in`, and `because` says why;
    nor, where it is `of_server`, of a program's own calls in a log in which vLLM wrote nothing.
    """

    messages: tuple[str, ...]
    refute: str
    title: str = ""
    confidence: Confidence = Confidence.CONFIRMED
    unless: tuple[str, ...] = ()
    unless_in: str = ""
    only_in: str = ""
    of_server: bool = False
    because: str = ""
    answers: tuple[Answer, ...] = ()


@cache
def table() -> dict[str, tuple[MessageRow, ...]]:
    """The rows by code. Raises msgspec.ValidationError for a key or a value that a row may not have."""
    found = {}
    for code, rows in msgspec.toml.decode(TABLE.read_bytes()).items():
        try:
            found[code] = msgspec.convert(rows, tuple[MessageRow, ...])
        except msgspec.ValidationError as wrong:
            raise msgspec.ValidationError(f"{TABLE.name}, [[{code}]]: {wrong}") from None
    return found


@cache
def by_message(code: str) -> Rule | None:
    """The rule of this code; None where it has a module of its own."""
    rows = table().get(code)
    if rows is None:
        return None
    needed = {signal for row in rows for answer in row.answers for signal in reads(answer)}
    return rule(code, reads=frozenset({Signal.LOG, *needed}), judge=partial(_judge, code))


def _judge(code: str, case: Case) -> Outcome:
    rows = table()[code]
    ids = tuple(message for row in rows for message in row.messages)
    fault = named(case, *ids)
    if isinstance(fault, NotHere | Unseen):
        return fault
    row = next(row for row in rows if fault.ids & frozenset(row.messages))
    if fault.ids & frozenset(row.unless) or (row.unless_in and _inside(fault, row.unless_in)):
        return Clear(row.because)
    if row.only_in and startup_phase_of(fault.functions) != row.only_in:
        return Clear(row.because)
    if row.of_server and case.run is not None and not case.run.by_vllm and of_a_program(fault.files):
        return NotHere("a program of somebody's own failed, and vLLM wrote nothing")
    fields = _fields(fault, row)
    return finding(
        by_code()[code],
        title=filled_in(row.title, fields) or "",
        severity=severity(case, fault),
        confidence=row.confidence,
        evidence=shown(case, fault, *ids),
        changes=changes_of(case, row.answers, text(case, fault), fault, fields),
        refute=row.refute,
    )


def _inside(fault: Fault, place: str) -> bool:
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return bool(frames) and says(frames[-1].file, place)


def _fields(fault: Fault, row: MessageRow) -> dict[str, str]:
    """The fields of the row's messages, the first named first."""
    return {name: value for one in reversed(row.messages) for name, value in fault.fields(one).items() if value}
