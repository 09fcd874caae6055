"""All rules by their code: rows of by_message.toml, and modules with a `RULE`."""

from functools import cache
from importlib import import_module

from vllm_doctor.rules.by_message import by_message
from vllm_doctor.rules.order import by_code
from vllm_doctor.rules.outcome import Rule


def loaded(code: str) -> Rule:
    """The rule of this code. Raises KeyError for a code that has no row in ORDER.md."""
    row = by_code()[code]
    found: Rule = by_message(code) or import_module(row.module).RULE
    return found


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(loaded(code) for code in by_code())
